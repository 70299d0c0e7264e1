"""Every plot, in one style: readable at column width, one colour per policy everywhere, labels at the lines' ends.

Matplotlib is imported when a figure is made, through its object interface alone: no global state, no window.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spuir.errors import MissingExtraError, ParameterError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Series = NDArray[np.float64]

COLUMN, HEIGHT = 3.5, 2.7
"""Width of one printed column and height of one panel, in inches."""

INK, FAINT = "#262626", "#d9d9d9"
TEXT_POINTS = 7.5
LABEL_PITCH = 8.5

SOLID, DASHED, DOTTED, MIXED = "-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5))
BLACK, GREY, BLUE, SKY, GREEN, ORANGE, VERMILLION, PINK, WINE, OLIVE = (
    "#000000 #7f7f7f #0072b2 #56b4e9 #009e73 #e69f00 #d55e00 #cc79a7 #882255 #8a8a00".split()
)

STYLES: Mapping[str, tuple[str, Any]] = {
    "sbucb": (BLACK, SOLID),
    "puir": (VERMILLION, SOLID),
    "puir-rs": (ORANGE, DASHED),
    "puir-exp": (VERMILLION, DASHED),
    "puir-poly": (VERMILLION, MIXED),
    "puir-kernel": (VERMILLION, DOTTED),
    "spuir": (BLUE, SOLID),
    "spuir-rs": (SKY, DASHED),
    "spuir-exp": (BLUE, DASHED),
    "spuir-poly": (BLUE, MIXED),
    "spuir-kernel": (BLUE, DOTTED),
    "bexp3": (GREEN, SOLID),
    "bexp3-ipw": (PINK, DASHED),
    "blts-b": (WINE, MIXED),
    "linear-thompson": (WINE, SOLID),
    "dfm-s": (OLIVE, SOLID),
    "uniform": (GREY, DOTTED),
    "greedy": (GREY, SOLID),
    "epsilon-greedy": (GREY, DASHED),
}
"""Colour (safe for colour-blind readers) and dashes of each policy; sketched forms are blue, exact ones red."""


class Run(Protocol):
    """What a figure reads of a run."""

    @property
    def policy(self) -> str:
        """The policy's name."""
        ...

    @property
    def average_reward(self) -> Series:
        """Running mean of the reward (N,)."""
        ...


@dataclass(frozen=True)
class Curve:
    """One labelled line: mean (N,) over seeds, and its standard error (N,), zero for a single seed."""

    label: str
    mean: Series
    error: Series
    seeds: int = 1


def style_of(policy: str) -> tuple[str, Any]:
    """Return the colour and the dashes of a policy: the same everywhere, also for names not listed here."""
    if policy in STYLES:
        return STYLES[policy]
    colours, dashes = (BLUE, GREEN, VERMILLION, PINK, ORANGE, WINE, OLIVE), (DASHED, DOTTED, MIXED)
    code = blake2b(policy.encode(), digest_size=2).digest()
    return colours[code[0] % len(colours)], dashes[code[1] % len(dashes)]


def curves_of(runs: Iterable[Run]) -> list[Curve]:
    """Return a curve of the running average reward for each policy, in the order of first appearance."""
    groups: dict[str, list[Series]] = {}
    for run in runs:
        groups.setdefault(run.policy, []).append(run.average_reward)
    if not groups:
        raise ParameterError("runs", "none", "a figure needs at least one run", "pass the histories to draw")
    curves: list[Curve] = []
    for label, lines in groups.items():
        if len({len(line) for line in lines}) > 1:
            raise ParameterError(
                "runs", f"{label!r} of different lengths", "the seeds of one policy have one length", "draw them apart"
            )
        stacked = np.stack(lines)
        spread = stacked.std(axis=0, ddof=1) if len(lines) > 1 else np.zeros(stacked.shape[1])
        curves.append(Curve(label, stacked.mean(axis=0), spread / np.sqrt(len(lines)), len(lines)))
    return curves


def average_reward(runs: Sequence[Run], *, zoom: float = 0.05) -> "Figure":
    """Draw the running average reward over episodes: a line per policy, a band of one standard error over seeds.

    Where some policies end more than the share ``zoom`` below the best, a second panel shows the others alone.
    """
    curves = curves_of(runs)
    best = max(curve.mean[-1] for curve in curves)
    near = [curve for curve in curves if curve.mean[-1] >= best - zoom * abs(best)]
    split = 1 < len(near) < len(curves)
    figure, panels = new_figure(2 if split else 1)
    shown = dict(zip(panels, (curves, near), strict=False))
    for ax, some in shown.items():
        draw_curves(ax, some, settle=0.0 if ax is panels[0] else 0.15)
        ax.set_xlabel("episode")
    panels[0].set_ylabel("running average reward")
    seeds = {curve.seeds for curve in curves}
    said = f"mean of {max(seeds)} seeds ± standard error" if len(seeds) == 1 and max(seeds) > 1 else ""
    for ax, title in zip(panels, (said, f"those within {zoom:.0%} of the best"), strict=False):
        ax.set_title(title, fontsize=TEXT_POINTS, color=INK, loc="left")
    label_ends(figure, shown)
    return figure


def new_figure(panels: int) -> "tuple[Figure, list[Axes]]":
    """Return a figure of panels side by side, each one column wide, in the house style."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError(
            "figure", "no matplotlib", "drawing needs it", 'run pip install "spuir[plot]"'
        ) from None
    figure = Figure(figsize=(COLUMN * panels, HEIGHT), dpi=300, layout="constrained")
    FigureCanvasAgg(figure)
    axes = [figure.add_subplot(1, panels, i + 1) for i in range(panels)]
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set(color=INK, linewidth=0.6)
        ax.tick_params(labelsize=TEXT_POINTS, width=0.6, length=2.5, color=INK, labelcolor=INK)
        ax.grid(axis="y", color=FAINT, linewidth=0.5)
        ax.set_axisbelow(True)
        ax.xaxis.label.set(size=TEXT_POINTS, color=INK)
        ax.yaxis.label.set(size=TEXT_POINTS, color=INK)
    return figure, axes


def draw_curves(ax: "Axes", curves: Sequence[Curve], *, settle: float = 0.0) -> None:
    """Draw curves with bands; the first share ``settle`` of the episodes does not stretch the vertical axis."""
    length = max(len(curve.mean) for curve in curves)
    lows, highs = [], []
    for curve in curves:
        colour, dashes = style_of(curve.label)
        episodes = np.arange(1, len(curve.mean) + 1)
        low, high = curve.mean - curve.error, curve.mean + curve.error
        ax.fill_between(episodes, low, high, color=colour, alpha=0.18, linewidth=0)
        ax.plot(
            episodes,
            curve.mean,
            color=colour,
            linestyle=dashes,
            linewidth=1.1,
            marker="o" if length == 1 else "",
            markersize=3,
        )
        start = int(settle * len(low))
        lows.append(low[start:].min())
        highs.append(high[start:].max())
    low, high = min(lows), max(highs)
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 0.05
    ax.set(xlim=(1, max(length, 2)), ylim=(low - margin, high + margin))


def label_ends(figure: "Figure", panels: Mapping["Axes", Sequence[Curve]]) -> None:
    """Name every line at its right end, moved apart where lines end close together; then fix the layout."""
    figure.draw_without_rendering()
    for ax, curves in panels.items():
        points = ax.get_window_extent().height * 72 / figure.dpi
        bottom, top = ax.get_ylim()
        _, right = ax.get_xlim()
        ends = np.array([(curve.mean[-1] - bottom) / (top - bottom) for curve in curves]) * points
        places = keep_apart(ends, LABEL_PITCH, points) / points
        for curve, end, place in zip(curves, ends / points, places, strict=True):
            colour, dashes = style_of(curve.label)
            leader = [(len(curve.mean) - 1) / (right - 1), 1.04, 1.10], [end, place, place]
            inside = {"transform": ax.transAxes, "clip_on": False}
            ax.plot(*leader, color=colour, linestyle=dashes, linewidth=1.1, **inside)
            ax.text(1.12, place, curve.label, fontsize=TEXT_POINTS - 0.5, color=INK, va="center", **inside)
    # Labels widen the margin. Without a fixed layout, every drawing would move the axes a little further.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def keep_apart(places: Series, pitch: float, height: float) -> Series:
    """Move places as little as possible (least squares) so that they keep their order and lie ``pitch`` apart.

    The result stays within 0…height where there is room; where there is not, it is spread over all of it.
    """
    count = len(places)
    step = min(pitch, height / max(count - 1, 1))
    order = np.argsort(places, kind="stable")
    blocks: list[tuple[float, int]] = []
    for rank, place in enumerate(places[order]):
        blocks.append((float(place) - rank * step, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (one, n), (two, m) = blocks.pop(-2), blocks.pop()
            blocks.append(((one * n + two * m) / (n + m), n + m))
    shifts = np.repeat([shift for shift, _ in blocks], [n for _, n in blocks])
    apart = np.empty(count)
    apart[order] = np.clip(shifts, 0, height - (count - 1) * step) + step * np.arange(count)
    return apart


def save(figure: "Figure", path: str | Path) -> list[Path]:
    """Write the figure as PNG and SVG, whatever suffix ``path`` has; the same figure gives the same bytes."""
    import matplotlib

    stem = Path(path)
    stem = stem.with_suffix("") if stem.suffix.lower() in (".png", ".svg") else stem
    stem.parent.mkdir(parents=True, exist_ok=True)
    targets = [stem.with_name(stem.name + suffix) for suffix in (".png", ".svg")]
    with matplotlib.rc_context({"svg.hashsalt": "spuir", "svg.fonttype": "path"}):
        figure.savefig(targets[0])
        figure.savefig(targets[1], metadata={"Date": None})
    return targets

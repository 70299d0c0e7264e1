"""All plots in one style: readable at column width, one colour per policy everywhere, labels at the ends of lines.

Matplotlib is imported when a figure is made and used through its object interface only: no global state, no window.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spuir.base.hashing import digest
from spuir.errors import MissingExtraError, ParameterError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Series = NDArray[np.float64]
Style = tuple[str, Any]
"""Colour and dashes."""

COLUMN, HEIGHT = 3.5, 2.7
"""Width of one printed column and height of one panel, in inches."""

INK, FAINT = "#262626", "#d9d9d9"
TEXT_POINTS = 7.5
LABEL_PITCH = 8.5
SETTLED, CROWDED = 0.5, 0.25
"""An enlarged panel leaves out this share of the episodes from its height; lines are crowded below this share of it."""

SOLID, DASHED, DOTTED, MIXED, LONG = "-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)), (0, (9, 2))
BLACK, GREY, SILVER, BLUE, SKY, GREEN, ORANGE, VERMILLION, PINK, WINE, OLIVE, VIOLET = (
    "#000000 #7f7f7f #a3a3a3 #0072b2 #56b4e9 #009e73 #e69f00 #d55e00 #cc79a7 #882255 #8a8a00 #5e3c99".split()
)
TEAL, PURPLE, MAROON, NAVY = "#2a9d8f #9b4dca #7a1f1f #1d3557".split()

STYLES: Mapping[str, Style] = {
    "auto": (VIOLET, SOLID),
    "hierarchical": (VIOLET, DASHED),
    "sbucb": (BLACK, SOLID),
    "puir": (VERMILLION, SOLID),
    "puir-rs": (ORANGE, DASHED),
    "puir-exp": (VERMILLION, DASHED),
    "puir-poly": (VERMILLION, MIXED),
    "puir-kernel": (MAROON, DOTTED),
    "puir + intercept": (VERMILLION, LONG),
    "spuir": (BLUE, SOLID),
    "spuir-rs": (SKY, DASHED),
    "spuir-exp": (TEAL, DASHED),
    "spuir-poly": (PURPLE, MIXED),
    "spuir-kernel": (MAROON, SOLID),
    "spuir + intercept": (NAVY, LONG),
    "bexp3": (GREEN, SOLID),
    "bexp3-ipw": (PINK, DASHED),
    "blts-b": (WINE, MIXED),
    "linear-thompson": (WINE, SOLID),
    "dfm-s": (OLIVE, SOLID),
    "uniform": (GREY, DOTTED),
    "greedy": (GREY, SOLID),
    "epsilon-greedy": (GREY, DASHED),
    "oracle": (SILVER, SOLID),
    "best fixed": (SILVER, DASHED),
}
"""Colour (safe for colour-blind readers) and dashes of each policy; exact forms are red.

Beside the policies: the best action for each context, and the best fixed action, as levels to compare with.
"""

TUNED = " (tuned)"
"""Ends the label of a policy at its own best setting: the same colour and dashes, a filled marker."""


class PlottedRun(Protocol):
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
    """One labelled line: mean (n,) over seeds, and its standard error (n,), zero for a single seed.

    ``places`` (n,) are the positions of the values on the horizontal axis, episodes 1…n if None. ``style`` replaces the
    label's own. A ``guide`` is a thin line to compare with, without markers.
    """

    label: str
    mean: Series
    error: Series
    seeds: int = 1
    places: Series | None = None
    style: Style | None = None
    guide: bool = False

    @property
    def look(self) -> Style:
        """Its colour and dashes."""
        return self.style or style_of(self.label)

    @property
    def x(self) -> Series:
        """Positions of the values (n,)."""
        return np.arange(1.0, len(self.mean) + 1) if self.places is None else self.places


def style_of(label: str) -> Style:
    """Return the colour and the dashes of a policy: the same everywhere, also for names not listed here.

    A label that begins with a policy's name, "puir (tuned)" or "spuir (c = 50)", has that policy's colour; except when
    tuned, it has dashes of its own.
    """
    if label in STYLES:
        return STYLES[label]
    policy, _, rest = label.partition(" ")
    code = bytes.fromhex(digest(label, size=2))
    if policy in STYLES:
        colour, dashes = STYLES[policy]
        others = [some for some in (SOLID, DASHED, DOTTED, MIXED) if some != dashes]
        return colour, dashes if f" {rest}" == TUNED else others[code[1] % len(others)]
    colours, dashes = (BLUE, GREEN, VERMILLION, PINK, ORANGE, WINE, OLIVE), (DASHED, DOTTED, MIXED)
    return colours[code[0] % len(colours)], dashes[code[1] % len(dashes)]


def curves_of(runs: Iterable[PlottedRun]) -> list[Curve]:
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
        curves.append(curve_of(label, np.stack(lines)))
    return curves


def ramp(colours: int) -> list[Style]:
    """Return styles for one thing at several strengths, weak to strong: solid lines from light grey to black."""
    shades = np.linspace(0xB4, 0, colours).round().astype(int)
    return [(f"#{shade:02x}{shade:02x}{shade:02x}", SOLID) for shade in shades]


def curve_of(label: str, values: Series) -> Curve:
    """Return the curve of ``values`` (seeds, n): their mean over the seeds, and its standard error."""
    seeds = len(values)
    spread = values.std(axis=0, ddof=1) if seeds > 1 else np.zeros(values.shape[1])
    return Curve(label, values.mean(axis=0), spread / np.sqrt(seeds), seeds)


def average_reward(runs: Sequence[PlottedRun], *, zoom: float = 0.05) -> "Figure":
    """Draw the running average reward over episodes: a line per policy, a band of one standard error over seeds.

    Policies that end within the share ``zoom`` of the best have a second panel, enlarged, if the first one cannot show
    them apart: others are far below, or all of them began far below.
    """
    curves = curves_of(runs)
    best, end = max(curve.mean[-1] for curve in curves), max(curve.x[-1] for curve in curves)
    near = [curve for curve in curves if abs(curve.mean[-1] - best) <= zoom * abs(best)]
    crowded = len(near) < len(curves) or _span(near, SETTLED) < CROWDED * _span(curves, 0.0)
    figure, panels = new_figure(2 if len(near) > 1 and crowded else 1)
    shown = dict(zip(panels, (curves, near), strict=False))
    for ax, some in shown.items():
        draw_curves(ax, some, settle=0.0 if ax is panels[0] else SETTLED)
        ax.set(xlabel="episode", xlim=(1, max(end, 2)))
    panels[0].set_ylabel("running average reward")
    for ax, title in zip(panels, (seeds_note(curves), f"enlarged: within {zoom:.0%} of the best"), strict=False):
        ax.set_title(title, fontsize=TEXT_POINTS, color=INK, loc="left")
    label_ends(figure, shown)
    return figure


def _span(curves: Sequence[Curve], settle: float) -> float:
    """Return the height that the means of curves take, without their first share ``settle``."""
    values = np.concatenate([curve.mean[int(settle * len(curve.mean)) :] for curve in curves])
    return float(np.ptp(values))


def seeds_note(curves: Sequence[Curve]) -> str:
    """Return what a figure's title says of its seeds; nothing where there is one, or curves differ."""
    seeds = {curve.seeds for curve in curves}
    return f"mean of {max(seeds)} seeds ± standard error" if len(seeds) == 1 and max(seeds) > 1 else ""


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


def draw_curves(ax: "Axes", curves: Sequence[Curve], *, settle: float = 0.0, marked: bool = False) -> None:
    """Draw curves with bands; the first share ``settle`` of the values does not stretch the vertical axis."""
    ends: list[Series] = [np.empty(0)]
    for curve in curves:
        colour, dashes = curve.look
        low, high = curve.mean - curve.error, curve.mean + curve.error
        ax.fill_between(curve.x, low, high, color=colour, alpha=0.18, linewidth=0)
        ax.plot(
            curve.x,
            curve.mean,
            color=colour,
            linestyle=dashes,
            linewidth=0.8 if curve.guide else 1.1,
            marker="o" if (marked or len(curve.x) == 1) and not curve.guide else "",
            markersize=3,
            markerfacecolor=colour if curve.label.endswith(TUNED) or not marked else "white",
            markeredgewidth=0.9,
        )
        start = int(settle * len(low))
        ends += [low[start:], high[start:], curve.mean[start:]]
    ax.set_ylim(*framed(np.concatenate(ends), ax.get_yscale() == "log", 0.05))


def framed(values: Series, logarithmic: bool, share: float) -> tuple[float, float]:
    """Return axis limits that include all values the axis can show, with a margin."""
    fit = values[np.isfinite(values) & ((values > 0) | (not logarithmic))]
    if not len(fit):
        return (0.1, 1.0) if logarithmic else (0.0, 1.0)
    low, high = fit.min(), fit.max()
    if logarithmic:
        factor = (high / low) ** share if high > low else 1 + share
        return float(low / factor), float(high * factor)
    margin = share * (high - low) or share * abs(high) or share
    return float(low - margin), float(high + margin)


def label_ends(figure: "Figure", panels: Mapping["Axes", Sequence[Curve]]) -> None:
    """Name every line at its right end, moved apart where lines end close together; then fix the layout."""
    figure.draw_without_rendering()
    for ax, curves in panels.items():
        points = ax.get_window_extent().height * 72 / figure.dpi
        last = [np.flatnonzero(np.isfinite(curve.mean))[-1] for curve in curves]
        seen = [(curve.x[i], curve.mean[i]) for curve, i in zip(curves, last, strict=True)]
        ends = ax.transAxes.inverted().transform(ax.transData.transform(seen))
        # A value that a logarithmic axis cannot hold, such as a regret of 0, would stretch the figure.
        ends[:, 1] = np.clip(ends[:, 1], 0.0, 1.0)
        places = keep_apart(ends[:, 1] * points, LABEL_PITCH, points) / points
        for curve, (across, up), place in zip(curves, ends, places, strict=True):
            inside = {"transform": ax.transAxes, "clip_on": False}
            # Thin and grey: a leader in the colour of its line would look like a part of the data.
            ax.plot([across, 1.05], [up, place], color=SILVER, linewidth=0.4, zorder=1.5, **inside)
            ax.text(1.06, place, curve.label, fontsize=TEXT_POINTS - 0.5, color=curve.look[0], va="center", **inside)
    # Labels widen the margin. Without a fixed layout, every drawing would move the axes a little further.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def name_lines(ax: "Axes", names: Sequence[str]) -> None:
    """Name the horizontal lines of a panel, the first on top; they need no grid."""
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.grid(visible=False, axis="y")


def shortened(text: str, longest: int) -> str:
    """Return a text of at most so many letters: of a longer one, its beginning."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def keep_apart(places: Series, pitch: float, height: float) -> Series:
    """Move places as little as possible (least squares) so that they keep their order and lie ``pitch`` apart.

    The result stays within 0…height where there is room; where there is not, it is spread over all of it.
    """
    from scipy.optimize import isotonic_regression  # slow to import

    count = len(places)
    step = min(pitch, height / max(count - 1, 1))
    order, steps = np.argsort(places, kind="stable"), step * np.arange(count)
    shifts = isotonic_regression(places[order] - steps).x
    apart = np.empty(count)
    apart[order] = np.clip(shifts, 0, height - (count - 1) * step) + steps
    return apart


def _repeatable() -> Any:
    """Return a context in which the same figure gives the same bytes."""
    import matplotlib

    return matplotlib.rc_context({"svg.hashsalt": "spuir", "svg.fonttype": "path", "pdf.fonttype": 42})


def svg(figure: "Figure") -> bytes:
    """Return the figure as SVG; the same figure gives the same bytes."""
    out = BytesIO()
    with _repeatable():
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def save(figure: "Figure", path: str | Path, *, pdf: bool = False) -> list[Path]:
    """Write the figure as PNG and SVG, and as PDF if asked; the same figure gives the same bytes.

    A suffix of ``path`` is replaced.
    """
    stem = Path(path)
    stem = stem.with_suffix("") if stem.suffix.lower() in (".png", ".svg") else stem
    stem.parent.mkdir(parents=True, exist_ok=True)
    undated: dict[str, Any] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    targets = [stem.with_name(stem.name + suffix) for suffix in (".png", ".svg", *((".pdf",) if pdf else ()))]
    with _repeatable():
        for target in targets:
            figure.savefig(target, metadata=undated[target.suffix] or None)
    return targets

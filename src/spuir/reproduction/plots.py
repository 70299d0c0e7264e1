"""The figures of the reproduction, in the style of :mod:`spuir.results.figures`: panels side by side under one title.

There are three kinds of panel: lines over an axis, paired differences as dots with their intervals, and tables as
shaded cells. A policy has one colour in all of them; values of a parameter are shades of brown.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from spuir.base.records import Floats
from spuir.reproduction.claims import Interval, summary
from spuir.reproduction.table_text import typeset
from spuir.reproduction.tasks import Result
from spuir.results import figures
from spuir.results.figures import Curve, Style, style_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TICKS = ((40, (1.0, 2.0, 5.0)), (500, (1.0, 3.0)), (np.inf, (1.0,)))
"""Ratio of the ends of a logarithmic axis → ticks of each decade."""
SMALL_POINTS = figures.TEXT_POINTS - 0.5
NEAR = 0.05
"""As in the paper, lines that end more than this share below the best are left out of a zoomed panel."""


class FigurePanel(Protocol):
    """What a figure is made of."""

    def draw(self, ax: "Axes") -> Sequence[Curve]:
        """Draw on some axes; return the curves to be named at their ends."""
        ...

    @property
    def height(self) -> float:
        """The height it needs, in inches."""
        ...


def compose(title: str, panels: Sequence[FigurePanel], width: float = figures.COLUMN) -> "Figure":
    """Draw panels side by side, each of some width in inches, under a title; a vertical label is not repeated."""
    figure, axes = figures.new_figure(len(panels))
    figure.set_size_inches(width * len(panels), 0.25 + max(panel.height for panel in panels))
    figure.suptitle(title, fontsize=figures.TEXT_POINTS + 0.5, color=figures.INK, x=0.01, ha="left")
    named = {ax: panel.draw(ax) for ax, panel in zip(axes, panels, strict=True)}
    for ax in axes[1:]:
        if ax.get_ylabel() == axes[0].get_ylabel():
            ax.set_ylabel("")
    figures.label_ends(figure, {ax: curves for ax, curves in named.items() if curves})
    return figure


def shades(count: int) -> list[Style]:
    """Return styles for the values of a parameter, small to large: solid lines from sand to dark brown."""
    light, dark = np.array([0xE3, 0xB9, 0x7A]), np.array([0x4B, 0x2E, 0x05])
    steps = np.linspace(0.0, 1.0, count)
    mixed = [(light + step * (dark - light)).round().astype(int) for step in steps]
    return [("#" + "".join(f"{part:02x}" for part in colour), figures.SOLID) for colour in mixed]


def curve(label: str, x: Sequence[float], samples: Iterable[Iterable[float]], style: Style | None = None) -> Curve:
    """Return the line of the means of ``samples``, one sample over the seeds at each ``x``; NaN where one is empty."""
    values = [list(sample) for sample in samples]
    means, errors = zip(*(summary(sample) for sample in values), strict=True) if values else ((), ())
    seeds = max((len(sample) for sample in values), default=0)
    return Curve(label, np.array(means), np.nan_to_num(errors), seeds, np.array(x, dtype=np.float64), style)


def running(label: str, results: Sequence[Result], style: Style | None = None) -> Curve:
    """Return the average reward over the episodes, as a mean over the results; an empty line without any."""
    episodes = [row["episode"] for row in results[0].rows] if results else []
    by_episode = zip(*([row["average_reward"] for row in result.rows] for result in results), strict=True)
    return curve(label, episodes, by_episode, style)


def episodes(title: str, curves: Sequence[Curve]) -> "Lines":
    """Return a panel of running average rewards over the episodes, as in the paper's figures."""
    ylabel = "running average reward"
    return Lines(title=title, xlabel="episode", ylabel=ylabel, lines=curves, measured=False, near=True)


def guide(label: str, x: Sequence[float], values: Sequence[float]) -> Curve:
    """Return a grey dotted line to compare with."""
    where, mean = np.array(x, dtype=np.float64), np.array(values, dtype=np.float64)
    return Curve(label, mean, np.zeros(len(mean)), places=where, style=(figures.GREY, figures.DOTTED), guide=True)


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Lines with bands of one standard error, each named at its right end.

    Parameters
    ----------
    title, xlabel, ylabel, log_x, log_y
        Of the axes.
    lines
        What is drawn.
    marks
        Text → position of a thin vertical line, such as the paper's batch size.
    names
        Position → text of its tick, where a logarithmic axis has to show 0.
    measured
        Whether the measured places are marked, and the ticks put there.
    near
        Whether lines that end more than 5 % below the best policy, and an oracle that ends as far above it, are left
        out.
    """

    title: str
    xlabel: str
    ylabel: str
    lines: Sequence[Curve]
    log_x: bool = False
    log_y: bool = False
    marks: Mapping[str, float] = field(default_factory=dict[str, float])
    names: Mapping[float, str] = field(default_factory=dict[float, str])
    measured: bool = True
    near: bool = False

    @property
    def height(self) -> float:
        """One panel."""
        return figures.HEIGHT

    def _shown(self) -> list[Curve]:
        # A line without any value that its axis can hold has no end to put its label at.
        least = 0.0 if self.log_y else -np.inf
        shown = [one for one in self.lines if (np.isfinite(one.mean) & (one.mean > least)).any()]
        if not (self.near and shown):
            return shown
        best = max(one.mean[-1] for one in shown if one.label != "oracle")
        return [one for one in shown if abs(one.mean[-1] - best) <= NEAR * abs(best)]

    def draw(self, ax: "Axes") -> Sequence[Curve]:
        """Draw the lines and the marks."""
        shown = self._shown()
        ax.set(xlabel=self.xlabel, ylabel=self.ylabel, xscale="log" if self.log_x else "linear")
        ax.set_yscale("log" if self.log_y else "linear")
        _head(ax, self.title)
        figures.draw_curves(ax, shown, settle=0.3 if self.near else 0.0, marked=self.measured)
        if not shown:
            return ()
        places = np.unique(np.concatenate([one.x for one in shown]))
        ax.set_xlim(*figures.framed(places, self.log_x, 0.03))
        if self.measured:
            _measured_ticks(ax, {float(place): self.names.get(place, f"{place:,g}") for place in places})
        if self.log_y:
            _plain_decades(ax)
        for text, at in self.marks.items():
            ax.axvline(at, color=figures.GREY, linewidth=0.7, linestyle=figures.DOTTED, zorder=0.5)
            side = {"transform": ax.get_xaxis_transform(), "fontsize": SMALL_POINTS - 1, "color": figures.GREY}
            ax.text(at, 1.0, f" {text}", ha="left", va="top", **side)
        return shown


def _head(ax: "Axes", title: str) -> None:
    ax.set_title(title, fontsize=figures.TEXT_POINTS, color=figures.INK, loc="left")


def _measured_ticks(ax: "Axes", names: Mapping[float, str]) -> None:
    """Put named ticks at the measured places, except where a name would touch the previous one."""
    places = np.array(list(names))
    width = ax.get_window_extent().width * 72 / ax.figure.dpi
    low, high = ax.get_xlim()
    scaled = np.log(places / low) / np.log(high / low) if ax.get_xscale() == "log" else (places - low) / (high - low)
    kept: list[int] = []
    for i, name in enumerate(names.values()):
        need = (0.6 * figures.TEXT_POINTS * len(name) + 4) / max(width, 100.0)
        if not kept or scaled[i] - scaled[kept[-1]] >= need:
            kept.append(i)
    ax.set_xticks(places[kept], [list(names.values())[i] for i in kept])
    ax.set_xticks([], minor=True)


def _plain_decades(ax: "Axes") -> None:
    """Give a logarithmic vertical axis plain numbers; the more decades, the fewer ticks per decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis, (low, high) = ax.yaxis, ax.get_ylim()
    ticks = next(ticks for most, ticks in _TICKS if high < most * low)
    axis.set_major_locator(LogLocator(subs=ticks, numticks=9))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}" if 1e-4 <= value < 1e6 else f"{value:.0e}"))


Pair = tuple[Interval | None, Interval | None]
"""Intervals at the settings of the authors' code and with each method at its own best."""


@dataclass(frozen=True, kw_only=True)
class Dots:
    """Differences with their intervals, one row each: hollow at the settings of the authors' code, filled when tuned.

    Parameters
    ----------
    title, xlabel
        Of the axes.
    rows
        Label → the two intervals; either may be None.
    styles
        Label → name of the policy whose colour a row has, its own label by default.
    band
        Half width of a grey band around 0, within which differences are of no interest.
    reach
        Rows further than this from 0 are cut off at the edge, with their value written there.
    named
        Whether the rows are named at the left.
    """

    title: str
    xlabel: str
    rows: Mapping[str, Pair]
    styles: Mapping[str, str] = field(default_factory=dict[str, str])
    band: float = 0.0
    reach: float | None = None
    named: bool = True

    @property
    def height(self) -> float:
        """Grows with the rows."""
        return max(0.75 + 0.21 * len(self.rows), 1.6)

    def draw(self, ax: "Axes") -> Sequence[Curve]:
        """Draw every row."""
        ax.set(xlabel=self.xlabel, ylim=(len(self.rows) - 0.4, -0.6))
        ax.set_yticks(range(len(self.rows)), list(self.rows) if self.named else [""] * len(self.rows))
        ax.grid(axis="y", color=figures.FAINT, linewidth=0.5, linestyle=figures.DOTTED)
        _head(ax, self.title)
        ax.axvline(0.0, color=figures.INK, linewidth=0.6)
        if self.band:
            ax.axvspan(-self.band, self.band, color=figures.FAINT, alpha=0.45, linewidth=0, zorder=0.2)
        ends = [end for pair in self.rows.values() for one in pair if one is not None for end in (one.low, one.high)]
        limits = figures.framed(np.array([*ends, 0.0, -self.band, self.band]), False, 0.05)
        if self.reach is not None:
            limits = max(limits[0], -self.reach), min(limits[1], self.reach)
        ax.set_xlim(*limits)
        ax.locator_params(axis="x", nbins=6)
        for place, (label, pair) in enumerate(self.rows.items()):
            both = all(one is not None for one in pair)
            for one, filled in zip(pair, (False, True), strict=True):
                if one is not None:
                    colour = style_of(self.styles.get(label, label))[0]
                    _dot(ax, one, place + (0.17 if filled else -0.17) * both, colour, filled)
        return ()


def _dot(ax: "Axes", one: Interval, place: float, colour: str, filled: bool) -> None:
    low, high = ax.get_xlim()
    if np.isnan(one.estimate):
        return
    if not low <= one.estimate <= high:
        right = one.estimate > high
        text = typeset(f"{one.estimate:+.1f} ▸" if right else f"◂ {one.estimate:+.1f}")
        at = {"fontsize": SMALL_POINTS - 1, "color": colour, "va": "center"}
        ax.text(high if right else low, place, text, ha="right" if right else "left", **at)
        return
    if np.isfinite([one.low, one.high]).all():
        ax.plot(np.clip([one.low, one.high], low, high), [place] * 2, color=colour, linewidth=1.1)
    face = colour if filled else "white"
    ax.plot(one.estimate, place, "o", markersize=4, color=colour, markerfacecolor=face, markeredgewidth=0.9)


@dataclass(frozen=True, kw_only=True)
class Shaded:
    """A table of numbers (rows, columns) as shaded cells: blue above the centre and orange below; NaN is left empty."""

    title: str
    xlabel: str
    ylabel: str
    columns: Sequence[str]
    rows: Sequence[str]
    values: Floats
    spec: str = ".2f"
    centre: float = 0.0
    reach: float | None = None

    @property
    def height(self) -> float:
        """Grows with the rows."""
        return max(0.7 + 0.2 * len(self.rows), 1.5)

    def draw(self, ax: "Axes") -> Sequence[Curve]:
        """Draw the cells with their numbers."""
        known = self.values[np.isfinite(self.values)]
        reach = self.reach or 1.4 * float(np.abs(known - self.centre).max(initial=0.0)) or 1.0
        scale: dict[str, Any] = {"cmap": "PuOr", "vmin": self.centre - reach, "vmax": self.centre + reach}
        ax.grid(visible=False)
        image = ax.imshow(self.values, aspect="auto", **scale)
        light = image.to_rgba(self.values)[..., :3] @ (0.3, 0.6, 0.1)
        ax.set_xticks(range(len(self.columns)), self.columns)
        ax.set_yticks(range(len(self.rows)), self.rows)
        ax.set(xlabel=self.xlabel, ylabel=self.ylabel)
        _head(ax, self.title)
        for (row, column), value in np.ndenumerate(self.values):
            if np.isfinite(value):
                ink = figures.INK if light[row, column] > 0.5 else "white"
                text = typeset(f"{value:{self.spec}}")
                ax.text(column, row, text, ha="center", va="center", color=ink, fontsize=SMALL_POINTS - 0.5)
        return ()

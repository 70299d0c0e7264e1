"""Panels side by side: lines that are no policies, in a palette of their own, and tables drawn as shaded cells."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from spuir.base.records import Floats
from spuir.results import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = (figures.BLUE, figures.VERMILLION, figures.GREEN, figures.PINK, figures.ORANGE, figures.WINE)
DASHES = (figures.SOLID, figures.DASHED, figures.MIXED, figures.DOTTED)
"""Colour and dashes change together, so that lines differ without colour too."""
_TICKS = ((40, (1.0, 2.0, 5.0)), (500, (1.0, 3.0)), (np.inf, (1.0,)))
"""Ratio of the ends of a logarithmic axis → ticks of each decade."""
LABEL_POINTS = figures.TEXT_POINTS - 0.5


@dataclass(frozen=True)
class Line:
    """One labelled line over ``x``, with a band of ``error`` each way where one is given.

    ``rank`` chooses colour and dashes, ``policy`` those of a policy instead; neither makes a grey guide.
    """

    label: str
    x: Sequence[float]
    mean: Sequence[float]
    error: Sequence[float] | None = None
    rank: int | None = None
    policy: str | None = None

    @property
    def style(self) -> tuple[str, Any]:
        """Colour and dashes."""
        if self.policy is not None:
            return figures.style_of(self.policy)
        if self.rank is None:
            return figures.GREY, figures.DOTTED
        return PALETTE[self.rank % len(PALETTE)], DASHES[self.rank % len(DASHES)]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel: its lines and its axes; ``ticks`` names the places of an axis that is no scale."""

    title: str
    xlabel: str
    ylabel: str
    lines: Sequence[Line]
    log_x: bool = False
    log_y: bool = False
    ticks: Sequence[str] | None = None


def side_by_side(panels: Sequence[Panel]) -> "Figure":
    """Draw panels of lines beside each other, every line named at its right end."""
    figure, axes = figures.new_figure(len(panels))
    for ax, panel in zip(axes, panels, strict=True):
        ax.set(xlabel=panel.xlabel, ylabel=panel.ylabel)
        banded = any(line.error is not None for line in panel.lines)
        title = f"{panel.title} (± standard error)" if banded else panel.title
        ax.set_title(title, fontsize=figures.TEXT_POINTS, color=figures.INK, loc="left")
        for line in panel.lines:
            _draw(ax, line)
        for logarithmic, name in ((panel.log_x, "x"), (panel.log_y, "y")):
            if logarithmic:
                _plain_decades(ax, name)
        measured = sorted({value for line in panel.lines for value in line.x})
        if panel.log_x and len(measured) <= 5:
            ax.set_xticks(measured, [f"{value:,g}" for value in measured])
        if panel.ticks is not None:
            ax.set_xticks(range(len(panel.ticks)), panel.ticks)
    figure.draw_without_rendering()
    for ax, panel in zip(axes, panels, strict=True):
        _name_ends(ax, panel.lines)
    # Labels widen the margin. Without a fixed layout, every drawing would move the axes a little further.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def _plain_decades(ax: "Axes", name: str) -> None:
    """Make an axis logarithmic, with plain numbers at its ticks, the fewer of a decade the more decades there are."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    ax.set(**{f"{name}scale": "log"})
    axis = ax.xaxis if name == "x" else ax.yaxis
    low, high = ax.get_xlim() if name == "x" else ax.get_ylim()
    ticks = next(ticks for most, ticks in _TICKS if high < most * low)
    axis.set_major_locator(LogLocator(subs=ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}" if 1e-4 <= value < 1e6 else f"{value:.0e}"))


def _draw(ax: "Axes", line: Line) -> None:
    colour, dashes = line.style
    x, mean = np.asarray(line.x, dtype=np.float64), np.asarray(line.mean, dtype=np.float64)
    guide = line.rank is None and line.policy is None
    if line.error is not None:
        error = np.nan_to_num(np.asarray(line.error, dtype=np.float64))
        ax.fill_between(x, mean - error, mean + error, color=colour, alpha=0.18, linewidth=0)
    marks = {} if guide else {"marker": "o", "markersize": 2.6}
    ax.plot(x, mean, color=colour, linestyle=dashes, linewidth=0.8 if guide else 1.1, **marks)


def _name_ends(ax: "Axes", lines: Sequence[Line]) -> None:
    """Write every label to the right of its line's last point, moved apart where lines end close together."""
    points = ax.get_window_extent().height * 72 / ax.figure.dpi
    to_axes = ax.transAxes.inverted()
    ends = [to_axes.transform(ax.transData.transform((line.x[-1], line.mean[-1]))) for line in lines]
    heights = np.nan_to_num(np.array([end[1] for end in ends])) * points
    places = figures.keep_apart(np.clip(heights, 0, points), figures.LABEL_PITCH, points) / points
    for line, end, place in zip(lines, ends, places, strict=True):
        colour, dashes = line.style
        inside: dict[str, Any] = {"transform": ax.transAxes, "clip_on": False}
        ax.plot([end[0], 1.04, 1.09], [end[1], place, place], color=colour, linestyle=dashes, linewidth=0.8, **inside)
        ax.text(1.11, place, line.label, fontsize=LABEL_POINTS, color=figures.INK, va="center", **inside)


@dataclass(frozen=True, kw_only=True)
class Cells:
    """A table of numbers (rows, columns) drawn as shaded cells with the numbers in them; NaN is left empty."""

    title: str
    xlabel: str
    ylabel: str
    columns: Sequence[str]
    rows: Sequence[str]
    values: Floats
    spec: str = ".3f"
    centre: float | None = None


def shaded(tables: Sequence[Cells]) -> "Figure":
    """Draw tables of cells beside each other: darker is larger, or blue below and orange above a centre."""
    figure, axes = figures.new_figure(len(tables))
    for ax, cells in zip(axes, tables, strict=True):
        ax.grid(visible=False)
        image = ax.imshow(cells.values, aspect="auto", origin="lower", **_scale(cells))
        light = image.to_rgba(cells.values)[..., :3] @ (0.3, 0.6, 0.1)
        ax.set_xticks(range(len(cells.columns)), cells.columns)
        ax.set_yticks(range(len(cells.rows)), cells.rows)
        ax.set(xlabel=cells.xlabel, ylabel=cells.ylabel)
        ax.set_title(cells.title, fontsize=figures.TEXT_POINTS, color=figures.INK, loc="left")
        for (row, column), value in np.ndenumerate(cells.values):
            if np.isfinite(value):
                ink = figures.INK if light[row, column] > 0.5 else "white"
                text = f"{value:{cells.spec}}"
                ax.text(column, row, text, ha="center", va="center", color=ink, fontsize=LABEL_POINTS)
    return figure


def _scale(cells: Cells) -> dict[str, Any]:
    """Return the colours of a table: one hue that darkens, or two that part at the centre."""
    known = cells.values[np.isfinite(cells.values)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    if cells.centre is None:
        return {"cmap": "Blues", "vmin": low, "vmax": low + 1.3 * (high - low) or 1.0}
    reach = 1.4 * max(high - cells.centre, cells.centre - low) or 1.0
    return {"cmap": "PuOr_r", "vmin": cells.centre - reach, "vmax": cells.centre + reach}

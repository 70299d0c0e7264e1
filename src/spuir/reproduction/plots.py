"""The figures that several experiments draw, in the style of :mod:`spuir.results.figures`.

There are five kinds: values over episodes, panels of lines side by side, rankings and comparisons as dots with their
intervals, and tables as shaded cells.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from spuir.base.records import Floats
from spuir.reproduction.tasks import Result
from spuir.reproduction.verdicts import Interval, summary
from spuir.results import figures
from spuir.results.figures import TUNED, Curve, Style, style_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = (figures.BLUE, figures.VERMILLION, figures.GREEN, figures.PINK, figures.ORANGE, figures.WINE)
DASHES = (figures.SOLID, figures.DASHED, figures.MIXED, figures.DOTTED)
"""Colour and dashes change together, so that lines differ without colour too."""
_TICKS = ((40, (1.0, 2.0, 5.0)), (500, (1.0, 3.0)), (np.inf, (1.0,)))
"""Ratio of the ends of a logarithmic axis → ticks of each decade."""
LABEL_POINTS = figures.TEXT_POINTS - 0.5


def over_episodes(
    groups: Mapping[str, Sequence[Result]],
    levels: Mapping[str, float] | None = None,
    styles: Mapping[str, Style] | None = None,
) -> "Figure":
    """Draw the running average reward: one line per label, with a band of one standard error over its results.

    A second panel shows only the lines that end within 5 % of the best, as in the paper. ``levels`` are constants to
    compare with: "uniform", "best fixed", "oracle". ``styles`` replace the labels' own. Empty groups are left out.
    """
    drawn: list[Curve] = []
    for label, results in groups.items():
        if results:
            values = np.array([[row["average_reward"] for row in result.rows] for result in results], dtype=np.float64)
            episodes = np.array([row["episode"] for row in results[0].rows], dtype=np.float64)
            curve = figures.curve_of(label, values, episodes)
            drawn.append(replace(curve, style=(styles or {}).get(label)))
    return figures.running(drawn, zoom=0.05, levels=levels)


def line(
    label: str,
    x: Sequence[float],
    samples: Iterable[Iterable[float]],
    *,
    rank: int | None = None,
    policy: str | None = None,
) -> Curve:
    """Return the line of the means of ``samples``, one sample over the seeds at each ``x``; NaN where one is empty.

    Its colour and dashes are those of ``policy`` (by default the one that the label names) or, given a ``rank``, of the
    palette.
    """
    values = [list(sample) for sample in samples]
    means, errors = zip(*(summary(sample) for sample in values), strict=True)
    style = style_of(policy or label) if rank is None else (PALETTE[rank % len(PALETTE)], DASHES[rank % len(DASHES)])
    seeds = max(len(sample) for sample in values)
    return Curve(label, np.array(means), np.array(errors), seeds, np.array(x, dtype=np.float64), style)


def guide(label: str, x: Sequence[float], values: Sequence[float]) -> Curve:
    """Return a grey dotted line to compare with."""
    where, mean = np.array(x, dtype=np.float64), np.array(values, dtype=np.float64)
    return Curve(label, mean, np.zeros(len(mean)), places=where, style=(figures.GREY, figures.DOTTED), guide=True)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A panel of lines. Without a title it states the number of seeds; ``ticks`` name the places 0, 1, 2 and so on."""

    xlabel: str
    ylabel: str
    lines: Sequence[Curve]
    title: str = ""
    log_x: bool = False
    log_y: bool = False
    ticks: Sequence[str] | None = None


def side_by_side(panels: Sequence[Panel]) -> "Figure":
    """Draw panels of lines side by side, every line labelled at its right end."""
    figure, axes = figures.new_figure(len(panels))
    drawn: dict[Axes, list[Curve]] = {}
    for ax, panel in zip(axes, panels, strict=True):
        # A line without any value that its axis can hold has no end to put its label at.
        least = 0.0 if panel.log_y else -np.inf
        drawn[ax] = [one for one in panel.lines if (np.isfinite(one.mean) & (one.mean > least)).any()]
        ax.set(xlabel=panel.xlabel, ylabel=panel.ylabel, xscale="log" if panel.log_x else "linear")
        ax.set_yscale("log" if panel.log_y else "linear")
        banded = any(np.nan_to_num(one.error).any() for one in drawn[ax])
        title = f"{panel.title} (± standard error)" if panel.title and banded else panel.title
        title = title or figures.seeds_note([one for one in drawn[ax] if not one.guide])
        ax.set_title(title, fontsize=figures.TEXT_POINTS, color=figures.INK, loc="left")
        figures.draw_curves(ax, drawn[ax], marked=True)
        if panel.log_y:
            _plain_decades(ax, "y")
        _mark_measured(figure, ax, panel)
    figures.label_ends(figure, {ax: some for ax, some in drawn.items() if some})
    return figure


def _mark_measured(figure: "Figure", ax: "Axes", panel: Panel) -> None:
    """Put ticks at the measured places as plain numbers, except where a tick label would touch the previous one."""
    if panel.ticks is not None:
        ax.set_xticks(range(len(panel.ticks)), panel.ticks)
        return
    places = np.unique(np.concatenate([one.x for one in panel.lines]))
    low, high = figures.framed(places, panel.log_x, 0.03)
    ax.set_xlim(low, high)
    figure.draw_without_rendering()
    points = ax.transData.transform([(place, ax.get_ylim()[0]) for place in places])[:, 0] * 72 / figure.dpi
    kept: list[int] = []
    for i, point in enumerate(points):
        width = 0.6 * figures.TEXT_POINTS * len(f"{places[i]:,g}") + 4
        if not kept or point - points[kept[-1]] >= width:
            kept.append(i)
    ax.set_xticks(places[kept], [f"{place:,g}" for place in places[kept]])
    ax.set_xticks([], minor=True)


def _plain_decades(ax: "Axes", name: str) -> None:
    """Give a logarithmic axis plain numbers; the more decades, the fewer ticks per decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis = ax.xaxis if name == "x" else ax.yaxis
    low, high = ax.get_xlim() if name == "x" else ax.get_ylim()
    ticks = next(ticks for most, ticks in _TICKS if high < most * low)
    axis.set_major_locator(LogLocator(subs=ticks, numticks=9))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}" if 1e-4 <= value < 1e6 else f"{value:.0e}"))


def dots(
    estimates: Mapping[str, Interval],
    xlabel: str,
    *,
    log_x: bool = False,
    smaller_is_better: bool = False,
    key: bool = True,
    zoom: float | None = None,
) -> "Figure":
    """Draw a ranking, one row per policy, the best on top: each value with its interval, hollow unless tuned.

    ``key`` explains the two markers above the rows. With ``zoom``, values that are smaller than the largest by more
    than this share are written as text; so are values that a logarithmic axis cannot hold.
    """
    sign = 1 if smaller_is_better else -1
    best: dict[str, float] = {}
    for label, value in estimates.items():
        row = label.removesuffix(TUNED)
        best[row] = min(best.get(row, np.inf), sign * value.estimate)
    rows = sorted(best, key=lambda row: best[row])
    figure, (ax,) = figures.new_figure(1)
    figure.set_size_inches(figures.COLUMN, 0.75 + 0.19 * len(rows))
    ax.set(xlabel=xlabel, xscale="log" if log_x else "linear", ylim=(len(rows) - 0.4, -0.6))
    ax.set_yticks(range(len(rows)), rows)
    ax.grid(axis="y", color=figures.FAINT, linewidth=0.5, linestyle=figures.DOTTED)
    title = "○ the authors' setting   ● its own best" if key else ""
    ax.set_title(title, fontsize=figures.TEXT_POINTS, color=figures.INK, loc="left")
    floor = _lowest_drawn(list(estimates.values()), log_x, zoom)
    # On a logarithmic axis the low ends of wide intervals would take all the room.
    ends = [end for one in estimates.values() for end in (one.estimate, one.high, *(() if log_x else (one.low,)))]
    low, high = figures.framed(np.array([end for end in ends if end >= floor]), log_x, 0.04)
    ax.set_xlim(low, high)
    if log_x:
        _plain_decades(ax, "x")
    for label, value in estimates.items():
        tuned = label.endswith(TUNED)
        place = rows.index(label.removesuffix(TUNED)) + (0.16 if tuned else -0.16) * key
        colour, _ = style_of(label)
        if value.estimate < floor:
            text = f"◂ {value.estimate:.4g}"
            ax.text(low, place, text, fontsize=figures.TEXT_POINTS - 1, color=colour, va="center")
            continue
        ax.plot(np.clip([value.low, value.high], low, high), [place] * 2, color=colour, linewidth=1.1)
        ax.plot(value.estimate, place, "o", markersize=4, color=colour, markerfacecolor=colour if tuned else "white")
    return figure


def forest(panels: Mapping[str, Mapping[str, Interval]], xlabel: str, margin: float) -> "Figure":
    """Draw one estimate with its interval per row, panels side by side with the same rows, in the order of the first.

    The dotted line is the margin. An interval that reaches below it is drawn hollow.
    """
    rows = list(next(iter(panels.values())))
    figure, axes = figures.new_figure(len(panels))
    figure.set_size_inches(figures.COLUMN * len(panels), 0.8 + 0.19 * len(rows))
    for ax, (title, intervals) in zip(axes, panels.items(), strict=True):
        ax.set(xlabel=xlabel, ylim=(len(rows) - 0.4, -0.6))
        ax.set_yticks(range(len(rows)), rows if ax is axes[0] else [""] * len(rows))
        ax.locator_params(axis="x", nbins=6)
        ax.grid(axis="y", color=figures.FAINT, linewidth=0.5, linestyle=figures.DOTTED)
        ax.set_title(title, fontsize=figures.TEXT_POINTS, color=figures.INK, loc="left")
        ax.axvline(0.0, color=figures.INK, linewidth=0.6)
        ax.axvline(margin, color=figures.GREY, linewidth=0.8, linestyle=figures.DOTTED)
        for row, value in intervals.items():
            place, inside = rows.index(row), value.low >= margin
            colour = figures.BLUE if inside else figures.VERMILLION
            if np.isfinite([value.low, value.high]).all():
                ax.plot([value.low, value.high], [place] * 2, color=colour, linewidth=1.1)
            ax.plot(
                value.estimate, place, "o", markersize=4, color=colour, markerfacecolor=colour if inside else "white"
            )
    return figure


def _lowest_drawn(values: Sequence[Interval], log_x: bool, zoom: float | None) -> float:
    """Return the lowest value that is drawn at its place."""
    largest = max(value.estimate for value in values)
    floor = -np.inf if zoom is None else largest - zoom * abs(largest)
    return max(floor, np.finfo(np.float64).tiny) if log_x else floor


@dataclass(frozen=True, kw_only=True)
class ShadedTable:
    """A table of numbers (rows, columns) drawn as shaded cells with the numbers in them; NaN is left empty."""

    title: str
    xlabel: str
    ylabel: str
    columns: Sequence[str]
    rows: Sequence[str]
    values: Floats
    spec: str = ".3f"
    centre: float | None = None


def shaded(tables: Sequence[ShadedTable]) -> "Figure":
    """Draw tables of cells side by side: darker is larger, or blue below and orange above a centre."""
    figure, axes = figures.new_figure(len(tables))
    for ax, table in zip(axes, tables, strict=True):
        ax.grid(visible=False)
        image = ax.imshow(table.values, aspect="auto", origin="lower", **_colour_scale(table))
        light = image.to_rgba(table.values)[..., :3] @ (0.3, 0.6, 0.1)
        ax.set_xticks(range(len(table.columns)), table.columns)
        ax.set_yticks(range(len(table.rows)), table.rows)
        ax.set(xlabel=table.xlabel, ylabel=table.ylabel)
        ax.set_title(table.title, fontsize=figures.TEXT_POINTS, color=figures.INK, loc="left")
        for (row, column), value in np.ndenumerate(table.values):
            if np.isfinite(value):
                ink = figures.INK if light[row, column] > 0.5 else "white"
                text = f"{value:{table.spec}}"
                ax.text(column, row, text, ha="center", va="center", color=ink, fontsize=LABEL_POINTS)
    return figure


def _colour_scale(table: ShadedTable) -> dict[str, Any]:
    """Return the colours of a table: one hue that darkens, or two hues on the sides of the centre."""
    known = table.values[np.isfinite(table.values)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    if table.centre is None:
        return {"cmap": "Blues", "vmin": low, "vmax": low + 1.3 * (high - low) or 1.0}
    reach = 1.4 * max(high - table.centre, table.centre - low) or 1.0
    return {"cmap": "PuOr_r", "vmin": table.centre - reach, "vmax": table.centre + reach}

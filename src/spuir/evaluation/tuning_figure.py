"""A figure of a tuning: what the winner earns beside the alternatives, and what exploring costs while learning."""

from typing import TYPE_CHECKING, Any

from spuir.results.figures import (
    BLUE,
    COLUMN,
    FAINT,
    GREY,
    HEIGHT,
    INK,
    LONG,
    ORANGE,
    TEXT_POINTS,
    VERMILLION,
    new_figure,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from spuir.evaluation.tuning_result import Tuning

LONGEST = 30
"""Longest text beside a line."""


def draw_tuning(tuning: "Tuning") -> "Figure":
    """Draw the values on the last episodes with their intervals, and the reward while learning by α and floor."""
    figure, (left, right) = new_figure(2)
    figure.set_size_inches(2.4 * COLUMN, HEIGHT)
    _draw_values(left, tuning)
    _draw_exploring(right, tuning)
    return figure


def _draw_values(ax: Any, tuning: "Tuning") -> None:
    lines: list[tuple[str, Any, Any, Any]] = [("winner", tuning.value, tuning.low, tuning.high)]
    lines += [(one.name, one.value, one.low, one.high) for one in tuning.comparisons]
    if tuning.value is None:
        ax.text(0.5, 0.5, "no support", transform=ax.transAxes, fontsize=TEXT_POINTS, ha="center", color=INK)
        lines = []
    for at, (name, value, low, high) in enumerate(lines):
        colour = VERMILLION if name == "winner" else GREY
        ax.plot([low, high], [at, at], color=colour, linewidth=1.4, solid_capstyle="butt")
        ax.plot([value], [at], "o", color=colour, markersize=4)
    if tuning.comparisons:
        ax.axvline(tuning.comparisons[0].value, color=INK, linewidth=0.6, linestyle=LONG)
    names = [name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…" for name, *_ in lines]
    ax.set_yticks(range(len(names)), names, fontsize=TEXT_POINTS)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.grid(visible=False, axis="y")
    ax.grid(axis="x", color=FAINT, linewidth=0.5)
    ax.set_xlabel("reward per decision in the last episodes, 95 % interval")


def _draw_exploring(ax: Any, tuning: "Tuning") -> None:
    """Draw how far each setting is behind the best with the same seeds, one line per floor, over α if there is one."""
    shown = [one for one in tuning.explored if one.setting.batch_size == tuning.batch_size]
    most = max(one.seeds for one in shown)
    for colour, floor in zip((BLUE, ORANGE, VERMILLION), sorted({one.setting.floor for one in shown}), strict=False):
        line = sorted((one for one in shown if one.setting.floor == floor), key=lambda one: one.setting.alpha or 0.0)
        places, gaps = [one.setting.alpha or 0.0 for one in line], [-one.behind for one in line]
        ax.plot(places, gaps, color=colour, linewidth=0.6, label=f"floor {floor:.3g}")
        for one, place in zip(line, places, strict=True):
            fill = colour if one.seeds == most else "white"
            look = {"markersize": 3, "markerfacecolor": fill, "markeredgewidth": 0.9, "elinewidth": 0.9}
            ax.errorbar([place], [-one.behind], yerr=[one.standard_error], fmt="o", color=colour, **look)
    ax.set_xlabel("α")
    ax.set_ylabel(f"reward while learning ({tuning.how}),\nrelative to the best ± standard error")
    few = min(one.seeds for one in shown)
    note = "" if few == most else f"filled: {most} seeds, open: {few}"
    ax.legend(fontsize=TEXT_POINTS, frameon=False, title=note, title_fontsize=TEXT_POINTS)

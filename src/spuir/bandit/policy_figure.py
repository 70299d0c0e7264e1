"""A figure of what a policy learned: rewards per action, its action mix, and its strongest coefficients."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from spuir.errors import ParameterError
from spuir.results.figures import BLUE, FAINT, GREY, INK, TEXT_POINTS, VERMILLION, name_lines, new_figure, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINES = 10
"""Most lines of a panel, and most coefficients that are called strong."""
LONGEST = 34
"""Longest text beside a line."""


class Bar(NamedTuple):
    """One line of a panel: its text, its value, and the standard error of the value, NaN if it is not known."""

    text: str
    value: float
    error: float = float("nan")


def draw_policy(rewards: Sequence[Bar], shares: Sequence[Bar], coefficients: Sequence[Bar]) -> "Figure":
    """Draw a panel for each list that is not empty.

    Parameters
    ----------
    rewards
        Mean reward of each action in the log, with its standard error.
    shares
        Mean probability of each action under the policy.
    coefficients
        Coefficients of the policy in standard errors, so that columns of any unit compare; strongest first.
    """
    panels = [
        ("mean reward in the log ± standard error", rewards, _dots, GREY),
        ("action mix of this policy", shares, _bars, VERMILLION),
        ("strongest coefficients, in standard errors", coefficients, _dots, BLUE),
    ]
    shown = [panel for panel in panels if panel[1]]
    if not shown:
        rule = "it has no coefficients and has learned no rewards"
        raise ParameterError("plot", "nothing to draw", rule, "pass contexts X to see its action mix")
    figure, axes = new_figure(len(shown))
    for ax, (title, bars, draw, colour) in zip(axes, shown, strict=True):
        _prepare(ax, title, bars[:LINES])
        draw(ax, bars[:LINES], colour)
    return figure


def _prepare(ax: "Axes", title: str, bars: Sequence[Bar]) -> None:
    """Name the lines of a panel, the first on top."""
    ax.set_title(title, fontsize=TEXT_POINTS, color=INK, loc="left")
    name_lines(ax, [shortened(bar.text, LONGEST) for bar in bars])
    ax.grid(axis="x", color=FAINT, linewidth=0.5)


def _dots(ax: "Axes", bars: Sequence[Bar], colour: str) -> None:
    errors = [bar.error if bar.error == bar.error else 0.0 for bar in bars]
    ax.errorbar(
        [bar.value for bar in bars],
        range(len(bars)),
        xerr=errors,
        fmt="o",
        color=colour,
        markersize=3.5,
        elinewidth=1.0,
    )
    if min(bar.value for bar in bars) < 0 < max(bar.value for bar in bars):
        ax.axvline(0, color=INK, linewidth=0.6)


def _bars(ax: "Axes", bars: Sequence[Bar], colour: str) -> None:
    ax.barh(range(len(bars)), [bar.value for bar in bars], color=colour, height=0.6)
    ax.set_xlim(0, 1)

"""What a tuning found: the winner, what it gains over the alternatives, and plain sentences about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from spuir.bandit import Bandit
from spuir.base.counting import counted
from spuir.base.data_frame import data_frame
from spuir.base.parameters import parameters_of
from spuir.evaluation.block_sums import Estimate
from spuir.evaluation.candidates import BASELINE, Candidate, Scored
from spuir.evaluation.exploration import Explored, finished_settings
from spuir.evaluation.held_out import relative
from spuir.evaluation.intervals import BETTER, REFUSED, WORSE, interval, verdict
from spuir.evaluation.support import WEAK, Support, advice
from spuir.policies import Policy
from spuir.results import figures
from spuir.training import Training

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVEL = 0.95
"""Level of all intervals."""
LONGEST = 30
"""Longest text beside a line of the figure."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The winner against one alternative, on episodes that nothing was chosen on.

    ``value`` is what the alternative earns per decision, with its interval ``low`` to ``high``; ``difference`` is the
    winner minus the alternative, paired row by row, and ``gain`` the same relative to the alternative, None where that
    is not clearly above 0. ``verdict`` on the winner is that of an evaluation: better, worse, not distinguishable, or
    refused where the rows do not support the alternative, which then has no numbers. ``support`` is that of the
    alternative, "observed" for the log, and ``reasons`` say why it is not good.
    """

    name: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    verdict: str
    support: str = "observed"
    reasons: tuple[str, ...] = ()

    @property
    def shown(self) -> bool:
        """Whether the log shows that the winner is better."""
        return self.verdict == BETTER

    def in_words(self) -> str:
        """Return the gain with its interval."""
        if self.difference is None:
            return "not known"
        if self.gain is None or self.gain_low is None or self.gain_high is None:
            return f"{self.difference:.3g} per decision ({self.difference_low:.3g} to {self.difference_high:.3g})"
        return f"{100 * self.gain:.1f} % ({100 * self.gain_low:.1f} to {100 * self.gain_high:.1f})"


def compared(
    name: str, own: Estimate, other: Estimate, supports: tuple[Support | None, Support | None] = (None, None)
) -> Comparison:
    """Return a policy against another, as estimated on the same rows, with the supports of both."""
    paired, support = own.minus(other), supports[1]
    known: dict[str, Any] = {"name": name, "verdict": verdict(paired, supports, LEVEL)}
    if support is not None:
        known |= {"support": support.verdict, "reasons": support.reasons}
    if known["verdict"] == REFUSED:
        return Comparison(**known)
    found = relative(own, other)
    if found is not None:
        middle, around = found
        ends = interval(around, LEVEL)
        known |= {"gain": middle, "gain_low": middle + ends.low, "gain_high": middle + ends.high}
    alone, ends = interval(other, LEVEL), interval(paired, LEVEL)
    return Comparison(
        **known,
        value=other.value,
        low=alone.low,
        high=alone.high,
        difference=paired.value,
        difference_low=ends.low,
        difference_high=ends.high,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Tuning:
    """The result of :func:`tune`.

    Parameters
    ----------
    candidate, policy, batch_size
        The winner, its policy with all parameters, and the batch size that α and the floor were chosen for.
    scores
        Values of all candidates in all rounds, the last round first, its best first.
    explored
        Settings of α, the floor and the batch size, best first, and ``how`` they were compared.
    value, low, high
        What the winner earns per decision on the last episodes, with its interval; None without support.
    comparisons
        The winner against the policy that logged, the best single action and a tuned SBUCB; empty without support.
    support
        Whether the last episodes can tell what the winner earns.
    training
        The winner trained on the whole log, with its bandit.
    rows
        Rows that were used to learn, to compare and for the final comparison.
    """

    candidate: Candidate
    policy: Policy
    batch_size: int
    scores: tuple[Scored, ...]
    explored: tuple[Explored, ...]
    how: str
    value: float | None
    low: float | None
    high: float | None
    comparisons: tuple[Comparison, ...]
    support: Support
    training: Training
    rows: tuple[int, int, int]
    notices: tuple[str, ...]
    seconds: float
    resumed: int

    @property
    def bandit(self) -> Bandit:
        """The trained winner, ready to decide on raw rows."""
        return self.training.bandit

    @property
    def sentences(self) -> list[str]:
        """The answer in plain sentences."""
        return _sentences(self)

    def to_frame(self) -> Any:
        """Return the scores as a DataFrame, one row per candidate and round."""
        return data_frame(self.score_rows(), "to_frame")

    def score_rows(self) -> list[dict[str, Any]]:
        """Return the scores as records."""
        return [
            {
                "policy": one.candidate.policy,
                **dict(one.candidate.parameters),
                "share": one.share,
                "value": one.value,
                "standard_error": one.standard_error,
            }
            for one in self.scores
        ]

    def exploring_rows(self) -> list[dict[str, Any]]:
        """Return what was compared while learning as records: α, floor, batch size, reward."""
        numbers = ("value", "behind", "standard_error", "seeds")
        return [one.setting._asdict() | {name: getattr(one, name) for name in numbers} for one in self.explored]

    def plot(self, path: str | PathLike[str] | None = None) -> "Figure":
        """Draw what the winner earns beside the alternatives, and what exploring costs while learning.

        The figure is saved as PNG and SVG beside ``path`` if one is given.
        """
        figure, (left, right) = figures.new_figure(2)
        figure.set_size_inches(2.4 * figures.COLUMN, figures.HEIGHT)
        _draw_values(left, self)
        _draw_exploring(right, self)
        if path is not None:
            figures.save(figure, fspath(path))
        return figure

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the bandit as JSON-ready data."""
        return {
            "winner": {
                "policy": self.candidate.policy,
                "parameters": parameters_of(self.policy),
                "batch_size": self.batch_size,
            },
            "value": {"estimate": self.value, "low": self.low, "high": self.high},
            "comparisons": [vars(one) for one in self.comparisons],
            "support": self.support.to_dict(),
            "learning": {
                "how": self.how,
                "settings": self.exploring_rows(),
            },
            "candidates": self.score_rows(),
            "rows": dict(zip(("learn", "compare", "final"), self.rows, strict=True)),
            "sentences": self.sentences,
            "notices": list(self.notices),
            "seconds": self.seconds,
            "resumed": self.resumed,
        }


def _sentences(tuning: Tuning) -> list[str]:
    exploring = ", ".join(f"{name}={value:.3g}" for name, value in _exploring(tuning).items())
    winner = f"The winner is {tuning.candidate} with {exploring}, learning from batches of {tuning.batch_size:,}."
    explores = tuning.policy.floor != 0 or "sampling" in tuning.policy.traits
    blind = [] if explores else [_without_floor(tuning.explored)]
    if tuning.value is None:
        reasons = "; ".join(tuning.support.reasons)
        remedy = advice(len(tuning.bandit.actions_))
        return [winner, f"The last episodes cannot tell what it earns: {reasons}. To find out, {remedy}.", *blind]
    logged, *others = tuning.comparisons
    gain = (
        "The gain over your current policy is" if logged.shown else "No gain over your current policy is shown: it is"
    )
    weak = ", with weak support" if tuning.support.verdict == WEAK else ""
    lines = [
        f"{gain} {logged.in_words()}{weak}.",
        f"The winner earns {tuning.value:.4g} per decision ({tuning.low:.4g} to {tuning.high:.4g}) in the last "
        f"{counted(tuning.rows[2], 'row')}, which nothing was chosen on; the log earned {logged.value:.4g}.",
    ]
    lines += [_against(other) for other in others]
    if tuning.candidate.policy == BASELINE:
        lines.append("The winner is itself a tuned SBUCB.")
    if tuning.support.verdict == WEAK:
        reasons = "; ".join(tuning.support.reasons)
        lines.append(f"The support is weak, and verdicts need a wider interval: {reasons}.")
    return [winner, *lines, *blind]


def _without_floor(explored: Sequence[Explored]) -> str:
    """Say what a policy without a floor costs later, and which option accepts the cheapest floor."""
    said = "With floor=0 its decisions have propensity 1, and no other policy can be evaluated on their log"
    best, *finished = finished_settings(explored)
    floors = [one for one in finished if one.setting.floor > 0]
    if not floors or floors[0].behind >= abs(best.value):
        return f"{said}."
    cost = floors[0].behind / abs(best.value)
    accepted = min(ceil(100 * cost + 0.01) / 100, 1.0)  # a little more than it cost
    return (
        f"{said}; floor={floors[0].setting.floor:.3g} cost {cost:.1%} of the reward, "
        f"and floor_cost={accepted:g} (--floor-cost {accepted:g}) accepts it."
    )


def _against(other: Comparison) -> str:
    reasons = "; ".join(other.reasons)
    if other.value is None:
        return f"Against {other.name} there is no verdict: the last episodes cannot tell what that earns ({reasons})."
    named = f"{other.name} ({other.value:.4g})"
    if other.difference == other.difference_low == other.difference_high == 0:
        return f"Against {named} there is no difference: both decide alike."
    if other.shown:
        return f"Against {named} it is better by {other.in_words()}."
    if other.verdict == WORSE:
        return f"Against {named} it is worse: {other.in_words()}."
    weak = f"; the support of the other is weak: {reasons}" if other.support == WEAK else ""
    return f"Against {named} it is not distinguishable: {other.in_words()}{weak}."


def _exploring(tuning: Tuning) -> dict[str, Any]:
    policy: Any = tuning.policy
    found = {"alpha": getattr(policy, "alpha", None), "floor": policy.floor}
    return {name: value for name, value in found.items() if value is not None}


def _draw_values(ax: Any, tuning: Tuning) -> None:
    lines: list[tuple[str, Any, Any, Any]] = [("winner", tuning.value, tuning.low, tuning.high)]
    lines += [(one.name, one.value, one.low, one.high) for one in tuning.comparisons if one.value is not None]
    if tuning.value is None:
        ax.text(
            0.5, 0.5, "no support", transform=ax.transAxes, fontsize=figures.TEXT_POINTS, ha="center", color=figures.INK
        )
        lines = []
    for at, (name, value, low, high) in enumerate(lines):
        colour = figures.VERMILLION if name == "winner" else figures.GREY
        ax.plot([low, high], [at, at], color=colour, linewidth=1.4, solid_capstyle="butt")
        ax.plot([value], [at], "o", color=colour, markersize=4)
    if tuning.comparisons:
        ax.axvline(tuning.comparisons[0].value, color=figures.INK, linewidth=0.6, linestyle=figures.LONG)
    figures.name_lines(ax, [figures.shortened(name, LONGEST) for name, *_ in lines])
    ax.grid(axis="x", color=figures.FAINT, linewidth=0.5)
    ax.set_xlabel("reward per decision in the last episodes, 95 % interval")


def _draw_exploring(ax: Any, tuning: Tuning) -> None:
    """Draw how far each setting is behind the best with the same seeds, one line per floor, over α if there is one."""
    shown = [one for one in tuning.explored if one.setting.batch_size == tuning.batch_size]
    most = max(one.seeds for one in shown)
    for colour, floor in zip(
        (figures.BLUE, figures.ORANGE, figures.VERMILLION), sorted({one.setting.floor for one in shown}), strict=False
    ):
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
    ax.legend(fontsize=figures.TEXT_POINTS, frameon=False, title=note, title_fontsize=figures.TEXT_POINTS)

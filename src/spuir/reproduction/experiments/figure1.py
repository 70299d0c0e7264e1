"""Figure 1: how much a batched policy gains from the rewards of actions that it did not execute."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from spuir.reproduction import plots
from spuir.reproduction.base import Experiment, Findings, ReportTable, Scope, Verdict
from spuir.reproduction.grids import CellGrid, measured
from spuir.reproduction.method_comparison import REGRET, REWARD, SHOWN, SHOWN_FORMATS
from spuir.reproduction.policy_runs import Setup
from spuir.reproduction.tasks import Result, Task
from spuir.reproduction.verdicts import Interval, judge, last, mean_of, paired, say
from spuir.results.figures import ramp, style_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SETUP = Setup(environment="synthetic", episodes=90, batch_size=1400)
SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
PLAIN, CALM, IMPUTED = "sbucb", "sbucb (α = 0.1)", "puir (no feedback)"
CLOSE = 0.01
"""Close means: the interval of the difference stays within this share of the reward with full information."""

Name = tuple[str, float]
"""Label and share of feedback."""


def cells(scope: Scope) -> dict[Name, list[Task]]:
    """Return SBUCB at every share of feedback, with the authors' α and with PUIR's, and PUIR without feedback."""

    def cell(policy: str, parameters: Mapping[str, float], share: float) -> list[Task]:
        return SETUP.runs(scope.seeds, policy, preset="paper", parameters=parameters, feedback=share)

    plain = {(PLAIN, share): cell("sbucb", {}, share) for share in scope.axis(SHARES, (0.0, 0.8, 1.0))}
    calm = {(CALM, share): cell("sbucb", {"alpha": 0.1}, share) for share in scope.axis(SHARES, (0.0, 1.0))}
    return plain | calm | {(IMPUTED, 0.0): cell("puir", {}, 0.0)}


grid = CellGrid(cells)


def report(scope: Scope, results: Sequence[Result]) -> Findings:
    """Return reward and regret against the share of feedback."""
    groups = grid.fill(scope, results)
    rewards = {cell: last(group, REWARD) for cell, group in groups.items()}
    table = ReportTable(
        name="",
        title="Reward and regret by share of feedback",
        rows=[
            {"policy": label, "feedback %": round(100 * share)}
            | measured(group, SHOWN)
            | {"minus no feedback": say(paired(rewards[label, share], rewards[label, 0.0]))}
            for (label, share), group in groups.items()
        ],
        formats=SHOWN_FORMATS | {"feedback %": "d"},
    )
    return Findings(
        tables=[table], verdicts=verdicts(rewards), figures=figures(scope, groups), lesson=lesson(groups, rewards)
    )


def verdicts(rewards: Mapping[Name, Mapping[int, float]]) -> list[Verdict]:
    """Judge the paper's two observations, and the idea that follows from them."""

    def gain(label: str, low: float, high: float) -> Interval:
        return paired(rewards[label, high], rewards[label, low])

    more, more_calm = gain(PLAIN, 0.0, 1.0), gain(CALM, 0.0, 1.0)
    full = mean_of(rewards[PLAIN, 1.0])
    near = -gain(PLAIN, 0.8, 1.0)
    imputed = paired(rewards[IMPUTED, 0.0], rewards[PLAIN, 1.0])
    return [
        Verdict(
            "more-feedback",
            "A batched policy earns more, the more rewards of non-executed actions it sees.",
            judge(more, more_calm),
            f"SBUCB with full information minus without: {say(more)} at the authors' α = 1, "
            f"{say(more_calm, '.5f')} at α = 0.1. It holds if both intervals are above 0.",
        ),
        Verdict(
            "most-feedback-is-enough",
            "80 % of the feedback are very close to full information.",
            judge(near, margin=-CLOSE * full),
            f"80 % minus full information: {say(near, '.5f')}. It holds if the interval is above "
            f"{-CLOSE * full:.4f}, {CLOSE:.0%} of the reward with full information.",
        ),
        Verdict(
            "imputation-replaces-feedback",
            "Imputed rewards come close to full information without any of it.",
            judge(imputed, margin=-CLOSE * full),
            f"PUIR without feedback minus SBUCB with all of it: {say(imputed, '.5f')}. It holds if the "
            f"interval is above {-CLOSE * full:.4f}.",
        ),
    ]


def figures(scope: Scope, groups: Mapping[Name, Sequence[Result]]) -> "dict[str, Figure]":
    """Return the paper's curves over episodes, and the final regret over the share of feedback."""
    names = {(PLAIN, share): f"sbucb ({100 * share:.0f} %)" for share in SHARES} | {(IMPUTED, 0.0): IMPUTED}
    running = {names[cell]: group for cell, group in groups.items() if cell in names}
    styles = dict(zip(names.values(), ramp(len(SHARES)), strict=False)) | {IMPUTED: style_of("puir")}
    shares = scope.axis(SHARES, (0.0, 0.8, 1.0))
    panel = plots.Panel(
        xlabel="feedback on non-executed actions (%)",
        ylabel="regret per context",
        lines=[
            plots.line(
                label,
                [100 * share for share in shares],
                [last(groups.get((label, share), ()), REGRET).values() for share in shares],
            )
            for label in (PLAIN, CALM, IMPUTED)
        ],
        log_y=True,
    )
    return {"": plots.over_episodes(running, styles=styles), "regret": plots.side_by_side([panel])}


def lesson(groups: Mapping[Name, Sequence[Result]], rewards: Mapping[Name, Mapping[int, float]]) -> str:
    """Return what a reader learns, in numbers."""
    mean = {cell: mean_of(values) for cell, values in rewards.items()}
    regret = {cell: mean_of(last(group, REGRET)) for cell, group in groups.items()}
    gap = mean[PLAIN, 1.0] - mean[PLAIN, 0.0]
    closed = (mean[IMPUTED, 0.0] - mean[PLAIN, 0.0]) / gap
    calm = (mean[CALM, 0.0] - mean[PLAIN, 0.0]) / gap
    reason = (
        "feedback helps here mostly by a smaller bonus, less by a better estimate"
        if calm > 0.5
        else "feedback helps here mostly by a better estimate, less by a smaller bonus"
    )
    return (
        f"Full information is worth {gap:.4f} of reward to SBUCB with α = 1 ({gap / mean[PLAIN, 0.0]:.1%}). PUIR "
        f"closes {closed:.0%} of that gap without any feedback. SBUCB itself closes {calm:.0%} of it when it explores "
        f"as little as PUIR does (α = 0.1): {reason}. In regret per context: {regret[PLAIN, 0.0]:.5f} (SBUCB), "
        f"{regret[CALM, 0.0]:.5f} (SBUCB, α = 0.1), "
        f"{regret[IMPUTED, 0.0]:.5f} (PUIR), {regret[PLAIN, 1.0]:.5f} (full information)."
    )


EXPERIMENT = Experiment(
    name="figure1",
    title="More feedback, more reward",
    source="Figure 1",
    shown="Average reward of batched UCB on synthetic data when 0, 20, 40, 60, 80 or 100 % of the actions reveal their "
    "reward: more feedback is better, and 80 % are very close to full information.",
    setting="Environment synthetic, 90 episodes of 1,400 decisions. SBUCB at the authors' α = 1; each non-executed "
    "action reveals its reward with the given probability. Beyond the paper: SBUCB at α = 0.1, PUIR without feedback.",
    grid=grid,
    report=report,
)

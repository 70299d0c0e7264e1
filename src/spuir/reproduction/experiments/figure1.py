"""Figure 1: how much a batched policy gains from rewards of actions that it did not execute."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from spuir.reproduction import drawing
from spuir.reproduction.base import Experiment, Findings, Plan, Table, Verdict
from spuir.reproduction.cells import fill, measured, over_seeds, tasks_of
from spuir.reproduction.runner import Result, Task
from spuir.reproduction.trials import playing
from spuir.reproduction.verdicts import Interval, judge, last, paired, say, summary
from spuir.results.figures import ramp, style_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
PLAIN, CALM, IMPUTED = "sbucb", "sbucb (α = 0.1)", "puir (no feedback)"
CLOSE = 0.01
"""Close means: the interval of the difference stays within this share of the reward with full information."""

Cell = tuple[str, float]


def cells(plan: Plan) -> dict[Cell, list[Task]]:
    """Return SBUCB at every share of feedback, exploring as the authors do and as PUIR does; PUIR without any."""

    def cell(policy: str, parameters: Mapping[str, float], share: float) -> list[Task]:
        return over_seeds(
            plan.seeds,
            lambda seed: playing(
                policy,
                "synthetic",
                episodes=90,
                batch_size=1400,
                seed=seed,
                preset="paper",
                parameters=parameters,
                feedback=share,
            ),
        )

    shares = plan.axis(SHARES, (0.0, 0.8, 1.0))
    plain = {(PLAIN, share): cell("sbucb", {}, share) for share in shares}
    calm = {(CALM, share): cell("sbucb", {"alpha": 0.1}, share) for share in plan.axis(SHARES, (0.0, 1.0))}
    return plain | calm | {(IMPUTED, 0.0): cell("puir", {}, 0.0)}


def grid(plan: Plan, results: Sequence[Result]) -> list[Task]:
    """Return the runs of all cells."""
    return tasks_of(cells(plan))


def report(plan: Plan, results: Sequence[Result]) -> Findings:
    """Return reward and regret against the share of feedback."""
    found = fill(cells(plan), results)
    rewards = {cell: last(group, "average_reward") for cell, group in found.items()}
    table = Table(
        name="",
        title="Reward and regret by share of feedback",
        rows=[
            {"policy": label, "feedback %": round(100 * share)}
            | measured(group, {"average reward": "average_reward", "regret per context": "regret_per_step"})
            | {"minus no feedback": say(paired(rewards[label, share], rewards[label, 0.0]))}
            for (label, share), group in found.items()
        ],
        formats={"average reward": ".4f", "regret per context": ".5f", "feedback %": "d"},
    )
    return Findings(
        tables=[table], verdicts=verdicts(rewards), figures=figures(plan, found), lesson=lesson(found, rewards)
    )


def verdicts(rewards: Mapping[Cell, Mapping[int, float]]) -> list[Verdict]:
    """Judge the paper's two observations, and the idea that follows from them."""

    def gain(label: str, low: float, high: float) -> Interval:
        return paired(rewards[label, high], rewards[label, low])

    more, more_calm = gain(PLAIN, 0.0, 1.0), gain(CALM, 0.0, 1.0)
    full = summary(rewards[PLAIN, 1.0].values())[0]
    near = -gain(PLAIN, 0.8, 1.0)
    imputed = paired(rewards[IMPUTED, 0.0], rewards[PLAIN, 1.0])
    return [
        Verdict(
            claim="A batched policy earns more, the more rewards of non-executed actions it sees.",
            outcome=judge(more, more_calm),
            evidence=f"SBUCB with full information minus without: {say(more)} at the authors' α = 1, "
            f"{say(more_calm, '.5f')} at α = 0.1. It holds if both intervals are above 0.",
        ),
        Verdict(
            claim="80 % of the feedback are very close to full information.",
            outcome=judge(near, margin=-CLOSE * full),
            evidence=f"80 % minus full information: {say(near, '.5f')}. It holds if the interval is above "
            f"{-CLOSE * full:.4f}, {CLOSE:.0%} of the reward with full information.",
        ),
        Verdict(
            claim="Imputed rewards come close to full information without any of it.",
            outcome=judge(imputed, margin=-CLOSE * full),
            evidence=f"PUIR without feedback minus SBUCB with all of it: {say(imputed, '.5f')}. It holds if the "
            f"interval is above {-CLOSE * full:.4f}.",
        ),
    ]


def figures(plan: Plan, found: Mapping[Cell, Sequence[Result]]) -> "dict[str, Figure]":
    """Return the paper's curves over episodes, and the ends over the share of feedback."""
    names = {(PLAIN, share): f"sbucb ({100 * share:.0f} %)" for share in SHARES} | {(IMPUTED, 0.0): IMPUTED}
    running = {names[cell]: group for cell, group in found.items() if cell in names}
    styles = dict(zip(names.values(), ramp(len(SHARES)), strict=False)) | {IMPUTED: style_of("puir")}
    shares = plan.axis(SHARES, (0.0, 0.8, 1.0))
    ends: dict[str, tuple[list[float], list[float]]] = {}
    for label in (PLAIN, CALM, IMPUTED):
        pairs = [summary(last(found.get((label, share), ()), "regret_per_step").values()) for share in shares]
        ends[label] = [mean for mean, _ in pairs], [error for _, error in pairs]
    return {
        "": drawing.curves(running, styles=styles),
        "regret": drawing.lines(
            [100 * share for share in shares],
            ends,
            xlabel="feedback on non-executed actions (%)",
            ylabel="regret per context",
            log_y=True,
            seeds=len(plan.seeds),
        ),
    }


def lesson(found: Mapping[Cell, Sequence[Result]], rewards: Mapping[Cell, Mapping[int, float]]) -> str:
    """Return what a reader learns, in numbers."""
    mean = {cell: summary(values.values())[0] for cell, values in rewards.items()}
    regret = {cell: summary(last(group, "regret_per_step").values())[0] for cell, group in found.items()}
    gap = mean[PLAIN, 1.0] - mean[PLAIN, 0.0]
    closed = (mean[IMPUTED, 0.0] - mean[PLAIN, 0.0]) / gap
    calm = (mean[CALM, 0.0] - mean[PLAIN, 0.0]) / gap
    reason = (
        "most of what feedback brings here is a smaller bonus, less a better estimate"
        if calm > 0.5
        else "what feedback brings here is mostly a better estimate, less a smaller bonus"
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
    "action reveals its reward with the given probability. Beyond the paper: SBUCB at α = 0.1, PUIR without any.",
    grid=grid,
    report=report,
)

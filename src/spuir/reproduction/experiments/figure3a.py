"""Figure 3(a): the nine methods on the paper's synthetic setting."""

from spuir.reproduction.base import Experiment, Scope
from spuir.reproduction.method_comparison import CHEAP, MethodComparison
from spuir.reproduction.policy_runs import Setup


def setup(scope: Scope) -> Setup:
    """Return where the methods are compared, whatever the scope."""
    return Setup(environment="synthetic", episodes=90, batch_size=1400)


COMPARISON = MethodComparison("Average reward on the synthetic setting after 90 episodes", setup, CHEAP)

EXPERIMENT = Experiment(
    name="figure3a",
    title="Average reward on synthetic data",
    source="Figure 3(a)",
    shown="Curves of average reward on synthetic data, those more than 5 % below the best left out: PUIR, SPUIR and "
    "their rate-scheduled forms end above the baselines and close to each other.",
    setting="Environment synthetic (M = 5, d = 40), 90 episodes of 1,400 decisions as in the authors' code; nine "
    "methods at the authors' settings, and each at the best of at most twelve, chosen on other seeds.",
    grid=COMPARISON.grid,
    report=COMPARISON.report,
)

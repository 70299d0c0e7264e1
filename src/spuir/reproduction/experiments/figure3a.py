"""Figure 3(a): the nine methods on the paper's synthetic setting."""

from functools import partial

from spuir.reproduction.base import Experiment
from spuir.reproduction.comparison import MethodComparison, findings
from spuir.reproduction.sets import synthetic

COMPARISON = MethodComparison(name="synthetic", setup=synthetic)

EXPERIMENT = Experiment(
    name="figure3a",
    title="Average reward on synthetic data",
    source="Figure 3(a)",
    grid=COMPARISON.grid,
    report=partial(findings, COMPARISON, place="Section 6, Figure 3(a)", title="Synthetic data"),
)

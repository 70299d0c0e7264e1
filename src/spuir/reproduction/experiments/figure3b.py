"""Figure 3(b): the nine methods on Criteo's conversion log, with all 15 campaigns."""

from functools import partial

from spuir.reproduction.base import Experiment
from spuir.reproduction.comparison import MethodComparison, findings
from spuir.reproduction.sets import criteo_all

COMPARISON = MethodComparison(name="criteo-all", setup=criteo_all)

EXPERIMENT = Experiment(
    name="figure3b",
    title="Average reward on Criteo, all campaigns",
    source="Figure 3(b)",
    grid=COMPARISON.grid,
    report=partial(findings, COMPARISON, place="Section 6, Figure 3(b)", title="Criteo-all"),
)

"""Figure 3(c): the nine methods on a stand-in for the commercial product."""

from functools import partial

from spuir.reproduction.base import Experiment
from spuir.reproduction.comparison import MethodComparison, findings
from spuir.reproduction.sets import coupon

COMPARISON = MethodComparison(name="coupon", setup=coupon)

EXPERIMENT = Experiment(
    name="figure3c",
    title="Average reward on the commercial product",
    source="Figure 3(c)",
    grid=COMPARISON.grid,
    report=partial(findings, COMPARISON, place="Section 6, Figure 3(c)", title="Coupon simulator"),
)

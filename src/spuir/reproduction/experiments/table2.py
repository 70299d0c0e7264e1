"""Table 2: conversion rates and time of the nine methods on a stand-in for the commercial product."""

import math
from collections.abc import Mapping, Sequence
from time import process_time
from typing import Any

import numpy as np

from spuir.environments import make_environment
from spuir.loop import run
from spuir.policies import make_policy
from spuir.reproduction import plots
from spuir.reproduction.base import Drawing, Experiment, Findings, ReportTable, Scope
from spuir.reproduction.claims import Claim, Contrast, Interval, Sample, difference, ratio, sample, summary
from spuir.reproduction.comparison import BASELINES, PROPOSED, SETTINGS, Compared
from spuir.reproduction.experiments.figure3c import COMPARISON
from spuir.reproduction.grids import fill
from spuir.reproduction.policy_runs import AUTHORS
from spuir.reproduction.sets import coupon
from spuir.reproduction.tasks import Result, Task
from spuir.reproduction.tuning import METHODS
from spuir.results.figures import TUNED

TIMED_REPEATS, ROUNDS = 10, 5
CHANCE = "uniform"

PRINTED: Mapping[str, tuple[float, float, float, float, float, float]] = {
    "dfm-s": (0.8656, 0.0473, 0.3317, 0.0218, 302.3140, 8.3045),
    "sbucb": (0.8569, 0.0037, 0.4277, 0.0084, 43.5435, 0.3659),
    "bexp3": (0.4846, 0.0205, 0.2425, 0.0116, 53.5001, 0.9220),
    "bexp3-ipw": (0.4862, 0.0187, 0.2436, 0.0113, 56.0101, 1.4142),
    "blts-b": (0.8663, 0.0178, 0.4285, 0.0157, 218.2109, 1.8198),
    "puir": (0.8807, 0.0053, 0.4411, 0.0029, 184.3575, 2.2346),
    "spuir": (0.8770, 0.0059, 0.4397, 0.0032, 81.5753, 1.5879),
    "puir-rs": (0.8763, 0.0056, 0.4389, 0.0030, 180.4999, 1.7763),
    "spuir-rs": (0.8758, 0.0058, 0.4391, 0.0031, 80.8003, 2.9030),
}
"""What the paper prints: mean and standard deviation of CVR, of CTCVR, and of the seconds of a run."""


def timed(
    *, methods: Sequence[str], environment: str, world: Mapping[str, Any], episodes: int, batch_size: int, seed: int
) -> list[dict[str, Any]]:
    """Run the methods alternately; return the median processor seconds of a run beyond one of the uniform policy.

    What the uniform policy takes is the time of the environment and of the loop, which is no policy's own.
    """
    taken: dict[str, list[float]] = {method: [] for method in (CHANCE, *methods)}
    for _ in range(ROUNDS + 1):  # the first round fills the caches and is not counted
        for method, seconds in taken.items():
            policy = make_policy(method, preset=None if method == CHANCE else AUTHORS)
            place = make_environment(environment, seed=seed, **world)
            begin = process_time()
            run(policy, place, episodes, batch_size, seed)
            seconds.append(process_time() - begin)
    loop = taken.pop(CHANCE)
    return [
        {"method": method, "seconds": float(np.median(np.subtract(seconds, loop)[1:]))}
        for method, seconds in taken.items()
    ]


def timed_tasks(scope: Scope) -> list[Task]:
    """Return the timed tasks: all methods as the authors' code has them, on a few seeds."""
    seeds = scope.seeds[: 1 if scope.quick else TIMED_REPEATS]
    return [Task.of(timed, alone=True, methods=list(METHODS), **coupon(scope).arguments(seed)) for seed in seeds]


def grid(scope: Scope, results: Sequence[Result]) -> list[Task]:
    """Return the runs of Figure 3(c), and the timed ones."""
    return [*COMPARISON.grid(scope, results), *timed_tasks(scope)]


RATES = {"CVR": "cvr", "CTCVR": "ctcvr"}
CODED = {
    "bexp3": "bexp3 (as coded)",
    "bexp3-ipw": "bexp3-ipw (as coded)",
    "dfm-s": "dfm-s (window, censored)",
}
"""Method → its form in the authors' code, where that differs from the method; it is what their table is about."""
PLAIN = ("sbucb", "bexp3", "bexp3-ipw")
"""The baselines without imputation that the paper compares times with."""


def report(scope: Scope, results: Sequence[Result]) -> Findings:
    """Return the paper's table next to ours."""
    compared = Compared(COMPARISON, scope, results)
    seconds = taken_by(scope, results)
    return Findings(
        tables=[rate_table(compared), time_table(seconds)],
        claims=[*rate_claims(compared), *time_claims(seconds)],
        drawings={"": draw(compared, seconds)},
    )


def taken_by(scope: Scope, results: Sequence[Result]) -> dict[str, Sample]:
    """Return the seconds of each method over the timed repeats."""
    (timings,) = fill({"": timed_tasks(scope)}, results).values()

    def seconds(method: str) -> Sample:
        def pick(rows: Sequence[Mapping[str, Any]]) -> float:
            return next(row["seconds"] for row in rows if row["method"] == method)

        return sample(f"{method}/seconds", timings, pick)

    return {method: seconds(method) for method in METHODS}


def _spread(one: Sample, title: str) -> dict[str, float]:
    """Return mean and standard deviation over repeats, as the paper prints them."""
    mean, error = summary(one)
    return {title: mean, f"{title} ±": error * math.sqrt(len(one.values))}


def rate_table(compared: Compared) -> ReportTable:
    """Return CVR and CTCVR as the paper prints them, of the authors' code here, and of each method at its best."""
    rows: list[dict[str, Any]] = []
    for method in (one for one in METHODS if one in compared):
        row: dict[str, Any] = {"method": method}
        for at, (title, column) in enumerate(RATES.items()):
            printed = PRINTED[method][2 * at : 2 * at + 2]
            row |= {f"{title}, paper": printed[0], f"{title}, paper ±": printed[1]}
            for label, name in ((CODED.get(method, method), "code"), (method + TUNED, "tuned")):
                if label in compared:
                    row |= _spread(compared.sample(label, column), f"{title}, {name}")
        rows.append(row)
    formats = {f"{title}, {name}": ".4f" for title in RATES for name in ("paper", "code", "tuned")}
    title = "CVR and CTCVR, mean ± standard deviation over repeats"
    return ReportTable(name="", title=title, rows=rows, formats=formats)


def time_table(seconds: Mapping[str, Sample]) -> ReportTable:
    """Return seconds of a run and ratios to SBUCB, ours and the paper's."""
    rows: list[dict[str, Any]] = []
    for method in seconds:
        took, base = PRINTED[method][4], PRINTED["sbucb"][4]
        row: dict[str, Any] = {"method": method} | _spread(seconds[method], "seconds")
        row |= {"times SBUCB": seconds[method].mean / seconds["sbucb"].mean}
        rows.append(row | {"paper's seconds": took, "paper's times SBUCB": took / base})
    formats = {"seconds": ".4f", "times SBUCB": ".2f", "paper's seconds": ".1f", "paper's times SBUCB": ".2f"}
    return ReportTable(name="time", title="Time of a run in the policy", rows=rows, formats=formats)


def rate_claims(compared: Compared) -> list[Claim]:
    """Return SPUIR's lead in CVR and CTCVR over every baseline."""

    def gaps(suffix: str, title: str) -> list[Contrast]:
        ours, column = "spuir" + suffix, RATES[title]
        rivals = [one + suffix if suffix else CODED.get(one, one) for one in BASELINES]
        return [
            difference(f"spuir − {rival}, {title}", compared.sample(ours, column), compared.sample(rival, column))
            for rival in rivals
            if rival in compared and ours in compared
        ]

    return [
        Claim(
            id=f"spuir-{column}",
            place="Section 6, Table 2",
            wording=f"SPUIR outperforms the second-best baseline with an improvement in {title}.",
            coded=gaps("", title),
            tuned=gaps(TUNED, title),
            fair=True,
            unit=title,
        )
        for title, column in RATES.items()
    ]


def time_claims(seconds: Mapping[str, Sample]) -> list[Claim]:
    """Return the paper's three claims about time, as logarithms of ratios."""

    def ratios(ours: Sequence[str], theirs: Sequence[str]) -> list[Contrast]:
        return [ratio(f"time of {one} over {other}", seconds[one], seconds[other]) for one in ours for other in theirs]

    about: dict[str, Any] = {"place": "Section 6, Table 2", "kind": "less", "unit": "log ratio"}
    return [
        Claim(
            id="faster-than-models",
            wording="Our reward imputation approaches are more efficient than DFM-S and BLTS-B.",
            coded=ratios(PROPOSED, ("dfm-s", "blts-b")),
            **about,
        ),
        Claim(
            id="sketching-is-faster",
            wording="The variants using sketching significantly reduce the time costs of reward imputation.",
            coded=[*ratios(("spuir",), ("puir",)), *ratios(("spuir-rs",), ("puir-rs",))],
            **about,
        ),
        Claim(
            id="less-than-twice",
            wording="SPUIR and SPUIR-RS take less than twice as long as the baselines without reward imputation.",
            coded=ratios(("spuir", "spuir-rs"), PLAIN),
            margin=math.log(2),
            **about,
        ),
    ]


def draw(compared: Compared, seconds: Mapping[str, Sample]) -> Drawing:
    """Draw the lead in CVR over SBUCB at both kinds of settings, and times in units of SBUCB's."""
    rows: dict[str, plots.Pair] = {}
    for method in compared.methods:
        found: list[Interval | None] = []
        for suffix, label in (("", CODED.get(method, method)), (TUNED, method + TUNED)):
            rival = "sbucb" + suffix
            both = label in compared and rival in compared and method != "sbucb"
            gap = difference("", *(compared.sample(one, "cvr") for one in (label, rival))) if both else None
            found.append(None if gap is None else gap.interval())
        if method != "sbucb":
            rows[method] = found[0], found[1]
    left = plots.Dots(title="   ".join(SETTINGS.values()), xlabel="lead over SBUCB in CVR", rows=rows, reach=0.04)
    times: dict[str, plots.Pair] = {}
    for method in seconds:
        if method != "sbucb":
            one = ratio("", seconds[method], seconds["sbucb"]).interval()
            printed = math.log2(PRINTED[method][4] / PRINTED["sbucb"][4])
            times[method] = one.through(lambda value: value / math.log(2)), Interval(printed, printed, printed)
    right = plots.Dots(title="○ here   ● printed in the paper", xlabel="time over SBUCB's, doublings", rows=times)
    caption = (
        "Left: lead over SBUCB in conversions per click; BEXP3, BEXP3-IPW and DFM-S at the settings of the authors' "
        "code are the forms in that code. Right: time of a run over SBUCB's as a power of two, here and in the paper; "
        "intervals of 95 % over seeds (not corrected)."
    )
    return Drawing(plots.compose("Coupon simulator: M = 5, d = 20, N = 20, B = 625", [left, right]), caption)


EXPERIMENT = Experiment(
    name="table2",
    title="Conversion rates and time on the commercial product",
    source="Table 2",
    grid=grid,
    report=report,
)

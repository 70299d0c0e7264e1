"""Off-policy evaluation against the truth, and its speed: ``python -m benchmarks.evaluation [--only …] [--rows N]``.

coverage
    2,000 logs of a world with known values: the mean of each estimator, and how often 95 % intervals hold the truth,
    or, for biased estimators, the estimator's own expectation.
calls
    500 logs: how often a worse policy is called better, and how often a policy without support gets a number.
speed
    A log of N rows: evaluating by all estimators against reading the log twice and scoring it by the model, in
    seconds and in CPU seconds of all threads, medians of three rounds. Bootstrap intervals are timed apart, and so are
    reward models of scikit-learn, which keep their rows in memory, on a tenth of the rows.
"""

import json
import resource
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge

import spuir
from benchmarks.worlds import ACTIONS, World, blind_log, soft, threshold, turned, values
from spuir.base.streams import generator
from spuir.evaluation.estimators import FAMILY
from spuir.evaluation.evaluate import ESTIMATORS
from spuir.evaluation.intervals import INTERVALS
from spuir.logs import open_log

PARTS = ("coverage", "calls", "speed")
COLUMNS, SHARES = 15, (0.4, 0.3, 0.2, 0.1)
GROUP_ROWS, ROUNDS = 250_000, 3
FIRST_SEED = 200_000
"""Seed of the first log of the coverage: none of these was looked at while the intervals were written."""
STORED = Path(__file__).with_suffix(".json")


def coverage(logs: int, rows: int, kinds: Sequence[str], estimators: Sequence[str]) -> list[dict[str, Any]]:
    """Return a line per interval, policy and estimator: mean error in standard errors, spread, and coverage."""
    truth, found = values(), defaultdict[tuple[str, str, str], list[Any]](list)
    for number in range(logs):
        frame, contexts = World().draw(rows, generator(FIRST_SEED + number, "benchmarks", "coverage"))
        policies = {"rule": threshold, "soft": soft(contexts)}
        how: dict[str, Any] = {"actions": ACTIONS, "against": ["logged", "always:c"]}
        report = spuir.evaluate(frame, policies, estimators=estimators, **how)
        for kind in kinds:
            for one in report.values:
                ends = report.interval_of(one.policy, estimator=one.estimator, kind=kind)
                if ends is not None:
                    found[kind, one.policy, one.estimator].append((one.value, *ends))
            for pair in report.differences_found:
                if pair.difference is not None and pair.policy == "rule" and pair.against != "soft":
                    ends = report.interval_of("rule", pair.against, kind=kind)
                    found[kind, f"rule − {pair.against}", "dr"].append((pair.difference, *(ends or ())))
    lines: list[dict[str, Any]] = []
    for (kind, policy, name), some in found.items():
        one, _, two = policy.partition(" − ")
        true = truth[one] - (truth[two] if two else 0.0)
        value, low, high = np.array(some).T
        aim = true if FAMILY[name].unbiased or name in ("snips", "sndr") else value.mean()
        lines.append(
            {
                "interval": kind,
                "rows": rows,
                "policy": policy,
                "estimator": name,
                "mean error / se": (value.mean() - true) / (value.std(ddof=1) / np.sqrt(len(value))),
                "spread": value.std(ddof=1),
                "coverage": float(((low <= aim) & (aim <= high)).mean()),
                "logs": len(value),
            }
        )
    return lines


def calls(logs: int, rows: int) -> dict[str, float]:
    """Return how often worse policies are called better, and how often a log without support gives a number."""
    worse = {"always:a, not always:b": 0, "reversed rule, not logged": 0, "few rows": 0, "number without support": 0}
    for number in range(logs):
        rng = generator(number, "benchmarks", "calls")
        frame, _ = World().draw(rows, rng)
        report = spuir.evaluate(frame, {"a": "always:a", "reversed": turned}, against=["logged", "always:b"])
        worse["always:a, not always:b"] += report.is_better("a", "always:b")
        worse["reversed rule, not logged"] += report.is_better("reversed", "logged")
        small = spuir.evaluate(frame[:200], {"a": "always:a"}, against=["always:b"])
        worse["few rows"] += small.is_better("a", "always:b")
        blind = spuir.evaluate(blind_log(rows, rng), {"rule": threshold}, against=["logged"])
        worse["number without support"] += blind.value_of("rule").value is not None
    return {name: count / logs for name, count in worse.items()}


def write_log(path: Path, rows: int, seed: int = 0) -> None:
    """Write a log with four actions and fifteen context columns."""
    import pyarrow as pa
    from pyarrow import parquet

    rng, names = generator(seed, "benchmarks", "evaluation"), [f"x{at}" for at in range(COLUMNS)]
    writer, done = None, 0
    while done < rows:
        n = min(GROUP_ROWS, rows - done)
        contexts, actions = rng.normal(size=(n, COLUMNS)), rng.choice(4, n, p=SHARES)
        rewards = (rng.random(n) < 0.2 + 0.05 * actions + 0.05 * contexts[:, 0] * (actions == 1)).astype(float)
        table = pa.table(
            dict(zip(names, contexts.T, strict=True))
            | {"action": np.array(list("abcd"))[actions], "reward": rewards, "propensity": np.array(SHARES)[actions]}
        )
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
        done += n
    if writer is not None:
        writer.close()


def clock(work: Callable[[], object]) -> np.ndarray:
    """Return the seconds and the CPU seconds of all threads that some work takes."""
    begin = np.array([time.perf_counter(), time.process_time()])
    work()
    return np.array([time.perf_counter(), time.process_time()]) - begin


def speed(rows: int) -> dict[str, float]:
    """Return seconds and CPU seconds for reading twice, scoring and evaluating, and the peak memory of this process."""
    names = [f"x{at}" for at in range(COLUMNS)]
    with tempfile.TemporaryDirectory() as folder:
        path, earlier, tenth = (Path(folder) / f"{name}.parquet" for name in ("log", "earlier", "tenth"))
        write_log(path, rows)
        write_log(earlier, 20_000, seed=1)
        write_log(tenth, rows // 10)
        first = open_log(earlier).table().to_pandas()
        policy = spuir.make_policy("puir", intercept=True, floor=0.02)
        bandit = spuir.Bandit(policy, list("abcd"), random_state=0)
        bandit.partial_fit(first[names], first.action, first.reward)

        def read() -> None:
            for _ in open_log(path).batches():
                pass

        def score() -> None:
            for batch in open_log(path).batches(names):
                bandit.predict_proba(batch)

        read()
        spuir.evaluate(first[:2000], {"uniform": "uniform"})  # imports do not count
        rounds: list[dict[str, np.ndarray]] = []
        for _ in range(ROUNDS):
            steps = {"reading twice": clock(read) + clock(read)}
            steps["scoring"] = clock(score) - steps["reading twice"] / 2
            steps["evaluating"] = clock(lambda: spuir.evaluate(path, {"model": bandit}))
            rounds.append(steps)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        times = {name: np.median([steps[name] for steps in rounds], axis=0) for name in rounds[0]}
        times["with bootstrap intervals"] = clock(lambda: spuir.evaluate(path, {"model": bandit}, interval="bootstrap"))
        times["a tenth of the rows"] = clock(lambda: spuir.evaluate(tenth, {"model": bandit}))
        for model in (Ridge(), HistGradientBoostingRegressor(max_iter=50)):
            work = partial(spuir.evaluate, tenth, {"model": bandit}, reward_model=model)
            times[f"a tenth with scikit-learn's {type(model).__name__}"] = clock(work)
    found: dict[str, float] = {"rows": rows, "peak MB": peak}
    for at, unit in enumerate(("s", "CPU s")):
        found |= {f"{name}, {unit}": float(values[at]) for name, values in times.items()}
        found[f"ratio, {unit}"] = float(times["evaluating"][at] / (times["reading twice"] + times["scoring"])[at])
    return found


@click.command()
@click.option("--only", default=",".join(PARTS), show_default=True, help="Parts to run, by comma.")
@click.option("--logs", default=2000, show_default=True, help="Logs of the coverage; calls use a quarter.")
@click.option("--rows", default=10_000_000, show_default=True, help="Rows of the log to measure speed on.")
@click.option("--store", is_flag=True, help=f"Write the results to {STORED.name}.")
def main(only: str, logs: int, rows: int, store: bool) -> None:
    """Compare evaluation with the truth, and measure it."""
    stored = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    for part in only.split(","):
        if part == "coverage":
            plans: list[Any] = [(1000, tuple(INTERVALS), ("ips", "snips", "dr")), (2000, ("normal",), ESTIMATORS)]
            stored[part] = [line for plan in plans for line in coverage(logs, *plan)]
        elif part == "calls":
            stored[part] = calls(max(logs // 4, 1), 1500)
        elif part == "speed":
            stored[part] = speed(rows)
        else:
            raise click.BadParameter(f"unknown part {part!r}; the parts are {', '.join(PARTS)}", param_hint="--only")
        click.echo(f"{part}:")
        lines = stored[part] if isinstance(stored[part], list) else [stored[part]]
        for line in lines:
            shown = [f"{name} {value:.4g}" if isinstance(value, float) else f"{value}" for name, value in line.items()]
            click.echo("  " + ", ".join(shown))
    if store:
        STORED.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Training from files: ``python -m benchmarks.training [--rows N] [--folder DIR]`` writes benchmarks/training.json.

Each method reads the same Parquet files in a process of its own, so that its peak memory is its own too; its clock
starts after its imports. All have the same number of workers, with one BLAS thread each. Methods alternate, and
the fastest turn of each counts. Slow ones read the first rows only, and their time is scaled up.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import numpy as np
from threadpoolctl import threadpool_limits

from spuir.base.streams import generator
from spuir.reproduction.manifest import processor

COLUMNS, ACTIONS, WORKERS = 50, 10, 2
FILE_ROWS, GROUP_ROWS = 1_000_000, 250_000
LARGE, SMALL = 100_000, 1_000
PEER_ROWS, VW_ROWS = 1_000_000, 50_000
NAMES = [f"x{number}" for number in range(COLUMNS)]
ROOT = Path(__file__).resolve().parents[1]
STORED, PAGE = ROOT / "benchmarks" / "training.json", ROOT / "docs" / "training-speed.md"
READING, OURS, SMALL_BATCHES = "pyarrow + one Gram product per row group", "spuir, B = 100,000", "spuir, B = 1,000"
DASK, SPARK = "spuir on Dask", "spuir on Spark"
PEERS, VW = ("contextualbandits", "MABWiser"), "Vowpal Wabbit"
FAR_ROWS, FAR_WORKERS = 10**12, 1_000


def write_files(folder: Path, rows: int) -> None:
    """Write the log, ``FILE_ROWS`` rows a file, where it is not there yet."""
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir(parents=True, exist_ok=True)
    for number in range(-(-rows // FILE_ROWS)):
        path = folder / f"part-{number:03d}.parquet"
        if path.exists():
            continue
        rng = generator(number, "benchmarks", "training")
        contexts = rng.standard_normal((COLUMNS, FILE_ROWS))
        columns = {"action": rng.integers(ACTIONS, size=FILE_ROWS), "reward": rng.standard_normal(FILE_ROWS)}
        table = pa.table({**columns, **dict(zip(NAMES, contexts, strict=True))})
        how: dict[str, Any] = {"compression": "zstd", "use_dictionary": False, "row_group_size": GROUP_ROWS}
        parquet.write_table(table, path.with_suffix(".partial"), **how)
        os.replace(path.with_suffix(".partial"), path)


def paths(folder: Path, rows: int) -> list[str]:
    """Return the files of the first rows."""
    return [str(path) for path in sorted(folder.glob("part-*.parquet"))[: -(-rows // FILE_ROWS)]]


def read_and_multiply(folder: Path, rows: int) -> None:
    """Read every row group with pyarrow and take one Gram product of it: the measure of all."""
    from pyarrow import parquet

    def work(job: tuple[str, int]) -> Any:
        table = parquet.ParquetFile(job[0]).read_row_group(job[1])
        contexts = np.empty((table.num_rows, COLUMNS))
        for place, name in enumerate(NAMES):
            contexts[:, place] = table.column(name).to_numpy()
        return contexts.T @ contexts

    groups = [
        (path, group) for path in paths(folder, rows) for group in range(parquet.ParquetFile(path).num_row_groups)
    ]
    with ThreadPoolExecutor(WORKERS) as pool:
        sum(pool.map(work, groups))


def train_here(folder: Path, rows: int, batch_size: int, engine: str, start: Callable[[], None]) -> None:
    """Train PUIR from the files."""
    from spuir.training import make_engine, train

    with make_engine(engine, workers=WORKERS) as place:
        start()
        train(paths(folder, rows), "puir", batch_size=batch_size, engine=place)


def batches(folder: Path, rows: int) -> Iterator[tuple[Any, Any, Any]]:
    """Yield contexts, actions and rewards of ``LARGE`` rows at a time, as someone would read them for a peer."""
    from pyarrow import dataset

    left = rows
    for batch in dataset.dataset(paths(folder, rows)).to_batches(batch_size=LARGE):
        table = batch.slice(0, left)
        left -= table.num_rows
        if table.num_rows:
            contexts = np.column_stack([table.column(name).to_numpy() for name in NAMES])
            yield contexts, table.column("action").to_numpy(), table.column("reward").to_numpy()


def feed_contextualbandits(folder: Path, rows: int) -> None:
    """Feed contextualbandits' LinUCB, by its fastest method."""
    model = import_module("contextualbandits.online").LinUCB(ACTIONS, fit_intercept=False, method="chol", njobs=WORKERS)
    for contexts, actions, rewards in batches(folder, rows):
        model.partial_fit(contexts, actions, rewards)


def feed_mabwiser(folder: Path, rows: int) -> None:
    """Feed MABWiser's LinUCB."""
    library = import_module("mabwiser.mab")
    model, fresh = library.MAB(list(range(ACTIONS)), library.LearningPolicy.LinUCB(), n_jobs=WORKERS), True
    for contexts, actions, rewards in batches(folder, rows):
        (model.fit if fresh else model.partial_fit)(actions, rewards, contexts)
        fresh = False


def feed_vowpalwabbit(folder: Path, rows: int) -> None:
    """Feed Vowpal Wabbit by its Python interface, a line of text a row."""
    model = import_module("vowpalwabbit").Workspace(f"--cb {ACTIONS} --cb_type ips --quiet")
    for contexts, actions, rewards in batches(folder, rows):
        for context, action, reward in zip(contexts.tolist(), actions.tolist(), rewards.tolist(), strict=True):
            features = " ".join(f"x{place}:{value:.6g}" for place, value in enumerate(context))
            model.learn(f"{action + 1}:{-reward:.6g}:{1 / ACTIONS} | {features}")
    model.finish()


METHODS: dict[str, tuple[Callable[..., None], int | None]] = {
    READING: (read_and_multiply, None),
    OURS: (lambda *given: train_here(given[0], given[1], LARGE, "local", given[2]), None),
    SMALL_BATCHES: (lambda *given: train_here(given[0], given[1], SMALL, "local", given[2]), None),
    DASK: (lambda *given: train_here(given[0], given[1], LARGE, "dask", given[2]), None),
    SPARK: (lambda *given: train_here(given[0], given[1], LARGE, "spark", given[2]), None),
    "contextualbandits": (feed_contextualbandits, PEER_ROWS),
    "MABWiser": (feed_mabwiser, PEER_ROWS),
    VW: (feed_vowpalwabbit, VW_ROWS),
}
ONCE = (SMALL_BATCHES, SPARK, *PEERS, VW)


def contest(name: str, folder: Path, rows: int) -> dict[str, float]:
    """Run one method in this process; return its seconds, scaled to all rows, and its peak memory."""
    run, cap = METHODS[name]
    used = min(rows, cap or rows)
    clock = [time.perf_counter()]

    def start() -> None:
        clock[0] = time.perf_counter()

    with threadpool_limits(limits=1):
        if "spuir" in name:
            run(folder, used, start)
        else:
            run(folder, used)
    seconds = time.perf_counter() - clock[0]
    return {"seconds": seconds * rows / used, "rows": used, "peak_bytes": peak_bytes()}


def peak_bytes() -> int:
    """Return the largest memory of this process so far; getrusage would count its parent's from before it began."""
    with open("/proc/self/status", encoding="ascii") as lines:
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def elsewhere(name: str, folder: Path, rows: int) -> dict[str, float]:
    """Run one method in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.training",
        "--only",
        name,
        "--rows",
        str(rows),
        "--folder",
        str(folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def measure(folder: Path, rows: int, turns: int) -> dict[str, Any]:
    """Run all methods alternately; return the fastest run of each, and the peak memory at a tenth of the rows."""
    found: dict[str, dict[str, float]] = {}
    for turn in range(turns):
        for name in METHODS:
            if turn == 0 or name not in ONCE:
                result = elsewhere(name, folder, rows)
                click.echo(f"{name}: {result['seconds']:.1f} s, {result['peak_bytes'] / 2**20:,.0f} MiB", err=True)
                if name not in found or result["seconds"] < found[name]["seconds"]:
                    found[name] = result
    small = elsewhere(OURS, folder, rows // 10)
    stored = sum(path.stat().st_size for path in folder.glob("part-*.parquet")) / len(
        list(folder.glob("part-*.parquet"))
    )
    return {
        "rows": rows,
        "machine": f"{processor()}, {WORKERS} workers",
        "methods": found,
        "peak_bytes_at_a_tenth": small["peak_bytes"],
        "bytes_per_row": stored / FILE_ROWS,
    }


def floors(results: dict[str, Any]) -> list[tuple[str, float, str, bool]]:
    """Return each requirement: what it says, what was measured, its floor as text, and whether it is reached."""
    found = results["methods"]
    seconds = {name: entry["seconds"] for name, entry in found.items()}
    peak, small = found[OURS]["peak_bytes"], results["peak_bytes_at_a_tenth"]
    peer = min(seconds[name] for name in PEERS)
    table = [
        ("time of training over time of reading and one Gram product", seconds[OURS] / seconds[READING], "≤", 1.5),
        ("peak memory, GiB", peak / 2**30, "≤", 1.5),
        ("peak memory over that at a tenth of the rows", peak / small, "≤", 1.15),
        ("faster than the faster of contextualbandits and MABWiser", peer / seconds[OURS], "≥", 2.0),
        ("faster than Vowpal Wabbit's Python interface", seconds[VW] / seconds[OURS], "≥", 20.0),
        ("throughput of Dask over that of the local engine", seconds[OURS] / seconds[DASK], "≥", 0.8),
    ]
    return [
        (what, value, f"{sign} {floor:g}", value <= floor if sign == "≤" else value >= floor)
        for what, value, sign, floor in table
    ]


def page(results: dict[str, Any]) -> str:
    """Return the page of the results: methods, requirements, and what a far larger log would cost."""
    rows = results["rows"]
    lines = [
        "# Speed of training",
        "",
        f"{rows:,} rows of {COLUMNS} columns in Parquet files, in row groups of {GROUP_ROWS:,}, {ACTIONS} actions; "
        f"{results['machine']}, one BLAS thread each. Slow peers read fewer rows, and their time is scaled up. "
        "Written by `python -m benchmarks.training`.",
        "",
        "| method | seconds | rows per second | peak memory of its main process | rows read |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, entry in results["methods"].items():
        lines.append(
            f"| {name} | {entry['seconds']:.1f} | {rows / entry['seconds']:,.0f} | "
            f"{entry['peak_bytes'] / 2**20:,.0f} MiB | {entry['rows']:,} |"
        )
    lines += ["", "| what | measured | floor | |", "|---|--:|--:|---|"]
    for what, value, floor, reached in floors(results):
        lines.append(f"| {what} | {value:.2f} | {floor} | {'reached' if reached else 'missed'} |")
    return "\n".join([*lines, "", *far(results)]) + "\n"


def far(results: dict[str, Any]) -> list[str]:
    """Return the section that predicts a far larger run, with constants from the measured one."""
    rate = results["rows"] / results["methods"][OURS]["seconds"] / WORKERS
    share, pieces = 8 * ACTIONS * (COLUMNS**2 + COLUMNS + 2), FAR_ROWS // GROUP_ROWS
    seconds = FAR_ROWS / FAR_WORKERS / rate
    stored, reduced = FAR_ROWS * results["bytes_per_row"], pieces * share
    amounts = [
        ("bytes read", f"rows × {results['bytes_per_row']:.0f} B (measured)", f"{stored / 2**40:,.0f} TiB"),
        ("the same, by one worker", "", f"{stored / FAR_WORKERS / 2**30:,.0f} GiB"),
        ("flops", "rows × d(d + 1)", f"{FAR_ROWS * COLUMNS * (COLUMNS + 1):.2g}"),
        ("time of the workers", f"rows / workers / {rate:,.0f} rows per second (measured)", f"{seconds / 60:,.0f} min"),
        ("bytes of one shard", "8·M·(d² + d + 2)", f"{share / 2**10:,.0f} KiB"),
        ("bytes that reach the driver", "row groups × shard", f"{reduced / 2**30:,.0f} GiB"),
        ("the same, per second", "", f"{reduced / seconds / 2**20:,.0f} MiB"),
    ]
    return [
        "## What a far larger log would cost",
        "",
        f"For {FAR_ROWS:,} rows of the same shape on {FAR_WORKERS:,} workers, in row groups of {GROUP_ROWS:,}, with "
        "episodes no smaller than a row group:",
        "",
        "| what | formula | amount |",
        "|---|---|--:|",
        *(f"| {what} | {formula} | {amount} |" for what, formula, amount in amounts),
        "",
        "Reading and summing grow with the rows and shrink with the workers; what reaches the driver grows with the "
        "number of row groups alone. If the driver's network is the bottleneck, larger row groups help: a shard does "
        "not grow with its rows. Smaller episodes cost one shard each, at least rows/B for episodes of B rows. This is "
        "arithmetic with measured constants; we had no such cluster.",
    ]


@click.command()
@click.option("--rows", type=int, default=10_000_000, show_default=True)
@click.option(
    "--folder", type=click.Path(path_type=Path), help="Where the files are kept.  [default: a temporary folder]"
)
@click.option("--turns", type=int, default=2, show_default=True)
@click.option("--only", type=click.Choice(list(METHODS)), help="Run one method here and print its result.")
def main(rows: int, folder: Path | None, turns: int, only: str | None) -> None:
    """Compare training from Parquet files with plain reading, peers and engines."""
    with tempfile.TemporaryDirectory(prefix="spuir-bench-") as spare:
        place = folder or Path(spare)
        write_files(place, rows)
        if only is not None:
            click.echo(json.dumps(contest(only, place, rows)))
            return
        results = measure(place, rows, turns)
    STORED.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    PAGE.write_text(page(results), encoding="utf-8")
    for what, value, floor, reached in floors(results):
        click.echo(f"{'reached' if reached else 'MISSED'}: {what}: {value:.2f} ({floor})")
    if not all(reached for *_, reached in floors(results)):
        raise SystemExit(1)


if __name__ == "__main__":
    main()

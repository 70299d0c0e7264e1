"""Joining, grouping and training from an unsorted log: ``python -m benchmarks.joins [--rows N] [--folder DIR]``.

Each method runs in a process of its own, so that its peak memory is its own too. CPU seconds are those of all its
threads; its imports do not count. Methods alternate, and the fastest turn of each counts.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

from spuir.base.streams import generator

COLUMNS, ACTIONS, EPISODES, GROUP_ROWS = 50, 10, 400, 125_000
ROOT = Path(__file__).resolve().parents[1]


def write_tables(folder: Path, rows: int) -> None:
    """Write decisions, half as many rewards, and a log of scattered episodes, also sorted by episode."""
    import pyarrow as pa
    from pyarrow import parquet

    rng = generator(0, "benchmarks", "joins")
    ids = np.array([f"{one:016x}" for one in rng.permutation(rows)])
    times = np.arange(rows, dtype=np.float64)
    decisions = {"decision_id": ids, "time": times, "action": rng.integers(ACTIONS, size=rows)}
    parquet.write_table(pa.table(decisions), folder / "decisions.parquet", row_group_size=GROUP_ROWS)
    owners = rng.integers(rows, size=rows // 2)
    rewards = {"decision_id": ids[owners], "reward": rng.standard_normal(rows // 2), "reward_time": times[owners] + 5}
    parquet.write_table(pa.table(rewards), folder / "rewards.parquet", row_group_size=GROUP_ROWS)
    count = 3 * rows // 4
    episodes = rng.integers(EPISODES, size=count)
    columns = {"episode": episodes, "action": rng.integers(ACTIONS, size=count), "reward": rng.standard_normal(count)}
    log = pa.table({**columns, **{f"x{place}": rng.standard_normal(count) for place in range(COLUMNS)}})
    how: dict[str, Any] = {"use_dictionary": False, "row_group_size": GROUP_ROWS}
    parquet.write_table(log, folder / "scattered.parquet", **how)
    parquet.write_table(log.take(pa.array(np.argsort(episodes, kind="stable"))), folder / "sorted.parquet", **how)


def join(folder: Path) -> None:
    """Join the rewards to the decisions with the library, and read the result."""
    from spuir.logs import join_logs

    log, _ = join_logs(folder / "decisions.parquet", folder / "rewards.parquet", aggregation="sum")
    for _ in log.batches(["action", "reward"]):
        pass


def group_with_library(folder: Path) -> None:
    """Group the scattered log on disk as training does."""
    from spuir.logs import cut_episodes, open_log
    from spuir.logs.temporary import Folder
    from spuir.tables.encoder import Encoder
    from spuir.training.engines.local import Local
    from spuir.training.group import SortPart, group_by_episode
    from spuir.training.scan import scan_log

    log = open_log(folder / "scattered.parquet")
    cut = cut_episodes(log)
    engine = Local(2)
    scan = scan_log(log, cut, engine, lambda *_: None, actions=True)
    scratch = Folder(folder)
    sort = SortPart(
        cut=cut,
        encoder=Encoder.fit(log.head(10_000, log.context)),
        actions=scan.actions,
        columns=("action", "reward", "episode", *log.context),
        keys=scan.keys,
        folder=scratch.path,
    )
    group_by_episode(log, scan, sort, scratch, 0, engine, lambda *_: None)


def group_with_duckdb(folder: Path) -> None:
    """Sort the scattered log by episode and row with DuckDB, and write it as an Arrow file."""
    import pyarrow as pa

    from spuir.logs import open_log
    from spuir.logs.sort import sort_rows

    log = open_log(folder / "scattered.parquet")
    schema = pa.schema([*(log.schema.field(name) for name in log.schema.names), ("number", pa.int64())])

    def numbered() -> Any:
        start = 0
        for batch in log.batches():
            numbers = pa.array(np.arange(start, start + batch.num_rows))
            start += batch.num_rows
            yield pa.RecordBatch.from_arrays([*batch.columns, numbers], schema=schema)

    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        with pa.ipc.new_file(f"{scratch}/sorted.arrow", schema) as writer:
            for batch in sort_rows(schema, numbered(), "episode, number", scratch, 512 << 20):
                writer.write_batch(batch.cast(schema))


def train_on(name: str) -> Callable[[Path], None]:
    """Return a method that trains PUIR on one of the logs."""

    def work(folder: Path) -> None:
        from spuir.training import job, train

        if name == "scattered":
            job.OPEN_BYTES = 1  # group even where all open episodes would fit into memory
        train(folder / f"{name}.parquet", "puir", workers=2)

    return work


METHODS: dict[str, Callable[[Path], None]] = {
    "join_logs": join,
    "group, Arrow (training)": group_with_library,
    "group, DuckDB": group_with_duckdb,
    "train, sorted log": train_on("sorted"),
    "train, scattered log": train_on("scattered"),
}


def contest(name: str, folder: Path) -> dict[str, float]:
    """Run one method here; return its seconds and its peak memory."""
    import duckdb
    import pyarrow

    import spuir.training  # noqa: F401 - imports do not count

    assert duckdb and pyarrow
    begin, cpu = time.perf_counter(), time.process_time()
    METHODS[name](folder)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": time.perf_counter() - begin, "cpu": time.process_time() - cpu, "peak MiB": peak}


@click.command()
@click.option("--rows", type=int, default=2_000_000, show_default=True, help="Decisions; half as many rewards.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where the tables are.  [default: a temporary folder]")
@click.option("--turns", type=int, default=2, show_default=True, help="Turns of each method.")
@click.option("--only", type=click.Choice(list(METHODS)), help="Run one method here and print its result.")
def main(rows: int, folder: Path | None, turns: int, only: str | None) -> None:
    """Measure joins, grouping, and training from a sorted and from a scattered log."""
    if only is not None and folder is not None:
        click.echo(json.dumps(contest(only, folder)))
        return
    with tempfile.TemporaryDirectory(prefix="spuir-bench-") as spare:
        place = folder or Path(spare)
        place.mkdir(parents=True, exist_ok=True)
        write_tables(place, rows)
        best: dict[str, dict[str, float]] = {}
        for _ in range(turns):
            for name in METHODS:
                command = [sys.executable, "-m", "benchmarks.joins", "--only", name, "--folder", str(place)]
                done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
                result = json.loads(done.stdout.strip().splitlines()[-1])
                if name not in best or result["cpu"] < best[name]["cpu"]:
                    best[name] = result
    click.echo("| | seconds | CPU seconds | peak memory |\n|---|--:|--:|--:|")
    for name, result in best.items():
        click.echo(f"| {name} | {result['seconds']:.1f} | {result['cpu']:.1f} | {result['peak MiB']:,.0f} MiB |")


if __name__ == "__main__":
    main()

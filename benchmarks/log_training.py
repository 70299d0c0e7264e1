"""Training from one large text file on one core and on two, and from logs that are not sorted by episode.

Each run is a process of its own, and its clock starts after its imports. Runs alternate, and the fastest of each
counts. With one worker the process is pinned to one core, so that no library helps itself to the other.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from spuir.base.streams import generator

SIZE, QUICK_SIZE = 2**30, 2**26
"""Bytes of a text file."""
BLOCK_ROWS, COLUMNS, ACTIONS, ROWS = 20_000, 10, 5, 1_500_000
TURNS = 2
TASKS: dict[str, tuple[str, dict[str, Any], int]] = {
    **{f"{kind}, {workers} workers": (f"log.{kind}", {"batch_size": 100_000}, workers)
       for kind in ("csv", "jsonl") for workers in (1, 2)},
    **{f"{order}, {every} an episode": (f"{order}.parquet", {"every": every}, 2)
       for every in ("5m", "1h") for order in ("sorted", "unsorted")},
}  # fmt: skip
"""Each run: its file, how episodes are cut, and the number of workers."""


def columns(rows: int) -> dict[str, Any]:
    """Return random decisions, one a second."""
    rng = generator(0, "benchmarks", "log_training")
    contexts = {f"x{place}": rng.standard_normal(rows).round(4) for place in range(COLUMNS)}
    decided = {"time": 1_700_000_000 + np.arange(rows), "action": rng.integers(ACTIONS, size=rows)}
    return decided | {"reward": rng.random(rows).round(4)} | contexts


def write_files(folder: Path, size: int, rows: int = ROWS) -> None:
    """Write a CSV and a JSON-lines file of about ``size`` bytes, and one log sorted by time and not sorted."""
    import pyarrow as pa
    from pyarrow import parquet

    block = columns(BLOCK_ROWS)
    lines = list(zip(*(column.tolist() for column in block.values()), strict=True))
    csv = "".join(",".join(map(repr, line)) + "\n" for line in lines).encode()
    jsonl = "".join(json.dumps(dict(zip(block, line, strict=True))) + "\n" for line in lines).encode()
    for name, header, text in (("log.csv", ",".join(block) + "\n", csv), ("log.jsonl", "", jsonl)):
        with (folder / name).open("wb") as sink:
            sink.write(header.encode())
            for _ in range(-(-size // len(text))):
                sink.write(text)
    table = pa.table(columns(rows))
    shuffled = table.take(pa.array(generator(1, "benchmarks", "log_training").permutation(rows)))
    for name, order in (("sorted", table), ("unsorted", shuffled)):
        parquet.write_table(order, folder / f"{name}.parquet", row_group_size=250_000)


def run(task: str, folder: Path) -> dict[str, float]:
    """Train in this process; return the seconds and the rows."""
    name, cut, workers = TASKS[task]
    if workers == 1:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    from spuir.training import train

    begin = time.perf_counter()
    trained = train(str(folder / name), "puir", workers=workers, **cut)
    return {"seconds": time.perf_counter() - begin, "rows": trained.rows}


def elsewhere(task: str, folder: Path) -> dict[str, float]:
    """Train in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.log_training", task, str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    return json.loads(done.stdout)


def measure(size: int, say: Callable[[str], None]) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Return the fastest turn of each run, and the ratios that have floors."""
    table: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="spuir-bench-") as name:
        folder = Path(name)
        say(f"text files of {size / 2**20:,.0f} MiB")
        write_files(folder, size)
        for turn in range(TURNS):
            for task in TASKS:
                say(f"training: {task}, turn {turn + 1}")
                result = elsewhere(task, folder)
                if task not in table or result["seconds"] < table[task]["seconds"]:
                    table[task] = result
    seconds = {task: row["seconds"] for task, row in table.items()}
    found = {f"training/workers/{kind}": seconds[f"{kind}, 1 workers"] / seconds[f"{kind}, 2 workers"]
             for kind in ("csv", "jsonl")}  # fmt: skip
    for every in ("5m", "1h"):
        ratio = seconds[f"unsorted, {every} an episode"] / seconds[f"sorted, {every} an episode"]
        found[f"training/unsorted/{every}"] = ratio
    return table, found


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], Path(sys.argv[2]))))

"""Readers of large logs side by side: ``python -m benchmarks.log_readers [rows]``.

For the decision in docs/adr/0016: one large CSV or JSON-lines file in one part, in parts on two threads, and by DuckDB;
one Parquet file of one row group by Arrow's file reader and by ``pyarrow.dataset``. Each reader runs in its
own process, which reports its time, its processor time and its peak memory.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from spuir.base.streams import generator
from spuir.logs import Part, open_log
from spuir.logs.formats import text_files

ROWS = 600_000
REPEATS = 3


def write(folder: Path, rows: int) -> None:
    """Write the same rows as CSV, JSON lines and Parquet."""
    rng = generator(0, "log_readers")
    columns = {"action": np.array(["mail", "call", "none"])[rng.integers(0, 3, rows)], "reward": rng.random(rows)}
    columns |= {f"x{at}": rng.standard_normal(rows).round(5) for at in range(16)}
    table = pa.table(columns)
    pyarrow.csv.write_csv(table, folder / "log.csv")
    pq.write_table(table, folder / "log.parquet", row_group_size=rows)
    with open(folder / "log.jsonl", "w") as file:
        for batch in table.to_batches(50_000):
            file.writelines(json.dumps(row) + "\n" for row in batch.to_pylist())


def count(part: Part) -> int:
    """Read a part and return its rows."""
    return sum(batch.num_rows for batch in part.read())


def by_parts(path: str, workers: int) -> int:
    """Read a log by its parts; with one worker as one part."""
    if workers == 1:
        text_files.SPLIT_BYTES = 1 << 62
    with ThreadPoolExecutor(workers) as pool:
        return sum(pool.map(count, open_log(path).parts))


def by_duckdb(query: str, threads: int) -> int:
    """Read a file by DuckDB, batch by batch."""
    import duckdb

    connection = duckdb.connect(config={"threads": threads})
    return sum(batch.num_rows for batch in connection.sql(query).to_arrow_reader(65_536))


def by_dataset(path: str) -> int:
    """Read one row group by ``pyarrow.dataset``, with as little read ahead as it allows."""
    from pyarrow import dataset

    options = dataset.ParquetFragmentScanOptions(use_buffered_stream=True, buffer_size=1 << 20, pre_buffer=False)
    fragment = next(iter(dataset.dataset(path).get_fragments())).split_by_row_group()[0]
    batches = fragment.to_batches(
        batch_size=65_536, use_threads=False, fragment_scan_options=options, batch_readahead=0, fragment_readahead=0
    )
    return sum(batch.num_rows for batch in batches)


READERS: dict[str, Callable[[], int]] = {
    "CSV, one part": lambda: by_parts("log.csv", 1),
    "CSV, parts on 2 threads": lambda: by_parts("log.csv", 2),
    "CSV, DuckDB on 2 threads": lambda: by_duckdb("select * from read_csv('log.csv')", 2),
    "JSON lines, one part": lambda: by_parts("log.jsonl", 1),
    "JSON lines, parts on 2 threads": lambda: by_parts("log.jsonl", 2),
    "JSON lines, DuckDB on 2 threads": lambda: by_duckdb("select * from read_json('log.jsonl')", 2),
    "Parquet row group, file reader": lambda: by_parts("log.parquet", 1),
    "Parquet row group, dataset": lambda: by_dataset("log.parquet"),
}


def measure(name: str) -> None:
    """Run one reader and print its numbers as JSON."""
    start = time.perf_counter()
    rows = READERS[name]()
    wall, peak = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(json.dumps({"rows": rows, "wall": wall, "cpu": time.process_time(), "peak": peak}))


def main(rows: int) -> None:
    """Write the files, run every reader, and print the best of its runs."""
    with tempfile.TemporaryDirectory() as folder:
        run = [sys.executable, "-m", "benchmarks.log_readers"]
        # The peak memory of a process includes that of its parent when it was started, so the parent stays small.
        subprocess.check_call([*run, "--write", str(rows)], cwd=folder)
        for name in READERS:
            command = [*run, "--reader", name]
            runs = [json.loads(subprocess.check_output(command, cwd=folder)) for _ in range(REPEATS)]
            best = {key: min(run[key] for run in runs) for key in ("wall", "cpu", "peak")}
            assert {run["rows"] for run in runs} == {rows}, name
            print(f"{name:34}{best['wall']:7.2f} s{best['cpu']:8.2f} s{best['peak']:7d} MiB", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--reader"]:
        measure(sys.argv[2])
    elif sys.argv[1:2] == ["--write"]:
        write(Path.cwd(), int(sys.argv[2]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)

"""Working memory at a million rows, each task in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.shapes import Floats, Rows, Shape, draw_rows
from benchmarks.speed import bandit

ROWS = 1_000_000
DIM, ACTIONS = 40, 20
STATUS = Path("/proc/self/status")
TASKS = {"learn": "puir", "learn sketched": "spuir", "decide": "puir"}


def peak() -> int:
    """Return the largest resident size of this process so far, in bytes."""
    # Not ru_maxrss: a process inherits that from the one that started it.
    lines = STATUS.read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def draw(rows: int) -> Rows:
    """Draw the rows piece by piece, so that drawing needs no more memory than their table."""
    contexts: Floats = np.empty((rows, DIM))
    step = min(rows, 10_000)
    small = draw_rows(Shape("memory", step, DIM, ACTIONS))
    for start in range(0, rows, step):
        contexts[start : start + step] = small.contexts[: rows - start]
    repeats = -(-rows // step)
    return Rows(contexts, np.tile(small.actions, repeats)[:rows], np.tile(small.rewards, repeats)[:rows])


def extra(task: str, rows: int) -> dict[str, float]:
    """Run one task in this process; return its working memory and the size of the contexts, in bytes."""
    shape = Shape("memory", 10_000, DIM, ACTIONS)
    made = bandit(TASKS[task], shape, draw_rows(shape, 0))
    made.decide(draw_rows(shape, 0).contexts)
    given = draw(rows)
    before = peak()
    if before < given.contexts.nbytes:
        raise MemoryError("the peak does not even hold the contexts; it cannot be trusted")
    if task == "decide":
        made.decide(given.contexts)
    else:
        made.partial_fit(given.contexts, given.actions, given.rewards, allow_repeat=True)
    return {"working_bytes": peak() - before, "context_bytes": given.contexts.nbytes}


def measure(rows: int, say: Callable[[str], None]) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Return the working memory of each task, and its ratio to the contexts."""
    table: dict[str, dict[str, float]] = {}
    if not STATUS.exists():
        say("memory is read where the system shows it in /proc; skipped")
        return {}, {}
    for task in TASKS:
        say(f"memory of {task}, {rows:,} rows")
        command = [sys.executable, "-m", "benchmarks.memory", task, str(rows)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
        table[task] = json.loads(done.stdout)
    return table, {f"memory/peak/{task}": row["working_bytes"] / row["context_bytes"] for task, row in table.items()}


if __name__ == "__main__":
    print(json.dumps(extra(sys.argv[1], int(sys.argv[2]))))

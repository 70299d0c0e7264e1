"""The command: ``python -m benchmarks [--only speed,quality] [--quick] [--out docs/benchmarks.md]``."""

import json
import os
import platform
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks import action_features, dsjson, log_training, memory, peers, quality, report, scaling, service, speed
from benchmarks.timing import Clock
from spuir.errors import InterceptWarning
from spuir.reproduction.manifest import blas, processor
from spuir.storage.atomic import finite

DIGITS = 5
PARTS = ("speed", "catalogue", "scaling", "memory", "training", "dsjson", "quality", "service")
ROOT = Path(__file__).resolve().parents[1]
STORED, PAGE, README = ROOT / "benchmarks" / "results.json", ROOT / "docs" / "benchmarks.md", ROOT / "README.md"
QUICK = speed.Effort(seconds=1.0, rounds=3, cases=1, heavy=False)


def about() -> dict[str, str]:
    """Return what the numbers depend on."""
    found = {name: version(name) for name in ("numpy", "scipy")} | peers.versions()
    return {
        "machine": f"{processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "BLAS, one thread": blas(),
        "Python": platform.python_version(),
        "versions": ", ".join(f"{name} {number}" for name, number in found.items()),
    }


def clock_row(clock: Clock) -> dict[str, float]:
    """Return what is stored of a clock."""
    return {"median_ms": clock.median, "best_ms": clock.best, "runs": len(clock.seconds), "scale": clock.scale}


def measure(part: str, results: dict[str, Any], quick: bool, say: Callable[[str], None]) -> None:
    """Run one part and file its results."""
    effort = QUICK if quick else speed.Effort()
    if part == "speed":
        raced = speed.measure(effort, say)
        table: Any = {
            title: {name: clock_row(clock) for name, clock in clocks.items()} for title, clocks in raced.tables.items()
        }
        found = raced.found
    elif part == "catalogue":
        clocks, found = action_features.measure(effort, say)
        table = {title: {name: clock_row(clock) for name, clock in own.items()} for title, own in clocks.items()}
    elif part == "scaling":
        table, found = scaling.measure(effort, say)
    elif part == "memory":
        table, found = memory.measure(memory.ROWS, say)
    elif part == "training":
        table, found = log_training.measure(log_training.QUICK_SIZE if quick else log_training.SIZE, say)
    elif part == "dsjson":
        table, found = dsjson.measure(dsjson.QUICK_MEGABYTES if quick else dsjson.MEGABYTES, say)
    elif part == "service":
        table, found = service.measure(service.QUICK_ROUNDS if quick else service.ROUNDS, say)
    else:
        table, found = quality.measure(results["seeds"], say)
    results[part] = table
    results["measured"] |= found


def read_parts(text: str) -> list[str]:
    """Return the chosen parts."""
    chosen = [part.strip() for part in text.split(",") if part.strip()]
    if unknown := sorted(set(chosen) - set(PARTS)):
        raise click.BadParameter(f"unknown part {unknown[0]!r}; the parts are {', '.join(PARTS)}", param_hint="--only")
    return chosen


def missed(results: dict[str, Any], parts: list[str]) -> list[str]:
    """Return the requirements of these parts that have a floor and did not reach it."""
    rows = report.requirement_rows(results["measured"], results["seeds"])
    wanted = [(item, value) for item, value in rows if item.section in parts and item.floor is not None]
    return [item.key for item, value in wanted if item.verdict(value) != "pass"]


FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.option("--only", default=",".join(PARTS), show_default=True, help="Parts to run, by comma.")
@click.option("--quick", is_flag=True, help="Fewer rounds and seeds, nothing slow: a look, not a verdict.")
@click.option("--out", type=FILE, help=f"Page to write; a full run writes {PAGE.relative_to(ROOT)}.")
@click.option("--stored", type=FILE, help=f"Results as JSON; a full run writes {STORED.relative_to(ROOT)}.")
@click.option("--add", is_flag=True, help="Keep the stored results of the other parts, and write the pages again.")
@click.option("--render", is_flag=True, help="Measure nothing: read the stored results, show and write them.")
def main(only: str, quick: bool, out: Path | None, stored: Path | None, add: bool, render: bool) -> None:
    """Measure spuir on one thread and say which requirements are met; fails if one is missed."""
    console = Console()
    warnings.simplefilter("ignore", InterceptWarning)  # the paper's policies have no intercept
    parts = read_parts(only)
    full = set(parts) == set(PARTS) and not quick
    written = full or add
    out, stored = out or (PAGE if written else None), stored or (STORED if written else None)
    if render:
        results = json.loads((stored or STORED).read_text(encoding="utf-8"))
    else:
        options = " --quick" * quick + f" --only {','.join(parts)}" * (set(parts) != set(PARTS))
        results = {"command": f"python -m benchmarks{options}", "quick": quick, "seeds": 4 if quick else 20}
        results |= {"about": about(), "measured": {}}
        if add:
            results = json.loads((stored or STORED).read_text(encoding="utf-8"))
        for part in parts:
            measure(part, results, quick, lambda text: console.print(f"[dim]{text} …[/dim]"))
        results = finite(results, DIGITS)
    report.show(results, console)
    for path, text in (
        (stored, json.dumps(results, indent=1, ensure_ascii=False) + "\n"),
        (out, report.markdown(results)),
        (README if written else None, report.with_summary(README.read_text(encoding="utf-8"), results)),
    ):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if not quick and (failures := missed(results, parts)):
        raise SystemExit(f"{len(failures)} requirements are missed: {', '.join(failures)}")


if __name__ == "__main__":
    main()

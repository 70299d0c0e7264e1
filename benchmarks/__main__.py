"""The command: ``python -m benchmarks [--only speed,quality] [--quick] [--out docs/benchmarks.md]``."""

import json
import os
import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from threadpoolctl import threadpool_info

from benchmarks import memory, peers, quality, report, scaling, speed
from benchmarks.requirements import grid
from benchmarks.timing import Clock

PARTS = ("speed", "scaling", "memory", "quality")
STORED = Path(__file__).with_name("results.json")
QUICK = speed.Effort(seconds=1.0, rounds=3, cases=1, heavy=False)


def processor() -> str:
    """Return the processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def about() -> dict[str, str]:
    """Return what the numbers depend on."""
    blas = {f"{item['internal_api']} {item.get('version')}" for item in threadpool_info() if item["user_api"] == "blas"}
    found = {name: version(name) for name in ("numpy", "scipy")} | peers.versions()
    return {
        "machine": f"{processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "BLAS, one thread": ", ".join(sorted(blas)),
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
    elif part == "scaling":
        table, found = scaling.measure(effort, say)
    elif part == "memory":
        table, found = memory.measure(memory.ROWS, say)
    else:
        table, found = quality.measure(results["seeds"], say)
    results[part] = table
    results["measured"] |= found


def rounded(value: Any) -> Any:
    """Return ``value`` with its numbers at five figures, so that the stored file stays small."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


@click.command()
@click.option(
    "--only",
    default=",".join(PARTS),
    show_default=True,
    help="Parts to run, by comma; the others keep their stored results.",
)
@click.option("--quick", is_flag=True, help="Fewer rounds and seeds, nothing slow: a look, not a verdict.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Markdown page to write.")
@click.option(
    "--stored",
    type=click.Path(dir_okay=False, path_type=Path),
    default=STORED,
    help="Results as JSON, read and written.",
)
@click.option("--render", is_flag=True, help="Measure nothing; show and write the stored results.")
def main(only: str, quick: bool, out: Path | None, stored: Path, render: bool) -> None:
    """Measure spuir and say which requirements are met; the exit code counts the failures."""
    console = Console()
    chosen = [] if render else [part for part in only.split(",") if part]
    if unknown := sorted(set(chosen) - set(PARTS)):
        raise click.BadParameter(f"unknown part {unknown[0]!r}; the parts are {', '.join(PARTS)}", param_hint="--only")
    fresh = {"command": f"python -m benchmarks{' --quick' * quick}", "quick": quick, "seeds": 4 if quick else 20}
    fresh |= {"measured": {}}
    keep = stored.exists() and (
        render or (set(chosen) != set(PARTS) and json.loads(stored.read_text())["quick"] == quick)
    )
    results: dict[str, Any] = json.loads(stored.read_text()) if keep else fresh
    if not render:
        results["about"] = about()
    for part in chosen:
        measure(part, results, quick, lambda text: console.print(f"[dim]{text} …[/dim]"))
        stored.write_text(json.dumps(rounded(results), indent=1, ensure_ascii=False) + "\n")
    report.show(results, console)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(report.markdown(results), encoding="utf-8")
    failed = [item.key for item in grid(results["seeds"]) if item.verdict(results["measured"].get(item.key)) == "fail"]
    if failed:
        raise SystemExit(f"{len(failed)} requirements are missed: {', '.join(failed)}")


if __name__ == "__main__":
    main()

"""The files of a report: figures, tables, samples, verdicts and rows, then one page with all of it.

The same results give the same bytes. ``results.json`` has everything that the pages show. Only ``manifest.json`` has
times.
"""

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spuir.base.hashing import digest
from spuir.reproduction.base import Drawing, Findings, ReportTable, Scope
from spuir.reproduction.claims import Claim, judge_all, samples_of
from spuir.reproduction.pages import html_page
from spuir.reproduction.schedule import Asked, Failures, error_line
from spuir.reproduction.store import Store
from spuir.reproduction.table_text import latex, lay_out
from spuir.reproduction.tasks import Result
from spuir.reproduction.workers import Watcher, run_jobs
from spuir.results import figures
from spuir.storage.atomic import finite, write_csv, write_json, write_text

PACKAGE = Path(__file__).parents[1]
RESULTS, PAGE, VERDICTS = "results.json", "report.html", "verdicts.json"
MISSING_SHOWN = 12
TITLE = "Reward Imputation with Sketching for Contextual Batched Bandits, reproduced"
GENERATED = ", on generated Criteo rows"


@dataclass(frozen=True, kw_only=True)
class Section:
    """The section of one experiment. Each is a job for a worker, because drawing takes most of the time."""

    asked: Asked
    scope: Scope
    folder: Path

    def run(self, step: Watcher | None = None) -> dict[str, Any]:
        """Write the figures, tables, samples and rows; return what the pages show of the experiment."""
        experiment, results = self.asked.experiment, self.asked.results
        write_csv(self.folder / "rows" / f"{experiment.name}.csv", tidy(results))
        findings = experiment.report(self.scope, results)
        self._keep_samples(findings.claims)
        return describe(self.asked) | self._shown(findings)

    def _shown(self, findings: Findings) -> dict[str, Any]:
        return {
            "figures": [self._draw(name, drawing) for name, drawing in findings.drawings.items()],
            "tables": [self._tabulate(table) for table in findings.tables],
            "verdicts": [verdict.record(self.asked.experiment.name) for verdict in judge_all(findings.claims)],
        }

    def _keep_samples(self, claims: Sequence[Claim]) -> None:
        """Write one line per sample: its values by seed in one file, the keys of its tasks in another."""
        samples = samples_of(claims)
        for kind in ("values", "runs") if samples else ():
            lines = [
                {"sample": name} | {str(seed): value for seed, value in sorted(getattr(one, kind).items())}
                for name, one in sorted(samples.items())
            ]
            write_csv(self.folder / "samples" / f"{self.asked.experiment.name}-{kind}.csv", lines)

    def _file(self, kind: str, name: str) -> str:
        stem = self.asked.experiment.name
        return f"{kind}/{stem}-{name}" if name else f"{kind}/{stem}"

    def _draw(self, name: str, drawing: Drawing) -> dict[str, Any]:
        file = self._file("figures", name)
        figures.save(drawing.figure, self.folder / file, pdf=True)
        inches = round(float(drawing.figure.get_figwidth()), 2)
        shown = {"name": name, "file": f"{file}.svg", "inches": inches}
        title = self.asked.experiment.title
        return shown | {"alt": described(title, name, drawing.caption), "caption": drawing.caption}

    def _tabulate(self, table: ReportTable) -> dict[str, Any]:
        stem = self._file("tables", table.name)
        write_csv(self.folder / f"{stem}.csv", table.rows)
        write_text(self.folder / f"{stem}.tex", latex(lay_out(table.rows, table.formats), table.title))
        about = {"name": table.name, "title": table.title, "file": f"{stem}.csv"}
        return about | {"formats": table.formats, "rows": table.rows}


def describe(asked: Asked) -> dict[str, Any]:
    """Return what the pages show of an experiment before its report is made."""
    experiment, missing = asked.experiment, asked.missing
    return {
        "name": experiment.name,
        "title": experiment.title,
        "source": experiment.source,
        "tasks": len(asked.tasks),
        "core_seconds": round(sum(result.seconds for result in asked.results), 1),
        "missing": [task.label for task in missing[:MISSING_SHOWN]],
        "missing_count": len(missing),
        "failure": asked.failure,
        "figures": [],
        "tables": [],
        "verdicts": [],
    }


def tidy(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return the rows of results as one table: the arguments of each, flattened, then its own columns."""
    rows: list[dict[str, Any]] = []
    for result in results:
        given = {"key": result.task.key, "seconds": result.seconds} | flat(result.arguments)
        rows += [given | dict(row) for row in result.rows]
    return rows


def flat(data: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return nested data as one level: ``{"a": {"b": 1}}`` as ``{"a.b": 1}``, lists as JSON."""
    columns: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, Mapping):
            columns |= flat(value, f"{before}{name}.")
        else:
            columns[before + name] = json.dumps(value) if isinstance(value, list) else value
    return columns


def described(title: str, name: str, caption: str) -> str:
    """Return what a figure shows, for readers who cannot see it: its title and the first sentence of its caption.

    If that is of the left half alone, the sentence of the right half follows. ``name`` tells apart the figures of
    one experiment.
    """
    sentence = re.match(r"(Left: .*?\. (?=Right: ))?.*?(\.(?= )|$)", caption)
    assert sentence is not None
    return f"{title}{name and f' ({name})'} – {sentence[0]}".replace("`", "")


def write_report(
    asked: Sequence[Asked],
    failures: Failures,
    scope: Scope,
    store: Store,
    *,
    workers: int,
    command: str,
    follow: Watcher | None = None,
) -> dict[str, Any]:
    """Write the report into the store's folder and return what ``results.json`` holds.

    A report that the same code wrote from the same results is left as it is.
    """
    stamp = fingerprint(asked, failures, scope, command)
    known = _known(store, stamp)
    if known is not None:
        return known
    sections = _sections(asked, scope, store.folder, workers, follow)
    data = finite(about(asked, failures, scope, store, command) | {"experiments": sections})
    write_json(store.folder / RESULTS, data)
    write_json(store.folder / VERDICTS, [verdict for one in sections for verdict in one["verdicts"]])
    write_text(store.folder / PAGE, html_page(data, pictures(sections, store.folder), store.manifest))
    store.note(report={"command": command, "experiments": [one["name"] for one in sections], "stamp": stamp})
    return data


def _known(store: Store, stamp: str) -> dict[str, Any] | None:
    """Return what an earlier report holds, if it has the same stamp and its files still exist."""
    if store.manifest.get("report", {}).get("stamp") != stamp:
        return None
    try:
        data = json.loads((store.folder / RESULTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    files = [item["file"] for one in data["experiments"] for item in (*one["figures"], *one["tables"])]
    return data if all((store.folder / file).exists() for file in (*files, PAGE, VERDICTS)) else None


def fingerprint(asked: Sequence[Asked], failures: Failures, scope: Scope, command: str) -> str:
    """Return a digest of everything a report depends on: results, failures, scope, and the code of this package."""
    parts: list[str | bytes] = [repr([failures, scope, command])]
    for one in asked:
        done = [(result.task.key, result.seconds) for result in one.results]
        parts.append(repr([one.experiment.name, done, [task.key for task in one.missing], one.failure]))
    parts += [path.read_bytes() for path in sorted(PACKAGE.rglob("*")) if path.suffix in (".py", ".css", ".j2")]
    return digest(*parts)


def _sections(
    asked: Sequence[Asked], scope: Scope, folder: Path, workers: int, follow: Watcher | None
) -> list[dict[str, Any]]:
    """Write the sections, several at a time. A section that fails says why."""
    able = [one for one in asked if one.results]
    jobs = [Section(asked=one, scope=scope, folder=folder) for one in able]
    made = {one.experiment.name: describe(one) for one in asked}
    for number, done in enumerate(run_jobs(jobs, workers, apart=len(jobs) > 1), 1):
        name = able[done.place].experiment.name
        made[name] = done.value or made[name] | {"failure": error_line(done.failure or ValueError("no section"))}
        if follow is not None:
            follow(number)
    return list(made.values())


def about(asked: Sequence[Asked], failures: Failures, scope: Scope, store: Store, command: str) -> dict[str, Any]:
    """Return what the results come from: the command, seeds, versions and machine."""
    generated = any(_is_generated(result) for one in asked for result in one.results)
    sitting = (store.manifest.get("sittings") or [{}])[-1]
    # A task that several experiments share ran once.
    seconds = {result.task.key: result.seconds for one in asked for result in one.results}
    return {
        "title": TITLE + (GENERATED if generated else ""),
        "generated": generated,
        "core_seconds": round(sum(seconds.values()), 1),
        "command": command,
        "repeats": scope.repeats,
        "quick": scope.quick,
        "seeds": list(scope.seeds),
        "versions": sitting.get("versions", {}),
        "blas": sitting.get("blas"),
        "machine": sitting.get("machine", {}),
        "failures": list(failures.values()),
    }


def _is_generated(result: Result) -> bool:
    """Return whether a result comes from the Criteo environment without Criteo's file."""
    given = result.arguments
    return str(given.get("environment", "")).startswith("criteo") and not (given.get("world") or {}).get("path")


def pictures(sections: Sequence[Mapping[str, Any]], folder: Path) -> dict[str, str]:
    """Return the data address of each figure, by file, so that the page needs no other file."""
    files = [figure["file"] for section in sections for figure in section["figures"]]
    return {file: "data:image/svg+xml;base64," + b64encode((folder / file).read_bytes()).decode() for file in files}

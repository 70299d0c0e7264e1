"""What commands print and write: results, notes, and the files beside a model, which never replace a log."""

import fnmatch
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from spuir.cli import options
from spuir.errors import MissingExtraError, ParameterError

STARTS = {"episodes": ("csv", "episode,key,rows,"), "tuning": ("json", '{\n  "winner": {')}
"""How the files begin that are written beside a model: the episode table of a training, the results of a tuning."""
FIGURES = {"episodes": "policy", "tuning": "tuning"}
"""What the figure of a run is called: that of a training shows the policy, not its episodes."""
MOVES_START = "episode,key,action,"


def print_result(data: Any, show: Callable[[], object], as_json: bool, quiet: bool = False) -> None:
    """Print a result: as JSON if asked, or else by ``show``, which a quiet command leaves out."""
    if as_json:
        print_json(data)
    elif not quiet:
        show()


def print_json(data: Any) -> None:
    """Print data as JSON, with escapes for other characters than ASCII where the output is not in a form of Unicode."""
    unicode = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    click.echo(json.dumps(data, indent=2, ensure_ascii=not unicode))


def note_unless(quiet: bool) -> Callable[[str], object]:
    """Return what prints a note on the error stream, as soon as it is known; nothing if ``quiet``."""
    return (lambda note: None) if quiet else (lambda note: click.echo(f"· {note}", err=True))


def print_written(paths: Iterable[Path], quiet: bool) -> None:
    """Print which files were written, on the error stream."""
    if not quiet:
        click.echo(f"wrote {', '.join(map(str, paths))}", err=True)


def draw(make: Callable[..., Any], stem: Path) -> tuple[list[Path], list[str]]:
    """Draw the figure of ``make(path=…)`` as PNG and SVG; return the files, or a note why there are none."""
    drawn = [Path(f"{stem}.{kind}") for kind in ("png", "svg")]
    try:
        make(path=drawn[0])
    except MissingExtraError as missing:
        return [], [f"no figure was drawn: {missing}"]
    except OSError as failure:
        for path in drawn:
            path.unlink(missing_ok=True)  # half of it may have been written
        return [], [f"no figure was drawn: {failure.strerror or failure}"]
    return drawn, []


def beside(out: Path, what: str = "episodes") -> Path:
    """Return the path of a table and its figure beside a model, without the extension."""
    stem = out.with_suffix("") if out.suffix else out
    return stem.with_name(f"{stem.name}.{what}")


def check_out(out: Path, sources: Sequence[str], what: str = "episodes") -> None:
    """Refuse to overwrite the log, or to write into a folder of it."""
    from spuir.training.coefficient_moves import moves_file

    if not out.name:
        raise ParameterError("--out", out, "a model is one file", "name a file, such as model.spuir")
    endings = ("csv", "json", "png", "svg")
    beside_it = (f"{beside(out, name)}.{ending}" for name in (what, FIGURES[what]) for ending in endings)
    _check_replaced(out, what)
    check_apart((out, moves_file(out), *beside_it), sources, "the model and the files beside it")


def check_apart(written: Sequence[Path | str], sources: Sequence[str], what: str = "the file") -> None:
    """Refuse to overwrite a source, or to write into a folder that is one; ``written`` begins with --out."""
    paths = [Path(os.path.realpath(path)) for path in written]
    for source in sources:
        read, folder = Path(os.path.realpath(source)), _fixed_folder(source)
        # A name with brackets is a pattern that does not match itself, so both tests are needed.
        if any(path == read or _matches(path, read) or _within(path, folder) for path in paths):
            rule = f"{what} would overwrite {source!r} or be written into it"
            raise ParameterError("--out", written[0], rule, "name another file, elsewhere")


def _within(path: Path, folder: Path | None) -> bool:
    return folder is not None and folder.is_dir() and path.is_relative_to(folder)


def _fixed_folder(source: str) -> Path | None:
    """Return the folder that a source reads: itself, or what a pattern has before its first wildcard, if anything."""
    names = Path(source).parts
    fixed = [name for at, name in enumerate(names) if not any(mark in "/".join(names[: at + 1]) for mark in "*?[")]
    return Path(os.path.realpath(Path(*fixed))) if fixed else None


def _matches(path: Path, pattern: Path) -> bool:
    """Return whether a path matches a pattern, in which ``**`` stands for any number of folders."""
    if not pattern.parts or not path.parts:
        return not pattern.parts and not path.parts
    if pattern.parts[0] == "**":
        rest = Path(*pattern.parts[1:])
        return any(_matches(Path(*path.parts[at:]), rest) for at in range(len(path.parts) + 1))
    same = fnmatch.fnmatchcase(path.parts[0], pattern.parts[0])
    return same and _matches(Path(*path.parts[1:]), Path(*pattern.parts[1:]))


def _check_replaced(out: Path, what: str) -> None:
    """Refuse to replace a file that no earlier run wrote: the first line of its table tells."""
    from spuir.training.coefficient_moves import moves_file

    stem, figure, (ending, start) = beside(out, what), beside(out, FIGURES[what]), STARTS[what]
    table, moves = Path(f"{stem}.{ending}"), moves_file(out)
    drawn = (Path(f"{figure}.png"), Path(f"{figure}.svg"))
    groups = {table: (start, (table, *drawn)), moves: (MOVES_START, (moves,))}
    for first, (line, files) in groups.items():
        ours = False
        with suppress(OSError, UnicodeDecodeError), first.open(encoding="utf-8") as text:
            ours = text.read(len(line)) == line
        taken = [path for path in files if os.path.exists(path)]
        if taken and not ours:
            rule = f"the files beside the model would replace {os.fspath(taken[0])!r}, which spuir did not write"
            raise ParameterError("--out", out, rule, "save the model elsewhere, or move that file")


@contextmanager
def interruptible(out: Path) -> Iterator[None]:
    """Report, after an interrupt, whether the work can be resumed."""
    try:
        yield
    except KeyboardInterrupt:
        kept = any(out.with_name(out.name + ".progress").glob("*.json"))
        after = "run the same command again to resume" if kept else "nothing was learned yet"
        click.echo(f"stopped; {after}", err=True)
        click.get_current_context().exit(options.INTERRUPTED)

"""One name per thing: no public class and no module has the name of another, and ``dir(spuir)`` is the public face."""

import ast
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import spuir

HOUSE = Path(spuir.__file__).parent
FAMILIES = (
    "policies",
    "sketches",
    "features",
    "environments",
    "reproduction/experiments",
    "logs/formats",
    "training/engines",
    "cli",
)
"""Folders with one member per file, which is named after the member."""
SHARED = {"__init__", "base"}
"""Module names that stand for the same thing in every room."""


def public_classes(module: Path) -> list[str]:
    """Return the names of the public classes that a module defines."""
    statements = ast.parse(module.read_text(encoding="utf-8")).body
    return [one.name for one in statements if isinstance(one, ast.ClassDef) and not one.name.startswith("_")]


def is_member(module: Path) -> bool:
    """Tell whether a module is a member of a family."""
    return module.parent.relative_to(HOUSE).as_posix() in FAMILIES


def test_no_two_public_classes_have_the_same_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module in sorted(HOUSE.rglob("*.py")):
        for name in public_classes(module):
            places[name].append(module.relative_to(HOUSE).as_posix())
    shared = {name: where for name, where in places.items() if len(where) > 1}
    assert not shared, f"one name, several classes: {shared}"


def test_no_two_modules_have_the_same_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module in sorted(HOUSE.rglob("*.py")):
        if module.stem == "__init__" and module.parent != HOUSE:
            places[module.parent.name].append(module.parent.relative_to(HOUSE).as_posix())
        elif module.stem not in SHARED and not is_member(module):
            places[module.stem].append(module.relative_to(HOUSE).as_posix())
    shared = {name: where for name, where in places.items() if len(where) > 1}
    assert not shared, f"one name, several modules: {shared}"


def test_the_house_has_at_most_twenty_rooms() -> None:
    entries = [entry.name for entry in HOUSE.iterdir() if not entry.name.startswith("__")]
    assert len(set(entries) - {"py.typed"}) <= 20, sorted(entries)


def test_dir_shows_the_public_names_and_nothing_else() -> None:
    # In a fresh interpreter, since submodules become attributes of the package when they are imported.
    code = "import spuir; print(*dir(spuir)); spuir.Bandit; spuir.errors; import spuir.loop; print(*dir(spuir))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = done.stdout.splitlines()
    assert before == after == " ".join(sorted(spuir.__all__))


def test_the_modules_of_the_how_tos_need_no_import_of_their_own() -> None:
    code = "import spuir; spuir.training.train, spuir.logs.open_log, spuir.evaluation.replay, spuir.service.Client"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_can_be_imported() -> None:
    assert set(spuir.__all__) - {"__version__"} == set(spuir._PUBLIC)
    for name in spuir.__all__:
        assert getattr(spuir, name) is not None

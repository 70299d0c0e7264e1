"""The table of checks is complete: 25 checks, each with tests that exist, and with results that are good."""

import ast
import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "docs" / "service_checks.py"))
CHECKS, belongs, rows, results_in = (SCRIPT[name] for name in ("CHECKS", "belongs", "rows", "results_in"))


def known_tests() -> set[str]:
    """Return the tests of the service, as file::name."""
    return {
        f"{file.stem}::{node.name}"
        for file in (ROOT / "tests" / "service").rglob("test_*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_every_check_has_tests() -> None:
    tests = known_tests()
    assert len(CHECKS) == 25
    for check in CHECKS:
        assert check.tests, check.name
        for pattern in check.tests:
            assert any(belongs(test, pattern) for test in tests), f"{check.name}: no test is called {pattern}"


def test_outcomes_are_counted(tmp_path: Path) -> None:
    suite = ElementTree.Element("testsuite")
    for name, outcome in [("jumps_of_the_clock", None), ("jumps_of_the_clock_again", "failure")]:
        case = ElementTree.SubElement(suite, "testcase", classname="tests.service.test_joining", name=f"test_{name}")
        if outcome:
            ElementTree.SubElement(case, outcome)
    ElementTree.ElementTree(suite).write(tmp_path / "results.xml")
    line = next(line for line in rows(results_in(tmp_path / "results.xml"), {}) if "| Clock skew |" in line)
    assert line.endswith("| `test_joining` | 1 failure, 1 passed | – |")


def test_the_table_is_filled_with_good_results() -> None:
    page = (ROOT / "docs" / "explanation" / "service-guarantees.md").read_text(encoding="utf-8")
    table = page.split("<!-- checks -->")[1].split("<!-- /checks -->")[0]
    lines = re.findall(r"^\| (\d+) \| ([^|]+) \|.*\| ([^|]+) \| ([^|]+) \|$", table, re.MULTILINE)
    assert [(int(number), name) for number, name, *_ in lines] == [
        (number, check.name) for number, check in enumerate(CHECKS, start=1)
    ]
    for number, name, short, long in lines:
        assert re.fullmatch(r"[\d,]+ passed", short), f"check {number}, {name}: {short}"
        assert re.fullmatch(r"[\d,]+ passed|–", long), f"check {number}, {name}: {long}"

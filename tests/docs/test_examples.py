"""The scripts in ``examples/`` run in an empty folder and print what the page of examples says."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r"\{literalinclude\} \.\./examples/(\w+\.py)\n.*?^<!-- output -->\n+```text\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
SHOWN: dict[str, str] = dict(BLOCK.findall((ROOT / "docs" / "examples.md").read_text(encoding="utf-8")))
"""What each script prints, as the page has it."""


def test_the_page_shows_every_script_with_its_output() -> None:
    assert set(SHOWN) == {path.name for path in (ROOT / "examples").glob("*.py")}


@pytest.mark.parametrize("name", SHOWN)
def test_a_script_prints_what_the_page_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    assert capsys.readouterr().out == SHOWN[name]

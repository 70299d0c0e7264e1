"""Every Python block in the README, the tutorial and the how-tos runs, in order, and prints what the page says.

A block fenced as ``python`` is run; the blocks of one page share their names and a temporary folder. A block that
follows the comment ``<!-- output -->`` holds what the block before it prints. Lines that call ``spuir`` in a block
fenced as ``sh`` are run too, where they stand, made small, and so are those that call ``curl``. A page that names the
address of the service finds a server there.
"""

import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from spuir.cli import main
from spuir.cli import run as run_module
from spuir.evaluation import exploration
from spuir.policies import POLICIES
from tests.service.processes import server_process

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RUN = [ROOT / "README.md", DOCS / "tutorial.md", DOCS / "reference" / "api.md", *sorted((DOCS / "howto").glob("*.md"))]
CALLED = sorted((DOCS / "explanation").glob("*.md"))
FENCE = re.compile(
    r"^(?P<mark><!-- output -->\n+)?(?P<fence>```+)(?P<kind>[^\n`]*)\n(?P<body>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
BESIDE = {"docs/howto/adding-a-policy.md": {"my_package/softmax.py": DOCS / "howto" / "skeleton_policy.py"}}
"""Files that a page tells the reader to write, and where the test finds them."""
BETWEEN = "\x1e"
SERVICE = "http://127.0.0.1:8000"
"""The address of the service on the pages; the test has a server on another port."""
SMALL = {
    "run": "--episodes 2 --batch-size 60 --seeds 1 --workers 1".split(),
    "tune": "--budget 3 --learning replay --workers 1".split(),
    "reproduce": "--only many-actions --quick --repeats 1 --workers 1".split(),
}
"""What is added to a command so that it takes a moment."""


class Block(NamedTuple):
    """A fenced block: its language, its text, the number of its first line, and whether it is marked as output."""

    kind: str
    body: str
    line: int
    output: bool


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a Markdown text."""
    return [
        Block(fence["kind"], fence["body"], text.count("\n", 0, fence.start("body")), fence["mark"] is not None)
        for fence in FENCE.finditer(text)
    ]


def script(page: list[Block]) -> str:
    """Return the Python blocks and the commands as one program, each at the line where it stands on its page."""
    lines: list[str] = []
    for block in page:
        code = block.body.splitlines() if block.kind == "python" else calls(block)
        if code:
            lines += [""] * (block.line - len(lines)) + code
        if prints(block):
            # It takes the line of the closing fence, so that the blocks after it stay where they are.
            lines.append(f"print({BETWEEN!r})")
    return "\n".join(lines) + "\n"


def calls(block: Block) -> list[str]:
    """Return the commands of a shell block as Python."""
    lines = block.body.replace("\\\n", " ").splitlines() if block.kind == "sh" else []
    spuir = [f"call_spuir({arguments!r})" for arguments in commands([block])]
    return spuir + [f"call_curl({line!r})" for line in lines if line.startswith("curl ")]


def prints(block: Block) -> bool:
    """Tell whether a page can say what a block prints."""
    return block.kind == "python" or any("call_curl" in call for call in calls(block))


def call_curl(command: str) -> None:
    """Run one call of curl as a page has it, and print the answer."""
    answer = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout
    print(answer, end="" if answer.endswith("\n") or not answer else "\n")


def call_spuir(arguments: list[str]) -> None:
    """Run one command of a page."""
    # Worker processes begin with the file of the main module, which is the page: they would run it again.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "__main__", ModuleType("__main__"))
        patch.setattr(exploration, "ALPHAS", (0.1,))
        patch.setattr(exploration, "MORE_SEEDS", range(2, 3))
        outcome = CliRunner().invoke(main, [*arguments, *SMALL.get(arguments[0], [])])
    assert outcome.exit_code == 0, f"spuir {shlex.join(arguments)}: {outcome.output}"


def expected(page: list[Block]) -> list[str | None]:
    """Return what each block has to print, None where the page does not say."""
    outputs: list[str | None] = []
    for block in page:
        if prints(block):
            outputs.append(None)
        elif block.output:
            outputs[-1] = block.body
    return outputs


def commands(page: list[Block]) -> list[list[str]]:
    """Return the arguments of every call of spuir in the shell blocks."""
    lines = [line for block in page if block.kind == "sh" for line in block.body.replace("\\\n", " ").splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("spuir ")]


def test_blocks_are_found_with_their_lines_and_marks() -> None:
    text = "a\n\n```python\nprint(1)\n```\n\n<!-- output -->\n```text\n1\n```\n"
    text += "\n```sh\nspuir list \\\n  --json  # all\n```\n"
    fences = blocks(text)
    assert fences == [
        Block("python", "print(1)\n", 3, False),
        Block("text", "1\n", 8, True),
        Block("sh", "spuir list \\\n  --json  # all\n", 12, False),
    ]
    assert script(fences).splitlines()[3] == "print(1)"
    assert expected(fences) == ["1\n"]
    assert commands(fences) == [["list", "--json"]]
    (asking,) = blocks("```sh\ncurl -s a \\\n  -d b\n```\n")
    assert prints(asking) and calls(asking) == ["call_curl('curl -s a    -d b')"]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def read(page: Path) -> list[Block]:
    return blocks(page.read_text(encoding="utf-8"))


@pytest.fixture
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Run in a temporary folder, from which modules can be imported, and forget these and what they registered."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(POLICIES, "_table", dict(POLICIES._table))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_blocks_run_and_print_what_the_page_says(
    page: Path, apart: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fences = read(page)
    assert any(block.kind == "python" for block in fences)
    # Figures have tests of their own, and cost more than these small runs.
    monkeypatch.setattr(run_module, "draw", lambda *_: ([], []))
    for name, source in BESIDE.get(name_of(page), {}).items():
        (apart / name).parent.mkdir(parents=True)
        shutil.copy(source, apart / name)
    program = apart / "page.py"
    text = script(fences)
    with server_process(apart, "--store", "spuir.db") if SERVICE in text else nullcontext() as server:
        program.write_text(text if server is None else text.replace(SERVICE, server.url), encoding="utf-8")
        known = {"call_spuir": call_spuir, "call_curl": call_curl}
        runpy.run_path(str(program), init_globals=known, run_name="__main__")
    printed = capsys.readouterr().out.split(BETWEEN + "\n")[:-1]
    shown = expected(fences)
    assert len(printed) == len(shown)
    for text, output in zip(shown, printed, strict=True):
        assert text is None or text == output


@pytest.mark.parametrize("page", [page for page in CALLED if commands(read(page))], ids=name_of)
@pytest.mark.usefixtures("apart")
def test_commands_run(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "draw", lambda *_: ([], []))
    for arguments in commands(read(page)):
        call_spuir(arguments)


def test_the_example_of_the_readme_has_at_most_ten_lines() -> None:
    first = next(block for block in read(ROOT / "README.md") if block.kind == "python")
    assert len(first.body.splitlines()) <= 10

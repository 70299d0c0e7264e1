"""What readers get: complete, self-contained, the same bytes from the same results."""

import csv
import json
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from spuir.reproduction.base import Scope
from spuir.reproduction.report import described, flat, tidy, write_report
from spuir.reproduction.schedule import Asked, carry_out
from spuir.reproduction.store import open_store
from spuir.reproduction.table_text import lay_out, number, typeset
from spuir.reproduction.tasks import Result, Task
from tests.reproduction import toy

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the results and the report of two toys, one of which cannot be written up."""
    side = tmp_path_factory.mktemp("side")
    out = side / "out"
    written(out, side)
    return out


def written(out, side, **changes):
    plan = Scope(repeats=2, data=side)
    with open_store(out) as store:
        asked, failures = carry_out([toy.EXPERIMENT, toy.SILENT], plan, store, 1)
        given = {"workers": 1, "command": "spuir reproduce --only toy,silent"} | changes
        return write_report(asked, failures, plan, store, **given)


def files(out):
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}


class Outline(HTMLParser):
    """Checks that tags are balanced and collects ids, links, addresses and alternative texts."""

    VOID = ("meta", "img", "br")

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.sources, self.alts = [], [], [], [], []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag not in self.VOID:
            self.open.append(tag)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if "href" in given else []
        self.sources += [given["src"]] if "src" in given else []
        self.alts += [given.get("alt")] if tag == "img" else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def outline(folder):
    found = Outline()
    found.feed((folder / "report.html").read_text(encoding="utf-8"))
    return found


def test_every_file_is_there(folder):
    assert set(files(folder)) == {
        "figures/toy.pdf",
        "figures/toy.png",
        "figures/toy.svg",
        "lock",
        "manifest.json",
        "report.html",
        "results.json",
        "results.jsonl",
        "rows/silent.csv",
        "rows/toy.csv",
        "samples/toy-runs.csv",
        "samples/toy-values.csv",
        "tables/toy-odd.csv",
        "tables/toy-odd.tex",
        "tables/toy.csv",
        "tables/toy.tex",
        "verdicts.json",
    }


def test_the_page_is_whole_and_needs_nothing_else(folder, outline):
    assert outline.open == []
    assert len(set(outline.ids)) == len(outline.ids)
    assert {"verdicts", "origin", "toy", "silent"} <= set(outline.ids)
    inner = {link[1:] for link in outline.links if link.startswith("#")}
    assert inner <= set(outline.ids)
    assert all((folder / link).exists() for link in outline.links if not link.startswith("#"))
    assert all(source.startswith("data:image/svg+xml;base64,") for source in outline.sources)
    assert outline.alts == ["A toy & its box – Rewards & more, −0.5 to 5\u202f%."]
    assert "http" not in (folder / "report.html").read_text(encoding="utf-8")


def test_the_page_says_what_was_found(folder):
    text = (folder / "report.html").read_text(encoding="utf-8")
    for said in (
        "A toy &amp; its box",
        "Rewards &amp; more, −0.5 to 5\u202f%.",
        "a | b &lt;c&gt;",
        "1,234,567",
        "high − low: 1.5 [1.5, 1.5], n = 4",
        "5\u202f% is not 7\u202f%.",
        '<span class="badge holds">holds</span>',
        '<span class="badge contradicted">contradicted</span>',
        '<span class="badge untested">not a test</span>',
        "only at the settings of the authors&#39; code",
        "could not be written: ValueError: nothing to say",
        "spuir reproduce --only toy,silent",
    ):
        assert said in text


def test_tables_verdicts_and_rows_as_files(folder):
    with (folder / "tables" / "toy.csv").open(encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    with (folder / "rows" / "toy.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(table[0]) == ["cell", "reward", "reward ±"]
    assert [row["cell"] for row in rows[::2]] == [row["cell"] for row in table]
    assert [row["reward"] for row in rows[1::2]] == [row["reward"] for row in table]
    verdicts = json.loads((folder / "verdicts.json").read_text(encoding="utf-8"))
    outcomes = ["holds", "contradicted", "undecided", "not a test", "only at the settings of the authors' code"]
    assert [one["outcome"] for one in verdicts] == outcomes
    assert [one["id"] for one in verdicts[:3]] == ["toy/one-two", "toy/two-one", "toy/open"]
    with (folder / "samples" / "toy-values.csv").open(encoding="utf-8") as file:
        samples = {row.pop("sample"): row for row in csv.DictReader(file)}
    assert samples["high"] == {"0": "1.0", "1": "1.01", "2": "1.02", "3": "1.03"}
    tex = (folder / "tables" / "toy-odd.tex").read_text(encoding="utf-8")
    assert r"\caption{Odd \& ends}" in tex
    assert tex.count(r"\\") == 2


def test_the_same_results_give_the_same_bytes(folder):
    before = files(folder)
    written(folder, folder.parent, command="another")
    written(folder, folder.parent)
    assert files(folder) == before


def test_what_is_written_already_is_left_alone_unless_a_file_is_gone(folder):
    before = {name: (folder / name).stat().st_mtime_ns for name in files(folder) if name != "lock"}
    written(folder, folder.parent)
    assert before == {name: (folder / name).stat().st_mtime_ns for name in before}
    (folder / "figures" / "toy.svg").unlink()
    written(folder, folder.parent)
    assert (folder / "figures" / "toy.svg").exists()


@pytest.mark.parametrize(("world", "generated"), [({}, True), ({"path": "data.txt"}, False)])
def test_the_title_says_that_criteo_rows_are_generated(tmp_path, world, generated):
    task = Task(function="a:b", arguments={"environment": "criteo-all", "world": world, "cell": 0, "seed": 0})
    asked = [Asked(toy.EXPERIMENT, [task], [Result(task, [{"reward": 0.5}, {"reward": 1.0}], 0.1)])]
    with open_store(tmp_path) as store:
        data = write_report(asked, {}, Scope(repeats=1), store, workers=1, command="spuir reproduce")
    assert ("generated Criteo rows" in data["title"]) is data["generated"] is generated
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert ("No result here is one on Criteo's data" in text.replace("&#39;", "'")) is generated


def test_cells_are_shown_as_readers_expect():
    sheet = lay_out(
        [{"a": 0.12345, "a ±": 0.01, "b": "x", "c": None}, {"a": -1.0, "b": "-2.0 [-3.0, -1.0]", "c": 2, "d": True}],
        {"a": "+.2f"},
    )
    assert list(sheet.heads) == ["a", "b", "c", "d"]
    assert sheet.rows[0] == ["+0.12 ± 0.01", "x", "–", "–"]
    assert sheet.rows[1] == ["−1.00", "−2.0 [−3.0, −1.0]", "2", "yes"]
    assert list(sheet.numeric) == [True, False, True, False]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234567, "1,234,567"),
        (0.5, "0.5"),
        (-0.000012345, "−1.234e-05"),
        (123456.789, "123,457"),
        (3.14159265, "3.142"),
        (0.0, "0"),
        (None, "–"),
    ],
)
def test_numbers_without_a_format(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("-0.00 and -0.01", "0.00 and −0.01"),
        ("+0.00 [-0.0, +0] and +0.01, 1+0", "0.00 [0.0, 0] and +0.01, 1+0"),
        ("[-inf, inf]", "[−∞, ∞]"),
        ("3% or 3 %", "3\u202f% or 3\u202f%"),
        ("x-1, 5-10, --repeats 5, 1e-5, puir-rs", "x-1, 5-10, --repeats 5, 1e-5, puir-rs"),
    ],
)
def test_sentences_are_typeset(text, shown):
    assert typeset(text) == shown


def test_rows_carry_their_arguments_flattened():
    task = Task(function="a:b", arguments={"world": {"dim": 3, "deep": {"er": 1}}, "list": [1, 2], "seed": 4})
    (row,) = tidy([Result(task, [{"reward": 0.5}], 0.25)])
    assert row == {
        "key": task.key,
        "seconds": 0.25,
        "world.dim": 3,
        "world.deep.er": 1,
        "list": "[1, 2]",
        "seed": 4,
        "reward": 0.5,
    }
    assert flat({}) == {}


@pytest.mark.parametrize(
    ("name", "caption", "said"),
    [
        (
            "",
            "Lead of `auto`, 0.5 to 5 %; mean of 2 seeds. The band is 1 %.",
            "– Lead of auto, 0.5 to 5 %; mean of 2 seeds.",
        ),
        ("digits", "Left: reward. The oracle. Right: lead. Mean.", "(digits) – Left: reward. The oracle. Right: lead."),
        ("", "Reward. Left: N = 40. Right: N = 80.", "– Reward."),
        ("", "Reward over time", "– Reward over time"),
    ],
)
def test_a_figure_is_told_in_words(name, caption, said):
    assert described("A toy", name, caption) == f"A toy {said}"


def test_a_section_without_results_is_still_listed(tmp_path):
    empty = Asked(replace(toy.EXPERIMENT, name="empty"), [toy.drawing(tmp_path, 0, seed) for seed in range(20)])
    with open_store(tmp_path) as store:
        data = write_report([empty], {}, Scope(repeats=1), store, workers=1, command="spuir reproduce")
    assert data["experiments"][0]["missing_count"] == 20
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "20 of 20 tasks are missing" in text
    assert "and 8 more" in text

"""Vowpal Wabbit's text, both kinds: labels, tags, namespaces and names that it forbids; and what it reads of ours."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import vowpalwabbit
from hypothesis import given
from hypothesis import strategies as st

from spuir.errors import InputError
from spuir.logs import open_log, write_log
from spuir.logs.events.feature_names import escape, escape_key, unescape
from spuir.logs.formats.base import Faults

LABELS = ["a", "b c", "ü:|'%="]
COLUMNS = {
    "decision_id": ["1", "t w o", "|:'%"],
    "action": LABELS,
    "reward": [1.0, 0.0, -2.5],
    "propensity": [0.5, 0.25, 1.0],
    "age": [1.5, -2.0, 0.0],
    "u.city name": ["New York", "a=b:c|d", "30"],
    "u.=x:|": [1.0, 2.0, 3.0],
}


def rows(path: Path, text: str, format: str, **options: Any) -> list[dict[str, Any]]:
    path.write_text(text, encoding="utf-8")
    return open_log(path, format=format, **options).table().to_pylist()


def faults(path: Path, format: str) -> Faults:
    found = Faults()
    for part in open_log(path, format=format).parts:
        list(part.read(faults=found))
    return found


class TestNames:
    @given(st.text())
    def test_escaping_is_undone(self, name: str) -> None:
        assert unescape(escape(name)) == name
        assert not set(escape(name)) & set(" \t\n\r:|=")
        assert unescape(escape_key(name)) == name
        assert not escape_key(name).startswith("_")

    def test_a_usual_name_stays_as_it_is(self) -> None:
        assert escape("user_id-3.x") == escape_key("user_id-3.x") == unescape("user_id-3.x") == "user_id-3.x"


class TestFixedActions:
    def read(self, tmp_path: Path, text: str, **options: Any) -> list[dict[str, Any]]:
        return rows(tmp_path / "log.vw", text, "vw-cb", **options)

    def test_a_line_is_a_row(self, tmp_path: Path) -> None:
        (found,) = self.read(tmp_path, "2:-1.5:0.25 'e1 |user age:30 male |page:2.0 x:1.5 y\n")
        assert found == {
            "decision_id": "e1",
            "action": 2,
            "reward": 1.5,
            "propensity": 0.25,
            "user.age": 30.0,
            "user.male": 1.0,
            "page.x": 3.0,
            "page.y": 2.0,
        }

    @pytest.mark.parametrize("label", ["1:2:0.5 tag|", "1:2:0.5 'tag |", "1:2:0.5 'tag|", "  1:2:0.5\t'tag\t|"])
    def test_every_way_to_write_a_tag(self, tmp_path: Path, label: str) -> None:
        (found,) = self.read(tmp_path, label + " x\n")
        assert (found["decision_id"], found["action"], found["x"]) == ("tag", 1, 1.0)

    def test_a_label_before_a_blank_is_no_tag(self, tmp_path: Path) -> None:
        (found,) = self.read(tmp_path, "1:2:0.5 |x y\n")
        assert "decision_id" not in found

    def test_features_that_a_line_does_not_name_are_zero(self, tmp_path: Path) -> None:
        text = "1:0:0.5 | a:2 b\n1:0:0.5 | c:-1 a:1 a:2\n"
        found = [{name: one[name] for name in "abc"} for one in self.read(tmp_path, text)]
        assert found == [{"a": 2.0, "b": 1.0, "c": 0.0}, {"a": 3.0, "b": 0.0, "c": -1.0}]

    def test_texts_and_features_without_a_name(self, tmp_path: Path) -> None:
        text = "1:0:0.5 | color=red city:paris :0.5 size=2:3\n1:0:0.5 | color=blue city:3\n"
        first, second = self.read(tmp_path, text)
        assert (first["color"], first["city"], first["2"], first["size=2"]) == ("red", "paris", 0.5, 3.0)
        assert (second["color"], second["city"]) == ("blue", "3")
        (found, _) = self.read(tmp_path, text, categories=False)
        assert found["color=red"] == 1.0

    def test_listed_actions_are_eligible_and_every_observed_cost_is_a_row(self, tmp_path: Path) -> None:
        first, second = self.read(tmp_path, "1 2:-1:0.5 4:0.5:0.25 3:7:0 | x\n")
        assert first["eligible"] == second["eligible"] == [1, 2, 4, 3]
        assert (first["action"], first["reward"], first["propensity"]) == (2, 1.0, 0.5)
        assert (second["action"], second["reward"], second["propensity"]) == (4, -0.5, 0.25)

    def test_lines_for_prediction_are_skipped_and_counted(self, tmp_path: Path) -> None:
        found = self.read(tmp_path, "1:0:0.5 | x\n| x\n\n1 2 | x\n'tag | x\n")
        assert len(found) == 1
        assert faults(tmp_path / "log.vw", "vw-cb").skipped == {"no observed cost, for prediction only": 3}

    @pytest.mark.parametrize(
        ("line", "why"),
        [
            ("1:a:0.5 | x", "the cost is 'a', not a number"),
            ("1:1:nan | x", "the probability is 'nan'"),
            ("1:1:1.5 | x", "not in [0, 1]"),
            ("0:1:0.5 | x", "the action is '0'"),
            ("x:1:0.5 | x", "the action is 'x'"),
            ("1:1:0.5:3 | x", "is not action:cost:probability"),
            ("1:1:0.5 |n:x y", "the weight of a namespace is 'x'"),
        ],
    )
    def test_broken_lines_are_counted(self, tmp_path: Path, line: str, why: str) -> None:
        good = "1:0:0.5 | x\n" * 120
        assert len(self.read(tmp_path, good + line + "\n" + good)) == 240
        found = faults(tmp_path / "log.vw", "vw-cb")
        assert (found.count, found.first[0].line) == (1, 121)
        assert why in found.first[0].why

    def test_bytes_that_are_no_text_are_a_broken_line(self, tmp_path: Path) -> None:
        (tmp_path / "log.vw").write_bytes(b"1:0:0.5 | x\n" * 120 + b"1:0:0.5 | \xff\n")
        assert "0xff is not UTF-8" in faults(tmp_path / "log.vw", "vw-cb").first[0].why

    def test_labels_come_back(self, tmp_path: Path) -> None:
        path = tmp_path / "log.vw"
        write_log(open_log(pa.table(COLUMNS)), path, actions=LABELS)
        back = open_log(path, actions=LABELS).table()
        assert back.select(list(COLUMNS)).to_pydict() == COLUMNS

    def test_numbers_are_labels(self, tmp_path: Path) -> None:
        columns = {"action": [1, 3], "reward": [1.0, 0.0], "propensity": [0.5, 0.5], "eligible": [[1, 2], [3, 2]]}
        write_log(open_log(pa.table(columns)), tmp_path / "log.vw")
        assert (tmp_path / "log.vw").read_text() == "1:-1.0:0.5 2 |\n3:0.0:0.5 2 |\n"
        assert open_log(tmp_path / "log.vw").table().select(list(columns)).to_pydict() == columns

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"action": ["x"]}, "numbers these actions from 1; pass actions"),
            ({"action": [0]}, "numbers these actions from 1; pass actions"),
            ({"weight": [2.0]}, "has no weights for bandit events; write dsjson"),
            ({"propensity": [None]}, "learns nothing from an event without its probability"),
        ],
    )
    def test_what_cannot_be_said_is_refused(self, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
        columns = {"action": [1], "reward": [1.0], "propensity": [0.5]} | changes
        with pytest.raises(InputError, match=message):
            write_log(pa.table(columns).to_batches(), tmp_path / "log.vw")

    def test_two_labels_of_one_name_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="a label twice"):
            write_log(open_log(pa.table(COLUMNS)), tmp_path / "log.vw", actions=["a", "a"])

    def test_vowpal_wabbit_reads_action_cost_and_probability(self, tmp_path: Path) -> None:
        path = tmp_path / "log.vw"
        write_log(open_log(pa.table(COLUMNS)), path, actions=LABELS)
        with vowpalwabbit.Workspace("--cb 3 --quiet") as vw:
            for at, line in enumerate(path.read_text().splitlines()):
                example: Any = vw.parse(line)
                (cost,) = example.get_label().costs
                assert (cost.action, -cost.cost, cost.probability) == (
                    at + 1,
                    COLUMNS["reward"][at],
                    COLUMNS["propensity"][at],
                )
                assert example.num_features_in("u") == 2
                vw.finish_example(example)
        vw = vowpalwabbit.Workspace(f"--cb 3 --quiet -d {path}")
        assert vw.get_weighted_examples() == 3
        vw.finish()


class TestActionsOfAnEvent:
    def read(self, tmp_path: Path, text: str, **options: Any) -> list[dict[str, Any]]:
        return rows(tmp_path / "log.txt", text, "vw-cb-adf", **options)

    def test_an_event_is_a_row(self, tmp_path: Path) -> None:
        text = "shared 'e1 |user age:30\n|a x:1\n0:-1:0.25 |a x:2\n|a x:3\n\nshared |user age:20\n0:1:0.5 |a x\n"
        first, second = self.read(tmp_path, text)
        labels = first["eligible"]
        assert len(set(labels)) == 3
        assert first == {
            "decision_id": "e1",
            "action": labels[1],
            "reward": 1.0,
            "propensity": 0.25,
            "eligible": labels,
            "user.age": 30.0,
        }
        # The same features are the same action, wherever it is in the event.
        assert (second["action"], second["eligible"], second["decision_id"]) == (labels[0], [labels[0]], None)

    def test_tags_name_the_actions_if_all_differ(self, tmp_path: Path) -> None:
        text = "'x |a\n7:0:0.5 'y |a\n\n'x |a\n0:0:0.5 'x |a\n\n0:0:0.5 'x |a\n|a\n\n"
        assert [found["action"] for found in self.read(tmp_path, text)] == ["y", "2", "1"]

    def test_events_without_a_cost_are_skipped(self, tmp_path: Path) -> None:
        assert len(self.read(tmp_path, "|a\n|b\n\n\n\n0:1:0.5 |a\n|b\n\n|c\n")) == 1
        assert faults(tmp_path / "log.txt", "vw-cb-adf").skipped == {"no observed cost, for prediction only": 2}

    @pytest.mark.parametrize(
        ("lines", "why"),
        [
            ("0:1:0.5 |a\n0:1:0.5 |b", "2 actions, 2 of them with a cost"),
            ("shared |s", "0 actions"),
            ("0:1:0.5 |a\nshared |s", "a shared line within an event"),
            ("0:1:0.5 1:1:0.5 |a\n|b", "2 labels on one action's line"),
            ("|a\n0:x:0.5 |b", "the cost is 'x'"),
            ("|a:x b\n0:1:0.5 |b", "the weight of a namespace is 'x', not a number (line 361)"),
        ],
    )
    def test_a_broken_event_is_counted_once(self, tmp_path: Path, lines: str, why: str) -> None:
        good = "0:1:0.5 |a\n|b\n\n" * 120
        assert len(self.read(tmp_path, good + lines + "\n\n" + good)) == 240
        found = faults(tmp_path / "log.txt", "vw-cb-adf")
        assert found.count == 1
        assert why in found.first[0].why

    def test_every_column_comes_back(self, tmp_path: Path) -> None:
        columns = COLUMNS | {"eligible": [["a", "z"], LABELS, ["", LABELS[2]]]}
        write_log(open_log(pa.table(columns)), tmp_path / "log.txt", format="vw-cb-adf")
        back = open_log(tmp_path / "log.txt").table()
        assert back.select(list(columns)).to_pydict() == columns

    def test_vowpal_wabbit_reads_action_cost_and_probability(self, tmp_path: Path) -> None:
        path = tmp_path / "log.txt"
        write_log(open_log(pa.table(COLUMNS)), path, format="vw-cb-adf")
        with vowpalwabbit.Workspace("--cb_explore_adf --quiet") as vw:
            for at, text in enumerate(path.read_text().strip().split("\n\n")):
                examples: Any = vw.parse(text)
                labels = [one.get_label().costs for one in examples[1:]]
                assert [len(costs) for costs in labels] == [int(place == at) for place in range(3)]
                assert (-labels[at][0].cost, labels[at][0].probability) == (
                    COLUMNS["reward"][at],
                    COLUMNS["propensity"][at],
                )
                assert [one.num_features_in("a") for one in examples[1:]] == [1, 1, 1]
                assert examples[0].num_features_in("u") == 2
                vw.finish_example(examples)
        vw = vowpalwabbit.Workspace(f"--cb_explore_adf --quiet -d {path} -p {tmp_path / 'chosen'}")
        assert vw.get_weighted_examples() == 3
        vw.finish()
        # It repeats the tag of each event behind what it predicts.
        assert (tmp_path / "chosen").read_text().split()[1::2] == [escape(one) for one in COLUMNS["decision_id"]]


WORDS = st.text(min_size=1, max_size=6)


class TestAnyNames:
    @pytest.mark.parametrize("format", ["vw-cb", "vw-cb-adf"])
    @given(
        drawn=st.lists(st.tuples(st.integers(0, 2), st.floats(-1e9, 1e9), st.floats(1e-6, 1)), min_size=1, max_size=4),
        labels=st.lists(WORDS, min_size=3, max_size=3, unique=True),
        features=st.dictionaries(WORDS, st.one_of(st.floats(-1e6, 1e6), WORDS), max_size=4),
    )
    def test_what_is_written_is_read(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        format: str,
        drawn: list[Any],
        labels: list[str],
        features: dict[str, Any],
    ) -> None:
        columns: dict[str, Any] = {
            "decision_id": [f"d{at}" for at in range(len(drawn))],
            "action": [labels[at] for at, _, _ in drawn],
            "reward": [reward for _, reward, _ in drawn],
            "propensity": [share for _, _, share in drawn],
        }
        columns |= {f"f.{name}": [value] * len(drawn) for name, value in features.items()}
        path = tmp_path_factory.mktemp("any") / "log.vw"
        write_log(pa.table(columns).to_batches(), path, format=format, actions=labels)
        options: dict[str, Any] = {"actions": labels} if format == "vw-cb" else {}
        back = open_log(path, format=format, **options).table()
        for name, values in columns.items():
            if name in back.column_names:
                assert back[name].to_pylist() == values
            else:
                # Zeros are not written, and a column of nothing else is none.
                assert not any(values)

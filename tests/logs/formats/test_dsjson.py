"""Decision-service JSON: every spelling and pitfall that its files have, and what Vowpal Wabbit reads of ours."""

import gc
import json
import pickle
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread, current_thread
from typing import Any

import pyarrow as pa
import pytest
import vowpalwabbit
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from spuir.cli.app import main
from spuir.errors import InputError, ParameterError
from spuir.logs import join_logs, open_log, write_log
from spuir.logs.events.dsjson_parser import DsjsonParser
from spuir.logs.events.event_rows import EventRows
from spuir.logs.events.event_values import as_list
from spuir.logs.formats.base import Faults
from spuir.logs.formats.text_files import line_block
from spuir.training import train

ACTIONS = [{"_tag": name, "i": {"constant": 1, "id": name}, "j": [{"hot": 1}]} for name in ("latte", "mocha", "tea")]


def event(**changes: Any) -> dict[str, Any]:
    """Return an event that chose "mocha" of three with probability 0.8 and got reward 1.5; None removes a key."""
    found: dict[str, Any] = {
        "_label_cost": -1.5,
        "_label_probability": 0.8,
        "_label_Action": 2,
        "_labelIndex": 1,
        "o": [{"v": 1.5, "EventId": "e1", "ActionTaken": False}],
        "Timestamp": "2021-02-04T16:31:29.2461234Z",
        "Version": "1",
        "EventId": "e1",
        "a": [2, 3, 1],
        "c": {"FromUrl": [{"hour": 16, "sky": "blue"}], "_multi": ACTIONS},
        "p": [0.8, 0.15, 0.05],
        "VWState": {"m": "model-7"},
    }
    return {key: value for key, value in (found | changes).items() if value is not None}


def context(**spaces: Any) -> dict[str, Any]:
    return {**spaces, "_multi": ACTIONS}


def save(path: Path, *lines: Any) -> Path:
    texts = [line if isinstance(line, bytes) else json.dumps(line, ensure_ascii=False).encode() for line in lines]
    path.write_bytes(b"\n".join(texts) + b"\n")
    return path


def rows(path: Path, **options: Any) -> list[dict[str, Any]]:
    return open_log(path, format="dsjson", **options).table().to_pylist()


def row(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    (found,) = rows(save(tmp_path / "log.dsjson", event(**changes)))
    return found


def faults(path: Path, **options: Any) -> Faults:
    found = Faults()
    for part in open_log(path, format="dsjson", **options).parts:
        list(part.read(faults=found))
    return found


class TestFields:
    def test_an_event_is_a_row(self, tmp_path: Path) -> None:
        found = row(tmp_path)
        assert found.pop("time").isoformat() == "2021-02-04T16:31:29.246123+00:00"
        assert found == {
            "decision_id": "e1",
            "action": "mocha",
            "reward": 1.5,
            "propensity": 0.8,
            "probabilities": [0.05, 0.8, 0.15],
            "eligible": ["latte", "mocha", "tea"],
            "policy_version": "model-7",
            "weight": 1.0,
            "FromUrl.hour": 16.0,
            "FromUrl.sky": "blue",
        }

    @pytest.mark.parametrize(
        "changes",
        [
            {"_labelIndex": None},
            {"_label_Action": None},
            {"_label_Action": None, "_labelIndex": None},
            {"_label_Action": None, "_label_action": 2, "_labelIndex": None, "_labelindex": 1},
            {"_label_cost": None, "_label_Cost": -1.5, "_label_probability": None, "_label_Probability": 0.8},
            {"_label_cost": None, "_labelIndex": None, "_label_Action": None, "_label_probability": None}
            | {"_label": {"Action": 2, "Cost": -1.5, "Probability": 0.8}},
            {"_label_probability": None},
            {"EventId": None, "event_id": "e1"},
        ],
    )
    def test_every_spelling_of_the_label_says_the_same(self, tmp_path: Path, changes: dict[str, Any]) -> None:
        assert row(tmp_path, **changes) == row(tmp_path)

    def test_the_cost_before_rewriting_is_the_one(self, tmp_path: Path) -> None:
        assert row(tmp_path, _label_cost=-1.0, _original_label_cost=-0.25)["reward"] == 0.25

    def test_a_cost_of_minus_zero_is_a_plain_zero(self, tmp_path: Path) -> None:
        assert str(row(tmp_path, _label_cost=-0.0)["reward"]) == "0.0"

    def test_without_a_cost_the_first_outcome_counts_and_without_any_nothing_is_known(self, tmp_path: Path) -> None:
        seen = [{"EventId": "e1", "ActionTaken": True}, {"v": 0.5, "EventId": "e1"}, {"v": 2.0, "EventId": "e1"}]
        assert row(tmp_path, _label_cost=None, o=seen)["reward"] == 0.5
        assert row(tmp_path, _label_cost=None, o=[])["reward"] is None

    @pytest.mark.parametrize(("drop", "weight"), [(0.0, 1.0), (0.5, 2.0), (0.75, 4.0)])
    def test_an_event_stands_for_those_that_were_dropped(self, tmp_path: Path, drop: float, weight: float) -> None:
        assert row(tmp_path, pdrop=drop)["weight"] == weight

    def test_actions_are_called_by_tag_or_by_id_or_by_number(self, tmp_path: Path) -> None:
        multi = [{"_tag": "x", "i": {"id": "y"}}, {"i": {"id": "z"}}, {}]
        assert row(tmp_path, c={"_multi": multi})["eligible"] == ["x", "z", "3"]

    def test_probabilities_of_some_actions_only_are_not_those_of_all(self, tmp_path: Path) -> None:
        found = row(tmp_path, a=[2], p=[0.8])
        assert "probabilities" not in found
        assert found["eligible"] == ["latte", "mocha", "tea"]

    def test_a_later_weight_is_not_lost_because_the_file_begins_without_one(self, tmp_path: Path) -> None:
        path = save(tmp_path / "log.dsjson", event(), event(pdrop=0.5))
        assert [found["weight"] for found in rows(path)] == [1.0, 2.0]


class TestFeatures:
    def test_namespaces_are_flattened_to_names(self, tmp_path: Path) -> None:
        spaces = {
            "user": {"age": 30, "past": {"buys": 2, "last": {"day": "Mon"}}},
            "page": [{"a": 1}, {"b": 2}],
            "vector": [0.5, 1.5],
            "words": ["red", "_x"],
            "flag": True,
            "nothing": None,
            "_ignored": {"a": 1},
            "text": {"_text": "so it is", "_hidden": 4},
            "100%": 3,
        }
        found = row(tmp_path, c=context(**spaces))
        names = {name: value for name, value in found.items() if name not in row(tmp_path, c=context())}
        assert names == {
            "user.age": 30.0,
            "user.past.buys": 2.0,
            "user.past.last.day": "Mon",
            "page.a": 1.0,
            "page.b": 2.0,
            "vector.0": 0.5,
            "vector.1": 1.5,
            "words.red": 1.0,
            "words._x": 1.0,
            "flag": True,
            "text._text": "so it is",
            "100%": 3.0,
        }

    def test_a_feature_called_like_a_canonical_column_does_not_replace_it(self, tmp_path: Path) -> None:
        found = row(tmp_path, c=context(action="no", reward=9))
        assert (found["action"], found["reward"]) == ("mocha", 1.5)
        assert (found["context.action"], found["context.reward"]) == ("no", 9.0)

    def test_rows_may_have_other_features(self, tmp_path: Path) -> None:
        path = save(
            tmp_path / "log.dsjson", event(c=context(a=1)), event(c=context(b="x")), event(c=context(a=2, b="y"))
        )
        found = open_log(path, format="dsjson").table(["a", "b"]).to_pydict()
        assert found == {"a": [1.0, None, 2.0], "b": [None, "x", "y"]}

    def test_numbers_and_texts_in_one_column_are_texts(self, tmp_path: Path) -> None:
        path = save(tmp_path / "log.dsjson", *(event(c=context(a=value)) for value in (1, "x", True, 2.5)))
        assert [found["a"] for found in rows(path)] == ["1", "x", "true", "2.5"]

    def test_files_may_have_other_features(self, tmp_path: Path) -> None:
        save(tmp_path / "1.dsjson", event(c=context(a=1)))
        save(tmp_path / "2.dsjson", event(c=context(b=2)))
        found = open_log(tmp_path, format="dsjson").table(["a", "b"]).to_pylist()
        assert found == [{"a": 1.0, "b": None}, {"a": None, "b": 2.0}]

    def test_a_text_far_down_makes_its_column_text_everywhere(self, tmp_path: Path, monkeypatch: Any) -> None:
        monkeypatch.setattr("spuir.logs.events.line_reader.BLOCK_BYTES", 100)
        values = [1, 2.5, True, *range(196), "x"]
        path = save(tmp_path / "log.dsjson", *(event(c=context(a=value)) for value in values))
        assert faults(path).count == 0
        assert [found["a"] for found in rows(path)] == ["1", "2.5", "true", *map(str, range(196)), "x"]

    def test_a_declared_type_that_a_value_does_not_fit_makes_its_line_broken(self, tmp_path: Path) -> None:
        lines = [event(c=context(a=1))] * 199
        path = save(tmp_path / "log.dsjson", *lines, event(c=context(a="x")))
        found = faults(path, types={"a": "float64"})
        assert (found.count, found.first[0].line) == (1, 200)
        assert "a is 'x', not double" in found.first[0].why
        # Without the column, the line is fine.
        assert faults(path, types={"a": "float64"}, rename={"a": None}).count == 0

    def test_a_broken_line_is_broken_whichever_columns_are_read(self, tmp_path: Path) -> None:
        lines = [event(EventId=f"e{at}", c=context(a="x" if at == 20 else at)) for at in range(200)]
        path = save(tmp_path / "log.dsjson", *lines)
        decisions = open_log(path, rename={"reward": None}, types={"a": "float64"}, kind="decisions")
        assert len(decisions.table(["action"])) == len(decisions.table()) == 199
        rewards = {"decision_id": [f"e{at}" for at in range(200)], "reward": [float(at) for at in range(200)]}
        joined = join_logs(decisions, rewards).log.table(["reward", "a"])
        assert joined["reward"].to_pylist() == joined["a"].to_pylist()


class TestWhatIsNoEvent:
    def test_lines_without_an_event_are_skipped_and_counted(self, tmp_path: Path) -> None:
        waiting = [{"EventId": "e1", "ActionTaken": True}]
        lines = [
            b"\xef\xbb\xbf" + json.dumps(event()).encode(),
            b"",
            b"[checkpoint]",
            {"RewardValue": 1.0, "EventId": "e0"},
            event(_skipLearn=True),
            event(_deferred=True, o=[]),
            event(DeferredAction=True),
            event(DeferredAction=True, o=waiting),
            json.dumps(event()).encode() + b"\r",
        ]
        path = save(tmp_path / "log.dsjson", *lines)
        found = faults(path)
        assert found.count == 0
        assert found.skipped == {"no event": 2, "_skipLearn": 1, "deferred and never activated": 2}
        assert len(rows(path)) == 3

    def test_a_file_without_lines_is_empty(self, tmp_path: Path) -> None:
        path = tmp_path / "log.dsjson"
        path.write_bytes(b"\n\n")
        with pytest.raises(InputError, match="an empty file"):
            open_log(path, format="dsjson")

    def test_continuous_actions_and_slates_are_refused(self, tmp_path: Path) -> None:
        continuous = {"c": {"x": 1}, "_label_ca": {"action": 1.01, "cost": -1.5, "pdf_value": 0.0005}}
        with pytest.raises(InputError, match=r"line 2.*continuous action.*chosen from a list"):
            rows(save(tmp_path / "a.dsjson", event(), continuous))
        slate = event(c=context(_slots=[{}]), _outcomes=[{"_a": [0], "_p": [1.0]}])
        with pytest.raises(InputError, match=r"line 1.*slate.*own cost"):
            rows(save(tmp_path / "b.dsjson", slate))


BROKEN = [
    (b'{"c": {', "no valid JSON"),
    (b"{\xff}", "no valid JSON"),
    (event(_label_probability=0), "not in (0, 1]"),
    (event(_label_probability=1.5), "not in (0, 1]"),
    (event(_label_probability="NaN"), "'NaN', not a finite number"),
    (json.dumps(event(_label_cost=float("nan"))).encode(), "no valid JSON"),
    (event(_label_cost="high"), "'high', not a finite number"),
    (event(p=[0.8, 0.2]), "3 actions in `a`, 2 probabilities in `p`"),
    (event(p=["a", "b", "c"]), "not probabilities"),
    (event(p=[0.8, 0.3, -0.1]), "not probabilities"),
    (event(a=[2, 9, 1]), "not distinct numbers of the 3 actions"),
    (event(a=[2, 2, 1]), "not distinct numbers of the 3 actions"),
    (event(a=["x"]), "not distinct numbers of the 3 actions"),
    (event(a=[1], p=[1.0]), "the chosen action 2 is not in `a`"),
    (event(_labelIndex=2), "are not the same action"),
    (event(_labelIndex=7, _label_Action=8, a=None, p=None), "number 8 of 3"),
    (event(_labelIndex="one"), "not a whole number"),
    (event(_labelIndex=None, _label_Action=None, a=None, p=None), "no chosen action"),
    (event(c={"x": 1}), "no actions"),
    (event(c={"_multi": ["x"]}), "not an object"),
    (event(c={"_multi": [ACTIONS[0]] * 3}), "two actions are called 'latte'"),
    (event(c="x"), "without a context"),
    (event(pdrop=1.0), "not in [0, 1)"),
    (event(pdrop="x"), "not a finite number"),
    (event(Timestamp="yesterday"), "time is 'yesterday'"),
]


class TestBrokenLines:
    @pytest.mark.parametrize(("line", "why"), BROKEN, ids=range(len(BROKEN)))
    def test_one_of_many_is_counted_with_its_line(self, tmp_path: Path, line: Any, why: str) -> None:
        path = save(tmp_path / "log.dsjson", *[event()] * 60, line, *[event()] * 60)
        found = faults(path)
        assert (found.count, found.first[0].line) == (1, 61)
        assert why in found.first[0].why
        assert len(rows(path)) == 120

    def test_too_many_are_refused_with_the_first_ones(self, tmp_path: Path) -> None:
        path = save(tmp_path / "log.dsjson", *[event()] * 97, b"{", b"{", b"{")
        with pytest.raises(
            InputError, match=r"3 broken rows of 100 \(line 98: no valid JSON.*at most 1% may be broken"
        ):
            rows(path)
        assert len(rows(path, broken_share=0.03)) == 97

    def test_a_share_is_from_0_to_1(self, tmp_path: Path) -> None:
        with pytest.raises(ParameterError, match="from 0 to 1"):
            rows(save(tmp_path / "log.dsjson", event()), broken_share=3)

    def test_times_with_and_without_zones_are_read(self, tmp_path: Path) -> None:
        times = ["2021-02-04T16:31:29Z", "2021-02-04T16:31:29", "2021-02-04T17:31:29+01:00"]
        path = save(tmp_path / "log.dsjson", *(event(Timestamp=time) for time in times))
        assert {found["time"].isoformat() for found in rows(path)} == {"2021-02-04T16:31:29+00:00"}

    @given(st.binary(max_size=40))
    def test_no_line_crashes_it(self, tmp_path_factory: pytest.TempPathFactory, line: bytes) -> None:
        path = save(tmp_path_factory.mktemp("any") / "log.dsjson", *[event()] * 120, line.replace(b"\n", b" "))
        assert len(rows(path, broken_share=0.01)) >= 120


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.floats(-9, 9), st.sampled_from(["", "x", "ü"]))
SPACES = st.dictionaries(
    st.sampled_from(["a", "b", "_text", "_x", "a%20", "action"]),
    st.recursive(
        SCALARS, lambda inner: st.dictionaries(st.sampled_from(["p", "q", "_r"]), inner, max_size=3), max_leaves=5
    )
    | st.lists(st.dictionaries(st.sampled_from("pq"), SCALARS, max_size=2), max_size=2)
    | st.lists(SCALARS, max_size=2),
    max_size=4,
)
CHANGES: dict[str, list[Any]] = {
    "_label_cost": [None, 0, -0.0, 2.5, "x"],
    "_original_label_cost": [1, -0.5, "x"],
    "_label_probability": [None, 1, 0.5, 0, 1.0000001, 1.5],
    "_label_Action": [None, 1, 2, -1],
    "_labelIndex": [None, 0, 1, 7, -1],
    "EventId": [None, "", "e2"],
    "Timestamp": [None, "2021-02-04T16:31:29Z"],
    "VWState": [None, {}, {"m": "n"}, {"m": None}, "x"],
    "a": [None, [2], [1, 2, 3], [3, 3, 3], [2, "x", 1], [2, 1, 9]],
    "p": [None, [1.0], [1, 0, 0], [0.5, 0.75, -0.25]],
    "pdrop": [0, 0.5, 1, "x"],
    "_skipLearn": [True, False],
    "_deferred": [True, False],
    "DeferredAction": [True, False],
    "spuir": [{}, {"episode": 3, "other": 4}],
    "_outcomes": [[{"_label_cost": 1, "_a": [1], "_p": [1.0]}]],
    "c": [
        {"_multi": multi, "FromUrl": [{"hour": 16, "sky": "blue"}]}
        for multi in (
            [{"_tag": ""}, {}, {"i": {"id": "z"}}],
            [{"_tag": "x"}] * 3,
            [{"_tag": ""}, *ACTIONS[1:]],
            ACTIONS[:2],
        )
    ],
}
"""What may be unusual about an event, each by itself."""


class TestTheFastWay:
    def results(self, parser: DsjsonParser, lines: list[bytes]) -> list[Any]:
        """Return the rows that some lines give, without what is not known, and why others are broken."""
        rows, broken = EventRows(), Faults()
        parser.feed_block(line_block(1, b"\n".join(lines)), rows, broken, "log")
        columns = {name: as_list(values) for name, values in rows.columns().items()}
        made = [{name: values[at] for name, values in columns.items()} for at in range(len(rows))]
        known = [{name: value for name, value in row.items() if value is not None} for row in made]
        return [*known, *(one.why for one in broken.first)]

    def compare(self, usual: list[dict[str, Any]], lines: list[dict[str, Any]]) -> None:
        """Compare a parser that knows the usual events with parsers that know none."""
        fast, known, general = DsjsonParser("log", found := Faults()), Faults(), Faults()
        self.results(fast, [json.dumps(one).encode() for one in usual] * 120)
        fast.skip = known.skip
        assert not found.count
        texts = [json.dumps(line).encode() for line in lines]
        each = [self.results(DsjsonParser("log", general), [text]) for text in texts]
        for text, expected in zip(texts, each, strict=True):
            assert self.results(fast, [text]) == expected
        good = [row for one in each for row in one if type(row) is dict]
        assert [row for row in self.results(fast, texts) if type(row) is dict] == good
        assert known.skipped == {why: 2 * count for why, count in general.skipped.items()}

    @pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in CHANGES.items() for value in values])
    def test_whatever_is_unusual_about_an_event(self, name: str, value: Any) -> None:
        changed = event(**{name: value})
        if name == "_labelIndex" and value is not None:
            changed["_label_Action"] = value + 1
        if "_outcomes" in changed:
            del changed["_label_cost"], changed["_labelIndex"], changed["_label_Action"]
        self.compare([event()], [changed])

    @given(st.lists(SPACES, min_size=1, max_size=3), st.lists(SPACES, min_size=1, max_size=8))
    @example(usual=[{"_text": {"p": False}}], others=[{}])
    def test_any_contexts(self, usual: list[Any], others: list[Any]) -> None:
        events = [event(c=context(**space)) for space in [*usual, *others]]
        self.compare(events[: len(usual)], events)

    def taken(self, parser: DsjsonParser, line: Any) -> bool:
        """Return whether a line takes the fast way."""
        rows = EventRows()
        parser.feed_block(line_block(1, b"\n".join([json.dumps(line).encode()] * 30)), rows, Faults(), "log")
        return bool(rows.groups)

    def test_it_is_taken_by_the_usual_event_alone(self) -> None:
        parser = DsjsonParser("log", Faults())
        assert self.taken(parser, event())
        assert not self.taken(parser, event(_skipLearn=True))
        assert not self.taken(parser, event(c=context(z=1)))
        assert self.taken(parser, event())

    @pytest.mark.parametrize(
        "space",
        [
            {"page": [{"a": 1, "b": "x"}, {"b": None, "c": 2}]},
            {"page": [{"a": {"b": 1}}, {"a": {"b": 2, "c": [3]}}], "n": None},
            {"tags": ["red", "blue", "red"]},
            {"tags": []},
            {"vector": [0.5, 1, True, None], "user": {"tags": ["x"], "none": []}},
            {"page": []},
        ],
        ids=lambda space: json.dumps(space)[:40],
    )
    def test_lists_take_it_too(self, space: dict[str, Any]) -> None:
        parser = DsjsonParser("log", Faults())
        line = event(c=context(**space))
        assert self.taken(parser, line)
        shorter = {key: value[:1] if type(value) is list else value for key, value in space.items()}
        self.compare([line], [line, event(c=context(**shorter)), event(c=context(**{key: [] for key in space}))])

    def test_items_of_several_objects_add_up(self) -> None:
        tags = [[["red"], ["blue"]], [["blue"], ["red", "red"]], [[], ["green"]], [["blue"]], [[1.5, 2], [7]]]
        events = [event(c=context(page=[{"tags": one} for one in each])) for each in tags]
        self.compare(events[:2], events)

    def test_two_keys_for_one_column_are_left_to_the_general_way(self) -> None:
        line = event(c=context(U={"p.q": 2, "p": {"q": None}}))
        self.compare([line], [line, event(c=context(U={"p": {"q": 1}, "p.q": 2}))])

    def test_where_most_events_differ_it_learns_their_keys_too(self) -> None:
        parser = DsjsonParser("log", Faults())
        lines = [event(), event(c=context(z=1))]
        assert [self.taken(parser, one) for one in lines for _ in range(60)][-1]
        assert all(self.taken(parser, one) for one in lines)

    @pytest.mark.parametrize(
        "lines",
        [
            [b"%s", b"%s%s"],
            [b"%s", b"", b"%s %s"],
            [b"%s", b" %s", b"%s\r", b"%s"],
            [b'{"c":', b"%s}", b"%s"],
            [b"%s", b"[%s,", b"%s]"],
            [b"%s", b"%s", b"{"],
        ],
    )
    def test_a_block_is_decoded_as_its_lines_are(self, lines: list[bytes]) -> None:
        usual = json.dumps(event()).encode()
        texts = [line.replace(b"%s", usual) for line in lines]
        fast, general = DsjsonParser("log", Faults()), DsjsonParser("log", Faults())
        self.results(fast, [usual] * 120)
        each = [row for text in texts for row in self.results(general, [text])]
        ordered = sorted(each, key=lambda row: type(row) is not dict)  # reasons come last
        assert self.results(fast, texts) == ordered

    @pytest.mark.parametrize("depth", [300, 480, 700, 990])
    def test_a_deep_event_among_the_first_does_no_harm(self, depth: int) -> None:
        deep = json.dumps(event(c=context(z="@"))).replace('"@"', '{"a":' * depth + "1" + "}" * depth).encode()
        actions = [{**ACTIONS[0], "z": "@"}, *ACTIONS[1:]]
        deeper = json.dumps(event(c={"_multi": actions})).replace('"@"', '{"a":' * depth + "1" + "}" * depth).encode()
        usual = json.dumps(event()).encode()
        found = self.results(DsjsonParser("log", Faults()), [deep, deeper, *[usual] * 120])
        assert len(found) == 122
        assert sum(type(row) is dict for row in found) >= 120

    def test_it_ends_where_no_shape_lasts(self) -> None:
        parser = DsjsonParser("log", Faults())
        for number in range(400):
            self.taken(parser, event(c=context(**{f"key{number}": 1})))
        assert not any(self.taken(parser, event()) for _ in range(10))


class TestParsedOnce:
    """A file is parsed when it is opened; what is read after that comes from a copy, and is what parsing gives."""

    @pytest.fixture
    def path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Return a file of several sections, with broken and skipped lines and columns whose type changes."""
        monkeypatch.setattr("spuir.logs.formats.text_files.SPLIT_BYTES", 60_000)
        monkeypatch.setattr("spuir.logs.formats.text_files.SECTION_BYTES", 30_000)
        lines: list[Any] = []
        for at in range(400):
            space: dict[str, Any] = {"n": at % 7 if at < 300 else at % 7 + 0.5, "tags": ["red", f"t{at % 3}"][: at % 3]}
            space["odd"] = at % 2 == 0 if at < 150 else at if at < 250 else f"w{at}"
            space |= {"late": {"x": at}} if at > 330 else {}
            lines.append(
                event(EventId=f"e{at}", Timestamp=f"2021-02-04T16:{at // 60:02d}:{at % 60:02d}Z", c=context(**space))
            )
        lines[70], lines[390] = b"{", event(_skipLearn=True)
        return save(tmp_path / "log.dsjson", *lines)

    def test_the_copy_is_what_parsing_gives(self, path: Path) -> None:
        log = open_log(path)
        assert len(log.parts) > 4
        assert log.rows == 398
        assert "late.x" in log.context
        parsed = pa.Table.from_batches([batch for part in log.parts for batch in replace(part, options={}).read()])
        assert log.table().equals(parsed)
        assert log.table(["odd"])["odd"].to_pylist()[:4] == ["true", "false", "true", "false"]
        last: Any = log.parts[-1]
        assert last.first_row + last.rows == 398

    def test_broken_lines_have_their_numbers_in_the_file(self, path: Path) -> None:
        for part in open_log(path).parts:
            copied, parsed = Faults(), Faults()
            list(part.read(faults=copied))
            list(replace(part, options={}).read(faults=parsed))
            assert copied == parsed
        found = faults(path)
        assert (found.count, found.first[0].line, found.skipped) == (1, 71, {"_skipLearn": 1})
        with path.open("ab") as file:
            file.write(json.dumps({"c": {"x": 1}, "_label_ca": {"action": 1.0}}).encode())
        with pytest.raises(InputError, match=r"line 401.*continuous action"):
            open_log(path)

    def test_text_is_parsed_only_when_the_log_is_opened(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = open_log(path, rename={"odd": None})
        monkeypatch.setattr(DsjsonParser, "feed_block", None)
        assert log.table().num_rows == log.table(["action"]).num_rows == 398
        sent = pickle.loads(pickle.dumps(log.parts[0]))
        assert next(sent.read()).num_rows == log.parts[0].rows
        assert len(sent.options["copies"].sections) == 1

    def test_the_copy_goes_with_the_log(self, path: Path) -> None:
        log = open_log(path)
        sent, expected = pickle.loads(pickle.dumps(log.parts)), log.table()
        first: Any = log.parts[0]
        folder = Path(first.options["copies"].folder.path)
        assert list(folder.iterdir())
        del log, first
        gc.collect()
        assert not folder.exists()
        # Another machine has no copy, and parses the text.
        assert pa.Table.from_batches([batch for part in sent for batch in part.read()]).equals(expected)

    def test_processes_parse_large_files(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        expected, found = open_log(path).table(), faults(path)
        monkeypatch.setattr("spuir.logs.events.parsed_copies.PARALLEL_BYTES", 0)
        monkeypatch.setattr("spuir.logs.events.parsed_copies.cores", lambda: 2)
        feed = DsjsonParser.feed_block
        monkeypatch.setattr(DsjsonParser, "feed_block", None)
        log = open_log(path)
        monkeypatch.setattr(DsjsonParser, "feed_block", feed)
        assert log.table().equals(expected)
        again = Faults()
        for part in log.parts:
            list(part.read(faults=again))
        assert again == found

    def test_a_full_disk_costs_time_and_no_more(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        expected = open_log(path).table()

        def full(*_: Any, **__: Any) -> Any:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("spuir.logs.events.parsed_copies.tempfile.mkstemp", full)
        assert open_log(path).table().equals(expected)

    def test_training_parses_it_once(self, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        parsed: list[int] = []
        feed = DsjsonParser.feed_block

        def counted(self: DsjsonParser, *given: Any) -> None:
            parsed.append(1)
            feed(self, *given)

        log = open_log(path, rename={"odd": None})
        monkeypatch.setattr(DsjsonParser, "feed_block", counted)
        train(log, "sbucb", every="1m", workers=1)
        assert not parsed


HUGE = ["1" + "0" * 309, "1" + "0" * 5000, "1e400"]


@pytest.mark.parametrize("digits", HUGE, ids=["309 digits", "5,001 digits", "an exponent"])
@pytest.mark.parametrize(
    "key", ["_original_label_cost", "_label_cost", "_label_probability", "pdrop", "Timestamp", "c"]
)
def test_a_huge_number_is_a_broken_line(key: str, digits: str, tmp_path: Path) -> None:
    text = json.dumps(event(**{key: context(a="@") if key == "c" else "@"})).replace('"@"', digits).encode()
    path = save(tmp_path / "log.dsjson", *[event()] * 150, text, *[event()] * 150)
    found = faults(path)
    assert (found.count, [one.line for one in found.first]) in ((1, [151]), (0, []))
    assert found.count == 1 or key == "c"


class TestSlots:
    def test_every_slot_is_a_row(self, tmp_path: Path) -> None:
        slots = [{"_id": "top", "size": 2}, {"_id": "side", "_inc": [0, 2], "size": 1}]
        outcomes = [
            {"_label_cost": -3, "_id": "top", "_a": [2, 1, 0], "_p": [0.5, 0.3, 0.2], "_o": []},
            {"_label_cost": -1, "_original_label_cost": -2, "_id": "side", "_a": [0], "_p": [1.0]},
        ]
        line = {"EventId": "e", "c": context(_slots=slots, sky="blue"), "_outcomes": outcomes, "pdrop": 0.5}
        first, second = rows(save(tmp_path / "log.dsjson", line))
        assert first == {
            "decision_id": "e/top",
            "action": "tea",
            "reward": 3.0,
            "propensity": 0.5,
            "probabilities": [0.2, 0.3, 0.5],
            "eligible": ["latte", "mocha", "tea"],
            "weight": 2.0,
            "position": 0,
            "sky": "blue",
            "slot.size": 2.0,
        }
        # "tea" is taken by the first slot.
        assert (second["decision_id"], second["action"], second["reward"]) == ("e/side", "latte", 2.0)
        assert (second["eligible"], second["probabilities"], second["position"]) == (["latte"], [1.0], 1)

    def test_slots_without_outcomes_are_skipped(self, tmp_path: Path) -> None:
        path = save(tmp_path / "log.dsjson", event(), {"EventId": "e", "c": context(_slots=[{}, {}])})
        assert faults(path).skipped == {"slots without outcomes": 1}

    def test_unequal_lists_are_broken(self, tmp_path: Path) -> None:
        line = {"c": context(_slots=[{}]), "_outcomes": [{"_label_cost": 0, "_a": [0, 1], "_p": [1.0]}]}
        path = save(tmp_path / "log.dsjson", *[event()] * 120, line)
        assert "slot 0 has 2 actions and 1 probabilities" in faults(path).first[0].why


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=6)
VALUES = st.one_of(st.floats(-1e6, 1e6), NAMES, st.booleans())


class TestWriting:
    def write(self, path: Path, columns: dict[str, Any], **options: Any) -> Path:
        write_log(pa.table(columns).to_batches(), path, format="dsjson", **options)
        return path

    @given(
        st.lists(
            st.tuples(st.sampled_from(["A", "b c", "ü:|"]), st.floats(-1e9, 1e9), st.floats(1e-6, 1), NAMES),
            min_size=1,
            max_size=5,
        ),
        st.dictionaries(NAMES.filter(bool), VALUES, max_size=5),
    )
    def test_what_is_written_is_read(
        self, tmp_path_factory: pytest.TempPathFactory, drawn: list[Any], features: dict[str, Any]
    ) -> None:
        actions, rewards, propensities, ids = (list(column) for column in zip(*drawn, strict=True))
        columns = {"decision_id": ids, "action": actions, "reward": rewards, "propensity": propensities}
        columns |= {f"f.{name}": [value] * len(drawn) for name, value in features.items()}
        path = self.write(tmp_path_factory.mktemp("any") / "log.dsjson", columns, actions=["A", "b c", "ü:|"])
        back = open_log(path, format="dsjson").table()
        for name, values in columns.items():
            expected = [value or None for value in values] if name == "decision_id" else values
            if name in back.column_names:
                assert back[name].to_pylist() == expected
            else:
                assert not any(expected)

    def test_every_canonical_column_comes_back(self, tmp_path: Path) -> None:
        columns = {
            "decision_id": ["a", "b"],
            "time": pa.array([1_600_000_000_123_456, 1], pa.timestamp("us", "UTC")),
            "episode": [3, 4],
            "action": ["x", "y"],
            "reward": [0.5, -1.0],
            "propensity": [0.25, 0.5],
            "probabilities": [[0.25, 0.75], [0.5, 0.5]],
            "eligible": [["x", "z"], ["z", "y"]],
            "reward_time": pa.array([1_600_000_001_000_000, None], pa.timestamp("us", "UTC")),
            "policy_version": ["v1", None],
            "weight": [1.0, 4.0],
            "position": [0, 1],
            "unit_id": ["u", None],
            "a": [1.0, 2.0],
            "a.b": ["x", None],
            "_h": [True, False],
            "context.action": ["m", "n"],
        }
        path = self.write(tmp_path / "log.dsjson", columns)
        assert open_log(path).table().select(list(columns)).to_pydict() == pa.table(columns).to_pydict()

    def test_a_mask_needs_the_labels(self, tmp_path: Path) -> None:
        columns = {"action": ["x", "y"], "reward": [1.0, 0.0], "propensity": [0.5, 1.0]}
        columns |= {"eligible": [[True, True, False], [False, True, False]], "probabilities": [[0.5, 0.5, 0.0]] * 2}
        path = self.write(tmp_path / "log.dsjson", columns, actions=["x", "y", "z"])
        first, second = rows(path)
        assert (first["eligible"], first["probabilities"]) == (["x", "y"], [0.5, 0.5])
        assert second["eligible"] == ["y"]
        with pytest.raises(InputError, match=r"a mask of 3 at row 0.*pass actions"):
            self.write(tmp_path / "no.dsjson", columns, actions=["x", "y"])

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"propensity": [None]}, "learns nothing from an event without its probability"),
            ({"propensity": [0.0]}, r"every propensity lies in \(0, 1\]"),
            ({"reward": [None]}, "every reward must be finite"),
            ({"reward": [float("nan")]}, "nan at row 0"),
            ({"action": [None]}, "has an executed action"),
            ({"weight": [0.5]}, "at least 1; divide all weights"),
            ({"x": [float("inf")]}, "a feature is finite"),
            ({"eligible": [["b"]]}, "the offered actions are 'b'"),
            ({"eligible": [["a", "b"]], "probabilities": [[1.0]]}, "one for each eligible action"),
        ],
    )
    def test_what_cannot_be_said_is_refused_and_no_file_is_left(
        self, tmp_path: Path, changes: dict[str, Any], message: str
    ) -> None:
        columns = {"action": ["a"], "reward": [1.0], "propensity": [0.5]} | changes
        with pytest.raises(InputError, match=message):
            self.write(tmp_path / "log.dsjson", columns)
        assert not list(tmp_path.iterdir())

    def test_a_stream_needs_the_actions_and_a_log_does_not(self, tmp_path: Path) -> None:
        table = pa.table({"action": ["a", "b"], "reward": [1.0, 0.0], "propensity": [0.5, 0.5]})
        with pytest.raises(InputError, match=r"a stream is read only once; pass actions"):
            write_log(iter(table.to_batches()), tmp_path / "log.dsjson")
        write_log(open_log(table), tmp_path / "log.dsjson")
        assert [found["eligible"] for found in rows(tmp_path / "log.dsjson")] == [["a", "b"]] * 2


class TestVowpalWabbit:
    def test_it_reads_action_cost_probability_and_weight(self, tmp_path: Path) -> None:
        columns = {
            "decision_id": ["1", "2", "3"],
            "action": ["a", "b c", "ü:|"],
            "reward": [1.0, 0.0, -2.5],
            "propensity": [0.5, 0.25, 1.0],
            "weight": [1.0, 2.0, 4.0],
            "episode": [0, 0, 1],
            "u.x y": [1.5, 2.5, 3.5],
            "u._h": ["p", "q", "r"],
            "z": [True, True, True],
        }
        path = tmp_path / "log.dsjson"
        write_log(open_log(pa.table(columns)), path)
        with vowpalwabbit.Workspace("--cb_explore_adf --dsjson --quiet") as vw:
            for at, line in enumerate(path.read_text().splitlines()):
                examples: Any = vw.parse(line)
                labels = [one.get_label() for one in examples]
                # The first example is shared; the label stands on the line of the chosen action.
                assert [len(label.costs) for label in labels[1:]] == [int(place == at) for place in range(3)]
                cost = labels[1 + at].costs[0]
                assert cost.cost == -columns["reward"][at]
                assert cost.probability == columns["propensity"][at]
                assert labels[1 + at].weight == columns["weight"][at]
                assert examples[0].num_features_in("u") == 2
                vw.finish_example(examples)

    def test_it_learns_from_every_line_of_a_file(self, tmp_path: Path) -> None:
        table = pa.table({"action": ["a", "b"] * 50, "reward": [1.0, 0.0] * 50, "propensity": [0.5] * 100})
        path = tmp_path / "log.dsjson"
        write_log(open_log(table.append_column("x", pa.array([1.0] * 100))), path)
        vw = vowpalwabbit.Workspace(f"--cb_explore_adf --dsjson --quiet -d {path} -p {tmp_path / 'chosen'}")
        assert vw.get_weighted_examples() == 100
        vw.finish()
        # "a" is the better action, and after 100 events ε-greedy (ε = 0.05) gives it 0.975.
        last = (tmp_path / "chosen").read_text().strip().splitlines()[-1]
        assert dict(pair.split(":") for pair in last.split(","))["0"] == "0.975"


USUAL: dict[str, Any] = {
    "_label_cost": -1.0,
    "_label_probability": 0.5,
    "_label_Action": 1,
    "_labelIndex": 0,
    "EventId": "e1",
    "a": [1, 2],
    "c": {"U": {"age": 3}, "_multi": [{"_tag": "a"}, {"_tag": "b"}]},
    "p": [0.5, 0.5],
}
SLOT = {"_a": [0], "_p": [1.0]}
ODD_MEMBERS: list[dict[str, Any]] = [
    {"p": 0.5},
    {"o": 3},
    {"o": True},
    {"_outcomes": 3},
    {"_outcomes": [None]},
    {"_outcomes": ["x"]},
    {"_outcomes": [{"_a": [1.5], "_p": [1.0]}]},
    {"_outcomes": [SLOT | {"_p": 3}]},
    {"_outcomes": [SLOT | {"_p": {"a": 1}}]},
    {"_outcomes": [SLOT], "c": USUAL["c"] | {"_slots": 7}},
    {"_outcomes": [SLOT], "c": USUAL["c"] | {"_slots": [None]}},
    {"_outcomes": [SLOT], "c": USUAL["c"] | {"_slots": [{"_inc": [99]}]}},
    {"_outcomes": [SLOT], "c": USUAL["c"] | {"_slots": [{"_inc": 5}]}},
    {"spuir": {"episode": 10**30}},
]


@pytest.mark.parametrize("odd", ODD_MEMBERS, ids=lambda odd: json.dumps(odd)[:40])
def test_one_odd_event_is_a_fault_and_no_more(odd: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "one.dsjson"
    # An event of slots has its costs there.
    usual = {name: USUAL[name] for name in USUAL if "_outcomes" not in odd or not name.startswith("_label")}
    path.write_text("\n".join([json.dumps(USUAL)] * 1000 + [json.dumps(usual | odd)]) + "\n")
    assert open_log(path).table().num_rows in (1000, 1001)
    assert CliRunner().invoke(main, ["doctor", str(path), "-q"], catch_exceptions=False).exit_code in (0, 1, 2)


def test_the_garbage_collector_comes_back_with_the_last_thread_that_parses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, seen = {name: Event() for name in ("first", "second")}, list[bool]()
    path, feed_block = save(tmp_path / "log.dsjson", event()), DsjsonParser.feed_block

    def feed(*given: Any) -> None:
        entered[current_thread().name].set()
        if current_thread() is first:
            assert entered["second"].wait(10)
        else:
            first.join(10)
            seen.append(gc.isenabled())
        feed_block(*given)

    first, second = (Thread(target=open_log, args=(path, "dsjson"), name=name) for name in entered)
    with monkeypatch.context() as patched:
        patched.setattr(DsjsonParser, "feed_block", feed)
        first.start()
        assert entered["first"].wait(10)
        second.start()
        first.join()
        second.join()
    assert seen == [False] and gc.isenabled()

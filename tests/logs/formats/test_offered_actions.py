"""Features of actions in the events of other tools: what stays is a catalogue, what varies is a column."""

import json
import pickle
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
import vowpalwabbit
from hypothesis import given, settings
from hypothesis import strategies as st

from spuir.errors import InputError
from spuir.logs import action_table, open_log, write_log
from spuir.logs.events.dsjson_parser import DsjsonParser
from spuir.logs.events.event_rows import EventRows
from spuir.logs.formats.base import Faults
from spuir.logs.formats.text_files import line_block


def action(name: str | None, **features: Any) -> dict[str, Any]:
    named = {} if name is None else {"_tag": name, "i": {"constant": 1, "id": name}}
    return {**named, "j": [features]} if features else named


def event(*multi: dict[str, Any], chosen: int = 0, number: int = 0, **more: Any) -> dict[str, Any]:
    """Return an event that chose one of the actions, each of which was equally likely."""
    order = [chosen, *(at for at in range(len(multi)) if at != chosen)]
    found = {"_label_cost": -1.0, "_label_probability": 1 / len(multi), "_labelIndex": chosen, "EventId": f"e{number}"}
    found |= {"a": [at + 1 for at in order], "p": [1 / len(multi)] * len(multi)}
    return found | {"c": {"user": {"age": 30 + number}, "_multi": list(multi)}} | more


def save(path: Path, *events: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in events), encoding="utf-8")
    return path


def catalogue(log: Any) -> dict[str, dict[str, Any]]:
    return {} if log.catalogue is None else {line.pop("action"): line for line in log.catalogue.table.to_pylist()}


TEA, JUICE = {"hot": True, "kind": "tea"}, {"hot": False, "kind": "juice"}


class TestDsjson:
    def test_what_stays_is_the_catalogue_and_what_varies_is_a_column(self, tmp_path: Path) -> None:
        path = save(
            tmp_path / "log.dsjson",
            event(action("tea", **TEA, price=3), action("juice", **JUICE, price=4), number=1),
            event(action("juice", **JUICE, price=4.5), action("tea", **TEA, price=3), chosen=1, number=2),
        )
        log = open_log(path)
        assert catalogue(log) == {
            "tea": {"j.hot": 1.0, "j.kind": "tea"},
            "juice": {"j.hot": 0.0, "j.kind": "juice"},
        }
        assert (log.action_columns, log.catalogue and log.catalogue.varying) == (("action.j.price",), ("j.price",))
        assert log.table(["eligible", "action.j.price"]).to_pylist() == [
            {"eligible": ["tea", "juice"], "action.j.price": [3.0, 4.0]},
            {"eligible": ["juice", "tea"], "action.j.price": [4.5, 3.0]},
        ]
        assert log.context == ("user.age",)

    def test_a_feature_that_comes_and_goes_varies(self, tmp_path: Path) -> None:
        path = save(tmp_path / "log.dsjson", event(action("tea", sale=1)), event(action("tea")))
        assert open_log(path).table()["action.j.sale"].to_pylist() == [[1.0], [0.0]]

    def test_the_id_and_the_constant_of_personalizer_are_no_features(self, tmp_path: Path) -> None:
        log = open_log(save(tmp_path / "log.dsjson", event(action("tea"), action("juice"))))
        assert (log.catalogue, log.action_columns) == (None, ())

    def test_without_names_equal_features_are_the_same_action(self, tmp_path: Path) -> None:
        path = save(
            tmp_path / "log.dsjson",
            event(action(None, **TEA, price=3), action(None, **JUICE, price=4)),
            event(action(None, **JUICE, price=5), action(None, **TEA, price=6)),
        )
        first, second = open_log(path).table()["eligible"].to_pylist()
        assert first == second[::-1]
        assert len(set(first)) == 2

    def test_equal_actions_of_one_event_are_numbered(self, tmp_path: Path) -> None:
        path = save(tmp_path / "log.dsjson", event(action(None, kind="tea"), action(None, kind="tea")))
        (labels,) = open_log(path).table()["eligible"].to_pylist()
        assert labels[1] == f"{labels[0]}#2"

    def test_texts_that_vary_are_columns_too(self, tmp_path: Path) -> None:
        path = save(tmp_path / "log.dsjson", event(action("tea", mood="calm")), event(action("tea", mood="wild")))
        assert open_log(path).table()["action.j.mood"].to_pylist() == [["calm"], ["wild"]]

    def test_numbers_and_texts_of_one_feature_are_texts(self, tmp_path: Path) -> None:
        path = save(tmp_path / "log.dsjson", event(action("tea", x=1)), event(action("tea", x="wild")))
        assert open_log(path).table()["action.j.x"].to_pylist() == [["1"], ["wild"]]

    def test_a_change_far_down_is_in_every_row(self, tmp_path: Path, monkeypatch: Any) -> None:
        monkeypatch.setattr("spuir.logs.events.line_reader.BLOCK_BYTES", 1000)
        events = [event(action("tea", price=3), action("juice", price=4), number=at) for at in range(300)]
        path = save(tmp_path / "log.dsjson", *events, event(action("juice", price=9), number=300))
        assert open_log(path).table()["action.j.price"].to_pylist() == [[3.0, 4.0]] * 300 + [[9.0]]

    def test_what_was_so_before_a_change_keeps_its_type(self, tmp_path: Path, monkeypatch: Any) -> None:
        monkeypatch.setattr("spuir.logs.events.line_reader.BLOCK_BYTES", 1000)
        early = [event(action("tea", price=3), action("juice"), number=at) for at in range(30)]
        late = [event(action("juice", price="free", size=1), number=30 + at) for at in range(30)]
        log = open_log(save(tmp_path / "log.dsjson", *early, *late))
        assert log.action_columns == ("action.j.price", "action.j.size")
        assert log.table()["action.j.price"].to_pylist() == [["3", None]] * 30 + [["free"]] * 30
        assert log.table()["action.j.size"].to_pylist() == [[0.0, 0.0]] * 30 + [[1.0]] * 30
        parts = pickle.loads(pickle.dumps(log.parts))
        assert pa.Table.from_batches([batch for part in parts for batch in part.read()]).equals(log.table())

    def test_hundreds_of_features_that_begin_to_vary_are_parsed_once(self, tmp_path: Path, monkeypatch: Any) -> None:
        monkeypatch.setattr("spuir.logs.events.line_reader.BLOCK_BYTES", 2000)
        events = [event(action("tea", **{f"f{at}": at}), action("juice", kind="x"), number=at) for at in range(300)]
        parsed: list[int] = []
        feed = DsjsonParser.feed_block

        def counted(self: DsjsonParser, block: Any, *rest: Any) -> None:
            parsed.extend(range(block.first, block.last + 1))
            feed(self, block, *rest)

        monkeypatch.setattr(DsjsonParser, "feed_block", counted)
        log = open_log(save(tmp_path / "log.dsjson", *events))
        assert parsed == list(range(1, 301))
        assert len(log.action_columns) == 300
        assert log.table()["action.j.f7"].to_pylist() == [[7.0 * (at == 7), 0.0] for at in range(300)]
        assert catalogue(log)["juice"] == {"j.kind": "x"}

    def test_a_feature_may_vary_between_files_alone(self, tmp_path: Path) -> None:
        save(tmp_path / "1.dsjson", event(action("tea", price=3), action("juice", price=4)))
        save(tmp_path / "2.dsjson", event(action("juice", price=4), action("tea", price=5)))
        log = open_log(tmp_path)
        assert log.table()["action.j.price"].to_pylist() == [[3.0, 4.0], [4.0, 5.0]]
        parts = pickle.loads(pickle.dumps(log.parts))
        assert [part.read(["action.j.price"]).__next__()[0].to_pylist() for part in parts] == [
            [[3.0, 4.0]],
            [[4.0, 5.0]],
        ]

    def test_a_worker_without_the_copy_parses_the_same(self, tmp_path: Path) -> None:
        events = [event(action("tea", **TEA, price=at), action("juice", **JUICE), number=at) for at in range(300)]
        log = open_log(save(tmp_path / "log.dsjson", *events))
        whole, parts = log.table(), pickle.loads(pickle.dumps(log.parts))
        for part in parts:
            part.options["copies"].sections.clear()
        assert pa.Table.from_batches([batch for part in parts for batch in part.read()]).equals(whole)

    def test_slots_offer_what_is_left(self, tmp_path: Path) -> None:
        multi = [action("tea", price=3), action("juice", price=4)]
        outcomes = [{"_label_cost": -1.0, "_id": "s0", "_a": [1, 0], "_p": [0.5, 0.5]}]
        outcomes += [{"_label_cost": 0.0, "_id": "s1", "_a": [0], "_p": [1.0]}]
        slots = {"EventId": "e", "c": {"u": {"x": 1}, "_multi": multi, "_slots": [{}, {}]}, "_outcomes": outcomes}
        path = save(tmp_path / "log.dsjson", slots, event(action("tea", price=9)))
        assert open_log(path).table()["action.j.price"].to_pylist() == [[3.0, 4.0], [3.0], [9.0]]

    def test_a_context_namespace_called_action_keeps_out_of_the_way(self, tmp_path: Path) -> None:
        many = [event(action("tea", kind="x"), number=at) for at in range(250)]
        for one in many:
            one["c"]["action"] = {"last": "juice"}
        log = open_log(save(tmp_path / "log.dsjson", *many))
        assert (log.context, log.action_columns) == (("user.age", "context.action.last"), ())

    def test_skipped_and_broken_events_add_nothing(self, tmp_path: Path) -> None:
        good = [event(action("tea", **TEA), number=at) for at in range(250)]
        idle = event(action("old", **TEA), _skipLearn=True)
        broken = event(action("bad", **TEA)) | {"a": [7]}
        assert list(catalogue(open_log(save(tmp_path / "log.dsjson", *good, idle, broken)))) == ["tea"]

    @settings(deadline=None, max_examples=30)
    @given(st.data())
    def test_both_ways_of_parsing_see_the_same_actions(self, data: Any) -> None:
        value = st.one_of(st.integers(-3, 3), st.sampled_from(["x", "y"]), st.booleans(), st.none())
        names = st.lists(st.sampled_from("abcde"), min_size=1, max_size=3, unique=True)
        lines: list[bytes] = []
        for number in range(130):
            offered = data.draw(names) if number % 10 == 0 else ["a", "b"]
            multi = [action(name, kind=name + "!", x=data.draw(value) if number == 125 else 1) for name in offered]
            lines.append(json.dumps(event(*multi, number=number)).encode())
        found: list[Any] = []
        for size in (len(lines), 1):
            parser, rows, faults = DsjsonParser("log", Faults()), EventRows(), Faults()
            for start in range(0, len(lines), size):
                parser.feed_block(line_block(start + 1, b"\n".join(lines[start : start + size])), rows, faults, "log")
            arrays, _ = rows.inferred({}, ["j.x"])
            described = (parser.offered.varying, parser.offered.catalogue())
            found.append((*described, {name: array.to_pylist() for name, array in arrays.items()}))
        assert found[0] == found[1]


class TestAdf:
    TEXT = (
        "shared 'e1 |u age:30\n'tea |j kind=tea price:3\n0:-1:0.5 'juice |j kind=juice hot price:4\n\n"
        "shared 'e2 |u age:31\n0:0:1 'juice |j kind=juice hot price:5\n\n"
    )

    def test_what_stays_is_the_catalogue_and_what_varies_is_a_column(self, tmp_path: Path) -> None:
        (tmp_path / "log.txt").write_text(self.TEXT)
        log = open_log(tmp_path / "log.txt", format="vw-cb-adf")
        # A number that a line does not name is 0, as it is for Vowpal Wabbit.
        assert catalogue(log) == {"tea": {"j.kind": "tea", "j.hot": 0.0}, "juice": {"j.kind": "juice", "j.hot": 1.0}}
        assert log.table()["action.j.price"].to_pylist() == [[3.0, 4.0], [5.0]]
        assert log.context == ("u.age",)

    def test_a_feature_that_only_names_the_action_is_none(self, tmp_path: Path) -> None:
        (tmp_path / "log.txt").write_text("shared |u x\n0:1:0.5 'tea |action tea\n'juice |action juice\n\n")
        assert open_log(tmp_path / "log.txt").catalogue is None


LABELS = ["tea", "juice", "a b|c"]
ROWS = {
    "decision_id": ["1", "2", "3"],
    "action": ["tea", "a b|c", "juice"],
    "reward": [1.0, 0.0, 0.5],
    "propensity": [0.5, 0.25, 1.0],
    "eligible": [["tea", "juice"], LABELS, ["juice"]],
    "action.age": [[1.0, 2.0], [3.0, 4.0, 5.0], [6.0]],
    "action.j.mood": [["x", "y"], ["x", "x", "z"], ["z"]],
    "u.age": [30.0, 31.0, 32.0],
}
ITEMS = {"action": LABELS, "size": [0.5, 1.5, 2.5], "j.kind": ["hot", "cold", "hot"]}


@pytest.mark.parametrize("format", ["dsjson", "vw-cb-adf"])
class TestWritten:
    def test_everything_comes_back(self, tmp_path: Path, format: str) -> None:
        log = open_log(pa.table(ROWS), catalogue=pa.table(ITEMS))
        write_log(log, tmp_path / "log.txt", format=format)
        back = open_log(tmp_path / "log.txt")
        assert back.format == format
        assert back.table(list(ROWS)).to_pydict() == ROWS
        assert catalogue(back) == catalogue(log)

    def test_a_single_value_is_that_of_the_executed_action(self, tmp_path: Path, format: str) -> None:
        rows = {name: column for name, column in ROWS.items() if name != "action.j.mood"} | {
            "action.age": [1.0, 2.0, 3.0]
        }
        write_log(open_log(pa.table(rows)), tmp_path / "log.txt", format=format)
        expected = [[1.0, 0.0], [0.0, 0.0, 2.0], [3.0]]  # a number that is not there is 0 for Vowpal Wabbit
        assert open_log(tmp_path / "log.txt").table()["action.age"].to_pylist() == expected

    def test_objects_and_lists_are_taken_apart(self, tmp_path: Path, format: str) -> None:
        user = {"age": 3.0, "from": {"city": "Oslo", "zone": None}}
        rows = {"action": ["a", "b"], "reward": [0.0, 1.0], "propensity": [0.5, 0.5], "eligible": [["a", "b"]] * 2}
        rows |= {"user": [user, None], "tags": [["x", "y"], ["y"]], "seen": [[{"n": 1.0}], []]}
        items = {"action": ["a", "b"], "vector": [[0.5, -1.0], [2.0, 0.25]], "i": [1.0, 2.0]}
        write_log(open_log(pa.table(rows), catalogue=pa.table(items)), tmp_path / "log.txt", format=format)
        back = open_log(tmp_path / "log.txt")
        assert back.context == ("user.age", "user.from.city", "tags.x", "tags.y", "seen.n")
        assert back.table(["user.age", "user.from.city", "tags.y"]).to_pylist()[0] == {
            "user.age": 3.0,
            "user.from.city": "Oslo",
            "tags.y": 1.0,
        }
        assert catalogue(back) == {
            "a": {"vector.0": 0.5, "vector.1": -1.0, "i": 1.0},
            "b": {"vector.0": 2.0, "vector.1": 0.25, "i": 2.0},
        }

    def test_a_list_of_another_length_is_refused(self, tmp_path: Path, format: str) -> None:
        rows = ROWS | {"action.age": [[1.0, 2.0], [3.0], [6.0]]}
        with pytest.raises(InputError, match=r"'action.age': got 1 value at row 1, but .* 3 eligible actions"):
            write_log(open_log(pa.table(rows)), tmp_path / "log.txt", format=format)
        assert not (tmp_path / "log.txt").exists()

    def test_vowpal_wabbit_learns_from_the_features(self, tmp_path: Path, format: str) -> None:
        write_log(open_log(pa.table(ROWS), catalogue=pa.table(ITEMS)), path := tmp_path / "log.txt", format=format)
        flags = "--cb_explore_adf --quiet" + (" --dsjson" if format == "dsjson" else "")
        vw = vowpalwabbit.Workspace(f"{flags} -d {path} --invert_hash {tmp_path / 'weights'}")
        assert vw.get_weighted_examples() == 3
        vw.finish()
        weights = (tmp_path / "weights").read_text()
        assert all(name in weights for name in ("size", "age", "kind", "mood"))


class TestCatalogue:
    @pytest.mark.parametrize("name", ["items.parquet", "items.csv", "items.jsonl"])
    def test_it_is_read_from_a_file(self, tmp_path: Path, name: str) -> None:
        table = pa.table({"size": [1.5, 2.0], "action": ["tea", "juice"], "weight": ["light", "heavy"]})
        write_log(table.to_batches(), tmp_path / name)
        items = action_table(tmp_path / name)
        assert (items.labels, items.features) == (["tea", "juice"], ("size", "weight"))
        assert items.to_frame().loc["juice", "weight"] == "heavy"

    def test_labels_may_be_an_index_or_keys_or_renamed(self) -> None:
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame({"size": [1, 2]}, index=["tea", "juice"])
        for source, rename in ((frame, None), ({"tea": {"size": 1}, "juice": {"size": 2}}, None)):
            assert action_table(source, rename).to_frame()["size"].to_dict() == {"tea": 1, "juice": 2}
        renamed = action_table(frame.rename_axis("item").reset_index(), {"item": "action"})
        assert renamed.labels == ["tea", "juice"]

    def test_the_last_row_of_a_label_counts_and_conflicts_are_counted(self) -> None:
        rows = {"action": ["a", "b", "a", "c", "b"], "x": [1, 2, 3, 4, 2], "y": [None, "u", None, "v", "w"]}
        items = action_table(rows)
        assert items.table.to_pydict() == {"action": ["a", "b", "c"], "x": [3, 2, 4], "y": [None, "w", "v"]}
        assert (items.repeated, items.conflicts) == (2, {"x": 1, "y": 1})
        assert "x (1 label), y (1 label)" in items.notices()[0]

    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            ({"x": [1]}, "need a column 'action'"),
            ({"action": ["a", None], "x": [1, 2]}, "1 row without a label"),
            ({"action": ["a"]}, "no column of features"),
            ({"action": pa.array([], pa.string()), "x": pa.array([], pa.float64())}, "no rows"),
        ],
    )
    def test_what_cannot_be_learned_from_is_refused(self, rows: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            action_table(rows).check()

    def test_labels_become_those_of_the_log(self) -> None:
        rows = {"action": [1, 2], "reward": [0.0, 1.0], "x": [1.0, 2.0]}
        log = open_log(rows, catalogue={"action": ["1", "2"], "size": [3, 4]})
        assert log.catalogue is not None
        assert log.catalogue.labels == [1, 2]
        with pytest.raises(InputError, match="the label 'b', but the actions of the log are whole numbers"):
            open_log(rows, catalogue={"action": ["1", "b"], "size": [3, 4]})
        texts = open_log(rows | {"action": ["1", "2"]}, catalogue={"action": [1, 2], "size": [3, 4]})
        assert texts.catalogue is not None
        assert texts.catalogue.labels == ["1", "2"]

    def test_the_fingerprint_of_a_log_knows_its_catalogue(self) -> None:
        rows, items = {"action": [1, 2], "reward": [0.0, 1.0], "x": [1.0, 2.0]}, {"action": [1, 2], "size": [3, 4]}
        marks = {open_log(rows, catalogue=one).fingerprint() for one in (None, items, items | {"size": [3, 5]})}
        assert len(marks) == 3


class TestColumns:
    @pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.jsonl"])
    def test_lists_of_labels_and_features_come_back(self, tmp_path: Path, name: str) -> None:
        write_log(open_log(pa.table(ROWS)), tmp_path / name)
        back = open_log(tmp_path / name)
        found = back.table(["eligible", "action.age", "action.j.mood"]).to_pydict()
        assert found == {name: ROWS[name] for name in ("eligible", "action.age", "action.j.mood")}
        assert (back.context, back.action_columns) == (("u.age",), ("action.age", "action.j.mood"))

    def test_lists_in_csv_may_be_parted_by_bars(self, tmp_path: Path) -> None:
        text = "action,reward,x,eligible,action.age,action.price\na,1,0.5,a|b,1|2.5,3\nb,0,0.1,b,4,4.5\n"
        (tmp_path / "log.csv").write_text(text)
        found = open_log(tmp_path / "log.csv").table(["eligible", "action.age", "action.price"]).to_pydict()
        assert found == {"eligible": [["a", "b"], ["b"]], "action.age": [[1.0, 2.5], [4.0]], "action.price": [3.0, 4.5]}

    def test_whole_numbers_and_masks_may_be_parted_by_bars(self, tmp_path: Path) -> None:
        for cells, expected in (("1|2", [1, 2]), ("true|false", [True, False]), ("007|x", ["007", "x"])):
            action = "x" if cells == "007|x" else 1
            (tmp_path / "log.csv").write_text(f"action,reward,x,eligible\n{action},1,0.5,{cells}\n")
            assert open_log(tmp_path / "log.csv").table(["eligible"]).to_pydict() == {"eligible": [expected]}

    def test_a_feature_of_actions_is_no_context(self) -> None:
        with pytest.raises(Exception, match=r"'action.age', but it describes an action"):
            open_log(pa.table(ROWS), context=["u.age", "action.age"])


class TestTheFastWay:
    """Actions of usual events are read together; every event by itself must give the same."""

    ACTIONS: ClassVar[dict[str, Any]] = {
        "numbers and texts": lambda at: {"price": at % 7, "kind": "ab"[at % 2], "score": at / 8, "size": 3},
        "fixed": lambda at: {"kind": "ab", "size": 3},
        "flags, large numbers and nothing": lambda at: {"of": [True, 2**60, None, 0.5][at % 4], "late": at < 300},
        "a number or a text": lambda at: {"of": "x" if at % 50 == 0 else True if at % 3 else at},
        "lists": lambda at: {"tags": ["red", "blue"][: at % 3], "vector": [at, 0.5]},
        "further keys": lambda at: {f"k{at % 4}": at, "inner": {f"k{at % 300}": "x"}},
        "other kinds": lambda at: {"of": [1, {"x": at}, [2], None, [{"y": 1}, {"y": None}]][at % 5]},
    }

    def lines(self, shape: str) -> list[str]:
        """Return events with these actions, some labels of which come late, and odd lines among them."""
        found: list[str] = []
        for at in range(600):
            offered = [action(f"x{(at + k) % 5 + at // 400}", **self.ACTIONS[shape](at + k)) for k in range(1 + at % 3)]
            if at % 40 == 0:
                offered[0]["i"] = {"constant": 2, "id": "other"}
            if at % 45 == 0:
                offered[0]["action"] = {"of": at}
            if at % 47 == 0:
                del offered[0]["_tag"]
            more: dict[str, Any] = {"_skipLearn": True} if at % 60 == 0 else {"pdrop": 0.5} if at % 61 == 0 else {}
            line = json.dumps(event(*offered, number=at, **more))
            line = line.replace('"j":', '"j": [{"price": 9}], "j":', 1) if at % 53 == 0 else line
            found.append('{"c": ' if at % 200 == 199 else line)
        return found

    @pytest.mark.parametrize("shape", ACTIONS)
    @pytest.mark.parametrize("block", [1 << 13, 1 << 20])
    def test_it_reads_what_single_events_read(
        self, shape: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "log.dsjson"
        path.write_text("\n".join(self.lines(shape)) + "\n", encoding="utf-8")
        monkeypatch.setattr("spuir.logs.events.line_reader.BLOCK_BYTES", block)
        fast = open_log(path)
        read = fast.table()
        monkeypatch.setattr("spuir.logs.events.dsjson_parser._MOST_SHAPES", 0)
        slow = open_log(path)
        assert read.schema == slow.table().schema
        assert repr(read.to_pylist()) == repr(slow.table().to_pylist())
        assert repr(catalogue(fast)) == repr(catalogue(slow))

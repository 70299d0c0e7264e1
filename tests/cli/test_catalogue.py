"""Actions with features on the command line: train, show, decide and evaluate, and a sentence for bad input."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet

import spuir
from spuir.cli.app import main
from spuir.cli.show import products
from spuir.logs import open_log, write_log
from spuir.training import train
from tests.training.catalogues import BATCH, ITEMS, LABELS, make_log


def call(*arguments: Any) -> Any:
    return CliRunner().invoke(main, [str(one) for one in arguments])


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder with a log, with prices per decision if the parameter says so, and its catalogue."""
    parquet.write_table(make_log(varying=getattr(request, "param", True)), tmp_path / "log.parquet")
    parquet.write_table(pa.table(ITEMS), tmp_path / "items.parquet")
    return tmp_path


def trained(folder: Path) -> Path:
    done = call(
        *("train", folder / "log.parquet", "--actions", folder / "items.parquet", "-p", "hierarchical"),
        *("-b", BATCH, "-o", folder / "model.spuir", "-q"),
    )
    assert done.exit_code == 0, done.output
    return folder / "model.spuir"


@pytest.mark.parametrize("folder", [False, True], indirect=True)
class TestCommands:
    def test_training_gives_the_model_of_the_library(self, folder: Path) -> None:
        model = spuir.load(trained(folder))
        same = train(str(folder / "log.parquet"), "hierarchical", actions=ITEMS, batch_size=BATCH).bandit
        assert np.array_equal(model.coefficients_, same.coefficients_)

    def test_show_names_the_catalogue_and_what_it_says(self, folder: Path) -> None:
        path = trained(folder)
        varying = ["price"] if "action.price" in open_log(folder / "log.parquet").schema.names else []
        found = json.loads(call("show", path, "--json", "-n", 3).output)
        assert found["catalogue"]["actions"] == len(LABELS)
        assert found["catalogue"]["columns"] == ["size", "kind"]
        assert found["catalogue"]["per_decision"] == varying
        # The log was made with the product of size and x0 as the strongest effect of a feature.
        strongest = {(line["action_feature"], line["feature"]) for line in found["shared"]}
        assert ("size", "x0") in strongest
        text = call("show", path).output
        assert "12 actions by size, kind" in text
        assert "shared coefficients" in text

    def test_show_says_where_products_of_features_act(self, folder: Path) -> None:
        said = "the model also has products of features, which shared coefficients leave out"
        path = trained(folder)
        assert json.loads(call("show", path, "--json").output)["products"] is None
        assert said not in " ".join(call("show", path).output.split())
        done = call(
            *("train", folder / "log.parquet", "--actions", folder / "items.parquet", "-p", "hierarchical"),
            *("-s", "products=true", "-b", BATCH, "-o", path, "-q"),
        )
        assert done.exit_code == 0, done.output
        assert said in " ".join(call("show", path).output.split())
        # Of two models, one with products that acts, ridges and errors are those of the other.
        both: Any = SimpleNamespace(
            diagnosis=lambda: {"curved": {"acts": True}}, policy_=SimpleNamespace(products="auto")
        )
        assert products(both) == f"{said}, as do the ridges and all standard errors"

    def test_decisions_keep_to_the_lists_and_are_a_log_to_learn_from(self, folder: Path) -> None:
        path = trained(folder)
        asked = make_log(200, seed=5, varying="action.price" in open_log(folder / "log.parquet").schema.names)
        asked = asked.drop(["action", "reward", "propensity"]).append_column("decision_id", pa.array(range(200)))
        parquet.write_table(asked, folder / "asked.parquet")
        done = call("decide", path, folder / "asked.parquet", "-o", folder / "made.parquet", "--json", "-q")
        assert done.exit_code == 0, done.output
        rows = parquet.read_table(folder / "made.parquet").to_pylist()
        for row in rows:
            place = row["eligible"].index(row["action"])
            assert row["probabilities"][place] == pytest.approx(row["propensity"])
            assert sum(row["probabilities"]) == pytest.approx(1)
        bandit = spuir.load(path)
        lists = asked["eligible"].to_pylist()
        given: dict[str, Any] = {"eligible": lists}
        if "action.price" in asked.column_names:
            flat = [
                (at, label, price)
                for at, (labels, prices) in enumerate(zip(lists, asked["action.price"].to_pylist(), strict=True))
                for label, price in zip(labels, prices, strict=True)
            ]
            given = {
                "action_features": dict(
                    zip(("row", "action", "price"), map(list, zip(*flat, strict=True)), strict=True)
                )
            }
        day = bandit.decide(asked.select(["x0", "x1", "x2"]), ids=range(200), **given)
        assert day.actions.tolist() == [row["action"] for row in rows]
        rewards = pa.table({"decision_id": range(200), "reward": np.linspace(0, 1, 200)})
        parquet.write_table(rewards, folder / "rewards.parquet")
        more = call("train", folder / "made.parquet", "--from", path, "--rewards", folder / "rewards.parquet", "-q")
        assert more.exit_code == 0, more.output
        assert spuir.load(path).n_episodes_ == bandit.n_episodes_ + 1

    def test_new_actions_of_the_catalogue_join_a_model(self, folder: Path) -> None:
        path = trained(folder)
        later = {name: [*column, column[0]] for name, column in ITEMS.items()} | {"action": [*LABELS, "new"]}
        parquet.write_table(pa.table(later), folder / "later.parquet")
        again = ("train", folder / "log.parquet", "--from", path, "-b", BATCH, "--allow-repeat")
        done = call(*again, "--actions", folder / "later.parquet", "-o", folder / "more.spuir")
        assert done.exit_code == 0, done.output
        assert "New to the model: 1 action of the catalogue: new." in done.output
        assert spuir.load(folder / "more.spuir").actions_.tolist() == [*LABELS, "new"]
        refused = call(*again, "--actions", "a,b", "-o", folder / "none.spuir")
        assert refused.exit_code == 2
        assert "--actions: got a,b, but the model of --from has decided it" in refused.stderr
        assert not (folder / "none.spuir").exists()

    def test_evaluation_reads_lists_and_features(self, folder: Path) -> None:
        held = make_log(600, seed=9, varying="action.price" in open_log(folder / "log.parquet").schema.names)
        parquet.write_table(held, folder / "later.parquet")
        done = call("evaluate", folder / "later.parquet", "-m", trained(folder), "--against", "logged", "--json", "-q")
        assert done.exit_code == 0, done.output
        rows = {(line["policy"], line["estimator"]): line["value"] for line in json.loads(done.output)["values"]}
        values = {policy: value for (policy, estimator), value in rows.items() if estimator == "dr"}
        assert max(values, key=values.__getitem__) == str(folder / "model.spuir")

    def test_a_policy_is_trained_and_evaluated_with_its_catalogue(self, folder: Path) -> None:
        done = call(
            *("evaluate", folder / "log.parquet", "--actions", folder / "items.parquet", "-p", "hierarchical"),
            *("-b", 200, "--against", "logged", "--json", "-q"),
        )
        assert done.exit_code == 0, done.output


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"eligible": [["n1", "zz"]]}, r"'zz' at row 0"),
            ({"eligible": [[]], "action.price": [[]]}, r"no action at row 0"),
            ({"eligible": [["n1", "n1"]]}, r"'n1' twice at row 0"),
            ({"action.price": [[1.0]]}, r"1 value at row 0, but there is one for each of the 2 eligible actions"),
            (
                {"action.price": pa.array([None], pa.list_(pa.float64()))},
                r"nothing at row 0, but there is one for each of",
            ),
            ({"action.price": [[1.0, None]]}, r"nothing at row 0, but a feature per decision is a finite number"),
            ({"action.price": [[1.0, float("inf")]]}, r"inf at row 0"),
            ({"action.price": [["cheap", "dear"]]}, r"type list<element: string>, but a feature per decision is a"),
            ({"action.price": [3.0]}, r"one value per row, but to choose, the value of every eligible action"),
            ({"action.price": None}, r"no column 'action.price'"),
            ({"eligible": None}, r"no column 'eligible'"),
        ],
    )
    def test_what_cannot_be_decided_is_one_sentence(self, folder: Path, changes: dict[str, Any], message: str) -> None:
        asked: dict[str, Any] = {"decision_id": [1], "x0": [0.1], "x1": [0.2], "x2": [0.3]}
        asked |= {"eligible": [["n1", "n2"]], "action.price": [[1.0, 2.0]]} | changes
        table = pa.table({name: column for name, column in asked.items() if column is not None})
        parquet.write_table(table, folder / "asked.parquet")
        result = call("decide", trained(folder), folder / "asked.parquet", "-o", folder / "made.parquet")
        assert result.exit_code == 2
        assert message in " ".join(result.output.split()) or message in result.output
        assert not (folder / "made.parquet").exists()

    def test_two_ways_to_say_what_is_eligible_are_refused(self, folder: Path) -> None:
        parquet.write_table(
            make_log(5, varying=True).append_column("decision_id", pa.array(range(5))), folder / "a.parquet"
        )
        result = call(
            "decide", trained(folder), folder / "a.parquet", "--eligible", "n1", "-o", folder / "made.parquet"
        )
        assert result.exit_code == 2
        assert "the table has a column eligible" in result.output

    def test_renaming_without_a_catalogue_is_refused(self, folder: Path) -> None:
        result = call("train", folder / "log.parquet", "--rename-actions", "a=b", "-b", BATCH, "-o", folder / "m.spuir")
        assert result.exit_code == 2
        assert "it belongs to a catalogue" in result.output

    def test_a_catalogue_that_is_not_there_is_refused(self, folder: Path) -> None:
        result = call("train", folder / "log.parquet", "--actions", folder / "none.parquet", "-b", BATCH)
        assert result.exit_code == 2
        assert "there is no such file" in result.output


def test_a_dsjson_file_becomes_a_model_in_one_command(tmp_path: Path) -> None:
    write_log(open_log(make_log(varying=True), catalogue=ITEMS), tmp_path / "events.dsjson")
    done = call(
        "train", tmp_path / "events.dsjson", "-p", "hierarchical", "-b", BATCH, "-o", tmp_path / "m.spuir", "-q"
    )
    assert done.exit_code == 0, done.output
    model = spuir.load(tmp_path / "m.spuir")
    assert sorted(model.actions_) == sorted(LABELS)
    assert model._model.varying == ("price",)

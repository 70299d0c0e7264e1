"""Training with a catalogue: the model of partial_fit, on every number of workers, and a sentence for bad input."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import spuir
from spuir.errors import SpuirError
from spuir.logs import open_log, write_log
from spuir.training import train
from tests.training.catalogues import BATCH, ITEMS, LABELS, make_log, one_by_one, write_parts


def same(one: spuir.Bandit, two: spuir.Bandit) -> float:
    """Return the largest difference of what was learned."""
    theta = np.abs(one.coefficients_ - two.coefficients_).max()
    return max(theta, np.abs(one.shared_coefficients_ - two.shared_coefficients_).max())


@pytest.mark.parametrize("varying", [False, True])
class TestLearning:
    def test_it_equals_partial_fit(self, varying: bool) -> None:
        table = make_log(varying=varying)
        trained = train(table, "hierarchical", batch_size=BATCH, actions=ITEMS)
        assert same(trained.bandit, one_by_one(table)) < 1e-9
        assert trained.bandit.actions_.tolist() == LABELS

    def test_the_bits_do_not_depend_on_workers_or_parts(self, tmp_path: Path, varying: bool) -> None:
        table = make_log(varying=varying)
        folder = write_parts(tmp_path / "log", table)
        models: list[bytes] = []
        for source, workers in ((folder, 1), (folder, 2), (folder, 3)):
            trained = train(str(source), "hierarchical", batch_size=BATCH, actions=ITEMS, workers=workers)
            trained.bandit.save(tmp_path / "model.spuir")
            models.append((tmp_path / "model.spuir").read_bytes())
        assert len(set(models)) == 1
        assert same(trained.bandit, train(table, "hierarchical", batch_size=BATCH, actions=ITEMS).bandit) < 1e-9

    def test_scattered_episodes_give_the_same(self, tmp_path: Path, varying: bool, monkeypatch: Any) -> None:
        monkeypatch.setattr("spuir.training.group.MIN_FRAGMENTS", 0)
        monkeypatch.setattr("spuir.training.group.FRAGMENT_ROWS", 10**9)
        table = make_log(varying=varying)
        episodes = np.arange(table.num_rows) % 4
        scattered = table.append_column("episode", pa.array(episodes))
        sorted_rows = scattered.take(pa.array(np.argsort(episodes, kind="stable")))
        one, two = (train(each, "hierarchical", actions=ITEMS).bandit for each in (scattered, sorted_rows))
        assert same(one, two) < 1e-9

    def test_a_saved_model_continues(self, tmp_path: Path, varying: bool) -> None:
        table = make_log(varying=varying)
        half = 2 * BATCH
        whole = train(table, "hierarchical", batch_size=BATCH, actions=ITEMS, encoder=None)
        first = train(table.slice(0, half), "hierarchical", batch_size=BATCH, actions=ITEMS)
        first.bandit.save(tmp_path / "model.spuir")
        loaded = spuir.load(tmp_path / "model.spuir")
        second = train(table.slice(half), batch_size=BATCH, start=loaded)
        assert second.bandit.n_episodes_ == whole.bandit.n_episodes_
        # The maps were fixed on other rows, so that the two are close but not the same.
        assert np.corrcoef(whole.bandit.coefficients_.ravel(), second.bandit.coefficients_.ravel())[0, 1] > 0.99

    def test_events_of_other_tools_bring_their_catalogue(self, tmp_path: Path, varying: bool) -> None:
        table = make_log(varying=varying)
        expected = train(table, "hierarchical", batch_size=BATCH, actions=ITEMS).bandit
        for name, format in (("log.dsjson", "dsjson"), ("log.txt", "vw-cb-adf")):
            write_log(open_log(table, catalogue=ITEMS), tmp_path / name, format=format)
            found = train(str(tmp_path / name), "hierarchical", batch_size=BATCH).bandit
            order = [found.actions_.tolist().index(label) for label in LABELS]
            assert np.abs(found.coefficients_[order] - expected.coefficients_).max() < 1e-6


class TestLabels:
    def test_a_policy_without_features_takes_the_labels_alone(self) -> None:
        trained = train(make_log(), "auto", batch_size=BATCH, actions=ITEMS)
        assert trained.bandit.actions_.tolist() == LABELS
        assert any("auto has no use for features" in notice for notice in trained.notices)

    def test_actions_that_were_never_taken_are_known(self) -> None:
        more = ITEMS | {name: [*column, column[0]] for name, column in ITEMS.items()} | {"action": [*LABELS, "new"]}
        trained = train(make_log(), "hierarchical", batch_size=BATCH, actions=more).bandit
        suggested = trained.coefficients_frame().query("action == 'new'")["coefficient"]
        assert np.isfinite(suggested).all()
        assert np.abs(suggested).max() > 0

    def test_new_actions_join_a_model_and_changed_features_are_updated(self) -> None:
        table = make_log()
        known = train(table, "hierarchical", batch_size=BATCH, actions=ITEMS).bandit
        before = known.coefficients_.copy()
        later: dict[str, list[Any]] = {name: [*column, column[0]] for name, column in ITEMS.items()}
        later["action"] = [*LABELS, "new"]
        later["size"] = [later["size"][0] + 5.0, *later["size"][1:]]
        rows = table.slice(0, BATCH).set_column(0, "action", pa.array(["new"] * BATCH))
        rows = rows.set_column(rows.schema.get_field_index("eligible"), "eligible", pa.array([["new"]] * BATCH))
        trained = train(rows, batch_size=BATCH, start=known, actions=later)
        assert trained.bandit.actions_.tolist() == [*LABELS, "new"]
        assert any("New to the model: 1 action of the catalogue: new." in one for one in trained.notices)
        assert any(f"changed features of 1 action: {LABELS[0]}." in n for n in trained.notices)
        assert known.actions_.tolist() == LABELS
        assert np.array_equal(known.coefficients_, before)

    def test_conflicts_are_reported_and_the_last_row_counts(self) -> None:
        twice = {name: [column[0], *column] for name, column in ITEMS.items()}
        twice["size"] = [99.0, *ITEMS["size"]]
        trained = train(make_log(), "hierarchical", batch_size=BATCH, actions=twice)
        assert any("size (1 label)" in notice for notice in trained.notices)
        assert same(trained.bandit, train(make_log(), "hierarchical", batch_size=BATCH, actions=ITEMS).bandit) < 1e-9


def changed(**columns: Any) -> pa.Table:
    table = make_log(varying=True)
    for name, column in columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(column))
    return table


ROWS = make_log(varying=True)
OFFERED, PRICES = ROWS["eligible"].to_pylist(), ROWS["action.price"].to_pylist()


class TestRefusals:
    @pytest.mark.parametrize(
        ("table", "items", "message"),
        [
            (make_log(), None, "policy 'hierarchical' learns from the features of actions; pass their catalogue"),
            (
                make_log(),
                {n: c[1:] for n, c in ITEMS.items()},
                f"'{LABELS[0]}', but table of actions has no row for it",
            ),
            (make_log(), ITEMS | {"action": [None, *LABELS[1:]]}, "1 row without a label"),
            (make_log(), {"action": LABELS}, "no column of features"),
            (make_log(), {"size": [1.0]}, "need a column 'action'"),
            (make_log(), ITEMS | {"size": [np.inf, *ITEMS["size"][1:]]}, "inf"),
            (
                changed(**{"action.price": [[1.0], *PRICES[1:]]}),
                ITEMS,
                r"'action.price' in table: got 1 value at row 0, but there is one for each of the 3 eligible actions",
            ),
            (
                changed(**{"action.price": [[np.nan] * 3, *PRICES[1:]]}),
                ITEMS,
                r"'action.price' in table: got nothing at row 0, but a feature per decision is a finite number",
            ),
            (
                changed(eligible=[*OFFERED[:7], [], *OFFERED[8:]]),
                ITEMS,
                r"eligible in table: got '.*' not listed at row 7, but the executed action is listed once",
            ),
        ],
    )
    def test_bad_input_is_one_clear_sentence(self, tmp_path: Path, table: Any, items: Any, message: str) -> None:
        out = tmp_path / "model.spuir"
        with pytest.raises(SpuirError, match=message) as refused:
            train(table, "hierarchical", batch_size=BATCH, actions=items, out=out)
        assert "\n" not in str(refused.value)
        assert not out.exists()

    def test_a_model_with_features_needs_them_of_new_actions(self) -> None:
        known = train(make_log(), "hierarchical", batch_size=BATCH, actions=ITEMS).bandit
        rows = make_log().slice(0, BATCH).set_column(0, "action", pa.array(["new"] * BATCH))
        with pytest.raises(
            SpuirError, match=r"'new', but the model knows .*pass a catalogue that has it \(--actions\)"
        ):
            train(rows, batch_size=BATCH, start=known)
        fewer = {name: column for name, column in ITEMS.items() if name != "kind"}
        with pytest.raises(SpuirError, match="no column 'kind', but the catalogue of the model has it"):
            train(make_log(), batch_size=BATCH, start=known, actions=fewer)
        other = ITEMS | {"size": ["large"] * len(LABELS)}
        with pytest.raises(SpuirError, match=f"column .size.: got .large. for action {LABELS[0]!r}"):
            train(make_log(), batch_size=BATCH, start=known, actions=other)
        assert known.actions_.tolist() == LABELS

    def test_a_model_with_features_per_decision_needs_their_column(self) -> None:
        known = train(ROWS, "hierarchical", batch_size=BATCH, actions=ITEMS).bandit
        with pytest.raises(SpuirError, match=r"no column 'action.price', but the model reads"):
            train(make_log(), batch_size=BATCH, start=known)


class TestConstantDeviations:
    """Catalogues so large that actions deviate by a constant alone."""

    @pytest.mark.parametrize("varying", [False, True])
    def test_the_bits_do_not_depend_on_workers(self, tmp_path: Path, varying: bool) -> None:
        table = make_log(varying=varying)
        folder = write_parts(tmp_path / "log", table)
        policy = spuir.make_policy("hierarchical", deviations="constant")
        models: list[bytes] = []
        for workers in (1, 3):
            trained = train(str(folder), policy, batch_size=BATCH, actions=ITEMS, workers=workers)
            trained.bandit.save(tmp_path / "model.spuir")
            models.append((tmp_path / "model.spuir").read_bytes())
        assert len(set(models)) == 1
        assert "numbers in all" in str(trained.needed)
        assert same(trained.bandit, one_by_one(table, deviations="constant")) < 1e-9

    def test_training_says_that_it_simplified_the_model(self) -> None:
        policy = spuir.make_policy("hierarchical", memory_limit=5e-5)
        trained = train(make_log(), policy, batch_size=BATCH, actions=ITEMS)
        assert trained.bandit.diagnosis()["deviations"] == "constant"
        assert [one for one in trained.notices if "deviate from what their features say by a constant alone" in one]

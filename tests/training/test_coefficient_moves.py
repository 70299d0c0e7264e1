"""The record of coefficients beside a model: bounded, resumed with the training, and read back as moves."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spuir import make_policy
from spuir.storage.atomic import write_csv
from spuir.training import coefficient_moves, train
from tests.training.logs import make_table


def recorded(table, policy: Any = "sbucb", **given):
    trained = train(table, policy, batch_size=100, workers=1, **given)
    return trained, list(coefficient_moves.move_rows(trained.bandit, trained.episodes))


def test_the_record_ends_with_the_coefficients_of_the_model():
    trained, rows = recorded(make_table(2_500), encoding={"intercept": True})
    episodes = sorted({row["episode"] for row in rows})
    assert episodes == list(range(0, 25, 2))  # every second of 25, the last among them
    last = [row for row in rows if row["episode"] == 24]
    table = trained.bandit.coefficient_table()
    assert [(row["action"], row["feature"], row["coefficient"], row["standard_error"]) for row in last] == table


def test_large_policies_and_kernels_are_recorded_within_bounds(monkeypatch):
    kernel = make_policy("sbucb", features="fourier", n_features=10, bandwidth=1.0, raw=True, intercept=True)
    _, rows = recorded(make_table(300), kernel)
    assert {row["feature"] for row in rows} == {"x0", "x1", "x2", "x3", "intercept"}
    assert not recorded(make_table(300), "bexp3")[1]
    monkeypatch.setattr(coefficient_moves, "COEFFICIENTS", 11)
    assert not recorded(make_table(300))[1]


@pytest.mark.parametrize("changes", [False, True])
def test_a_coefficient_that_changes_is_found(changes, tmp_path: Path):
    table = make_table(4_000)
    contexts, action = table["x2"].to_numpy(), table["action"].to_numpy()
    rewards = table["reward"].to_numpy() + 0.2 * contexts * (action == 2) * (np.arange(4_000) > 2_000) * changes
    _, rows = recorded(table.set_column(1, "reward", [rewards]))
    write_csv(coefficient_moves.moves_file(tmp_path / "m.spuir"), rows)
    moves = coefficient_moves.read_moves(tmp_path / "m.spuir")
    assert len(moves) == 15
    if changes:
        assert (moves[0]["action"], moves[0]["feature"]) == ("2", "x2")
        assert moves[0]["move"] > 5
    else:
        assert moves[0]["move"] < 3  # the largest of 15: above 3 in less than 4 % of all seeds


def test_without_a_record_there_are_no_moves(tmp_path: Path):
    assert coefficient_moves.read_moves(tmp_path / "m.spuir") == []

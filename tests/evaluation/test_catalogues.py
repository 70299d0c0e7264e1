"""Replay and tuning of policies that read a catalogue."""

import numpy as np
import pytest

import spuir
from spuir.errors import InputError
from spuir.evaluation.encoded_rows import EncodedRows
from spuir.evaluation.replay import replay
from spuir.logs import open_log
from tests.training.catalogues import BATCH, ITEMS, LABELS, executed_prices, make_log


@pytest.mark.parametrize("varying", [False, True])
def test_replay_learns_with_the_features_of_the_log(varying: bool) -> None:
    table = make_log(6_000, varying=varying)
    rows = EncodedRows.read(open_log(table, catalogue=ITEMS), batch_size=BATCH)
    described = replay(rows, "hierarchical", batch_size=BATCH)
    plain = replay(rows, "auto", batch_size=BATCH)
    assert described.value > float(np.mean(table["reward"].to_numpy())) + 5 * described.standard_error
    if varying:
        # One model per action does not see the prices, which have as large an effect as all else together. Both replays
        # are deterministic; at these errors a wrong order would have a probability below 1e-4.
        assert described.value > plain.value + 4 * np.hypot(described.standard_error, plain.standard_error)


def test_rows_know_the_features_of_their_actions() -> None:
    table = make_log(varying=True)
    rows = EncodedRows.read(open_log(table, catalogue=ITEMS), batch_size=BATCH)
    order = [LABELS.index(str(label)) for label in rows.labels]
    assert rows.catalogue["size"].tolist() == [ITEMS["size"][at] for at in order]
    assert np.array_equal(rows.executed_features(slice(5, 90))["price"], executed_prices(table)[5:90])
    some = np.array([7, 300, 41])
    assert np.array_equal(rows.at(some).executed_features(slice(None))["price"], executed_prices(table)[some])
    offered = rows.offered_features(slice(3, 5))
    names = [str(rows.labels[code]) for code in offered["action"]]
    expected = table["eligible"].to_pylist()[3:5]
    assert [sorted(n for n, row in zip(names, offered["row"], strict=True) if row == at) for at in (0, 1)] == [
        sorted(one) for one in expected
    ]


def test_tuning_compares_and_trains_with_a_catalogue() -> None:
    log = open_log(make_log(4_000), catalogue=ITEMS)
    found = spuir.tune(log, policies=["hierarchical"], budget=2, batch_size=BATCH, learning="replay")
    assert found.candidate.policy == "hierarchical"
    assert "size" in found.training.bandit.shared_coefficients_frame()["action_feature"].tolist()


def test_tuning_without_a_catalogue_is_refused_at_once() -> None:
    with pytest.raises(InputError, match="learns from the features of actions"):
        spuir.tune(make_log(), policies=["hierarchical"], budget=2, batch_size=BATCH)

"""An episode is recognised when it comes again, whatever the way in which it was learned; quiet episodes are not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import spuir
from spuir.errors import InputError, RepeatedEpisodeError, SnapshotError
from spuir.storage import snapshot
from spuir.tables.lineage import KEPT
from tests.bandits import ACTIONS, REWARDS, B, M, X, taught

REPEATED = pytest.raises(
    RepeatedEpisodeError, match=r"60 rows that were learned in the last episode.*allow_repeat=True"
)


class TestTheSameRows:
    def test_are_refused_and_change_nothing(self) -> None:
        bandit = taught()
        before = bandit.coefficients_
        with REPEATED:
            bandit.partial_fit(X, ACTIONS, REWARDS)
        np.testing.assert_array_equal(bandit.coefficients_, before)
        assert bandit.n_episodes_ == 1
        assert bandit.partial_fit(X, ACTIONS, REWARDS, allow_repeat=True).n_episodes_ == 2

    @pytest.mark.parametrize("form", [np.asfortranarray, sparse.csr_array, lambda x: x.tolist()])
    def test_in_another_form(self, form: Any) -> None:
        with REPEATED:
            taught().partial_fit(form(X), ACTIONS.tolist(), REWARDS.tolist())

    def test_in_shards(self) -> None:
        bandit = taught()
        parts = [slice(0, 25), slice(25, B)]
        shards = [bandit.collect(X[at], ACTIONS[at], REWARDS[at], row_ids=np.arange(B)[at]) for at in parts]
        with REPEATED:
            bandit.absorb(shards[1] + shards[0])
        numbered = [bandit.collect(X[at], ACTIONS[at], REWARDS[at], first_row=at.start) for at in parts]
        with REPEATED:
            bandit.absorb(numbered[0] + numbered[1])
        assert bandit.absorb(shards[0] + shards[1], allow_repeat=True).n_episodes_ == 2

    def test_after_a_save_and_many_episodes(self, tmp_path: Path) -> None:
        bandit = taught()
        for number in range(KEPT):
            bandit.save(tmp_path / "m")
            bandit = spuir.load(tmp_path / "m") if number in (0, KEPT - 1) else bandit
            with pytest.raises(RepeatedEpisodeError):
                bandit.partial_fit(X, ACTIONS, REWARDS)
            bandit.partial_fit(X[:3], ACTIONS[:3], REWARDS[:3] + number)
        assert bandit.partial_fit(X, ACTIONS, REWARDS).n_episodes_ == KEPT + 2  # so long ago is forgotten

    def test_a_fit_starts_anew(self) -> None:
        assert taught().fit(X, ACTIONS, REWARDS).n_episodes_ == 1


class TestIds:
    def test_recognise_rows_with_other_rewards(self) -> None:
        bandit = taught()
        day = bandit.decide(X, ids=[f"d{row}" for row in range(B)])
        bandit.partial_fit(day, REWARDS)
        with REPEATED:
            bandit.partial_fit(day, REWARDS + 1)  # some came late
        same = [f"{day.episode}:d{row}" for row in range(B)]
        with REPEATED:
            bandit.partial_fit(X[::-1], ACTIONS, REWARDS, ids=same[::-1])

    def test_of_the_next_night_may_be_the_same(self) -> None:
        bandit = taught()
        for _ in range(3):  # the ids are customers, who are there every night
            day = bandit.decide(X, ids=range(B))
            bandit.partial_fit(day, np.zeros(B))
        assert bandit.n_episodes_ == 4

    def test_are_one_per_row(self) -> None:
        with pytest.raises(InputError, match="there are 60 rows"):
            taught().partial_fit(X, ACTIONS, REWARDS + 1, ids=["a"])


@pytest.mark.parametrize("rewards", [np.zeros(500), np.arange(500) == 7])
def test_two_quiet_nights_are_not_the_same_night(rewards: Any) -> None:
    bandit = spuir.Bandit("puir", 2, random_state=0)
    for _ in range(3):
        bandit.partial_fit(np.ones((500, 1)), np.zeros(500, int), rewards.astype(float))
    for _ in range(3):
        bandit.partial_fit([[1.0, 2.0][:1]], [1], [1.0])
    assert bandit.n_episodes_ == 6


def test_the_fingerprint_of_the_data_is_that_of_all_episodes_in_order() -> None:
    first, second = taught(), taught()
    assert first.version_ == second.version_ != taught("sbucb").partial_fit(X, ACTIONS, -REWARDS).version_
    assert spuir.Bandit("puir", 2).version_ == "0"
    for bandit, signs in ((first, (2, 3)), (second, (3, 2))):
        for sign in signs:
            bandit.partial_fit(X, ACTIONS, sign * REWARDS)
    assert first.version_.startswith("3-") and first.version_ != second.version_


def test_logged_rewards_are_means_with_standard_errors() -> None:
    bandit = taught().add_action("new").partial_fit(X, ACTIONS, 2 * REWARDS, sample_weight=np.full(B, 2.0))
    for code, row in enumerate(bandit.logged_rewards()[:M]):
        own = REWARDS[ACTIONS == code]
        copies = np.concatenate([own, 2 * own, 2 * own])
        assert (row.action, row.rows) == (code, len(copies))
        assert row.mean == pytest.approx(copies.mean(), rel=1e-12)
        assert row.standard_error == pytest.approx(copies.std(ddof=1) / np.sqrt(len(copies)), rel=1e-9)
    assert bandit.logged_rewards()[-1].rows == 0 and np.isnan(bandit.logged_rewards()[-1].mean)


class TestNotes:
    def test_a_file_says_when_by_what_and_for_whom(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        bandit = taught()
        assert bandit.created_ is None and bandit.metadata_ == {}
        bandit.save(tmp_path / "m", metadata={"owner": "crm", "run": 7})
        loaded = spuir.load(tmp_path / "m")
        assert loaded.metadata_ == bandit.metadata_ == {"owner": "crm", "run": 7}
        assert loaded.created_ == "2026-01-01T00:00:00+00:00" and loaded.version_ == bandit.version_
        monkeypatch.delenv("SOURCE_DATE_EPOCH")
        loaded.save(tmp_path / "again")
        again = spuir.load(tmp_path / "again")
        assert again.metadata_ == loaded.metadata_ and str(again.created_) > "2026-01-01T00:00:00+00:00"

    def test_the_last_info_survives(self, tmp_path: Path) -> None:
        bandit = taught()
        bandit.save(tmp_path / "m")
        info, before = spuir.load(tmp_path / "m").last_info_, bandit.last_info_
        assert info is not None and before is not None
        assert (info.rows, info.code) == (before.rows, before.code)
        np.testing.assert_array_equal(info.counts, before.counts)

    @pytest.mark.parametrize(
        "change",
        [
            {"lineage": {"data": "x" * 99, "marks": []}},
            {"lineage": {"data": "x", "marks": ["m"] * (KEPT + 1)}},
            {"lineage": {"data": 3, "marks": []}},
            {"about": {"created": 3}},
            {"about": []},
            {"about": {"unknown": "x"}},
        ],
    )
    def test_forged_ones_are_refused(self, change: Any, tmp_path: Path) -> None:
        taught().save(tmp_path / "m")
        header, arrays = snapshot.read(tmp_path / "m")
        snapshot.write(tmp_path / "forged", {**header, **change}, arrays)
        with pytest.raises(SnapshotError):
            spuir.load(tmp_path / "forged")

    def test_metadata_is_json(self, tmp_path: Path) -> None:
        bandit = taught()
        with pytest.raises(SnapshotError, match="finite JSON data"):
            bandit.save(tmp_path / "m", metadata={"when": object()})
        assert not (tmp_path / "m").exists() and bandit.metadata_ == {}

"""A bandit with an encoder takes raw rows wherever one without takes numbers, and otherwise is the same."""

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spuir
from spuir.errors import InputError, ParameterError, ShardError, SnapshotError
from spuir.storage import snapshot
from spuir.tables.encoder import Encoder

pd = pytest.importorskip("pandas")

LABELS = ["coupon", "mail", "nothing"]
rng = np.random.default_rng(4)
LOG = pd.DataFrame(
    {
        "age": np.where(rng.random(300) < 0.1, np.nan, rng.normal(40, 10, 300).round()),
        "device": rng.choice(["phone", "desktop", "tv"], 300),
        "member": rng.random(300) < 0.4,
        "note": "not a context",
    }
)
ACTIONS = rng.choice(LABELS, 300)
REWARDS = (LOG["member"] * (ACTIONS == "mail") + 0.1 * rng.normal(size=300)).to_numpy()
ENCODER = Encoder.learn(LOG[:100], columns=["age", "device", "member"], scale=True, intercept=True)
RAW, NUMBERS = ("age", "device", "member"), ENCODER.encode(LOG)
EPISODES = [slice(0, 100), slice(100, 200), slice(200, 300)]


def taught(encoder: Encoder | None, policy: Any = "puir", episodes: int = 2) -> spuir.Bandit:
    bandit = spuir.Bandit(policy, LABELS, random_state=3, encoder=encoder)
    for at in EPISODES[:episodes]:
        bandit.partial_fit(LOG[at] if encoder else NUMBERS[at], ACTIONS[at], REWARDS[at])
    return bandit


@pytest.mark.parametrize("policy", ["puir", "spuir", "puir-kernel", "bexp3", "uniform"])
def test_raw_rows_do_what_their_numbers_do(policy: str) -> None:
    plain, raw = taught(None, policy), taught(ENCODER, policy)
    now = EPISODES[2]
    for method in ("predict", "predict_proba", "decision_function"):
        np.testing.assert_array_equal(getattr(raw, method)(LOG[now]), getattr(plain, method)(NUMBERS[now]))
    ours, theirs = raw.decide(LOG[now]), plain.decide(NUMBERS[now])
    np.testing.assert_array_equal(ours.actions, theirs.actions)
    np.testing.assert_array_equal(ours.propensities, theirs.propensities)
    np.testing.assert_array_equal(ours.scores, theirs.scores)


def test_every_form_of_a_row_is_decided_alike() -> None:
    pa = pytest.importorskip("pyarrow")
    bandit = taught(ENCODER)
    frame = LOG[200:230]
    expected = bandit.predict_proba(frame)
    rows = frame.to_dict("records")
    forms = [pa.Table.from_pandas(frame), pa.RecordBatch.from_pandas(frame), rows, frame.to_dict("list")]
    for form in [*forms, frame[["member", "device", "age"]]]:
        np.testing.assert_array_equal(bandit.predict_proba(form), expected)
    np.testing.assert_array_equal(bandit.predict_proba(rows[7]), expected[7:8])


def test_names_are_the_raw_columns_and_the_features() -> None:
    bandit = taught(ENCODER)
    assert tuple(bandit.feature_names_in_) == RAW
    assert bandit.n_features_in_ == 3
    features = [line.feature for line in bandit.coefficient_table()[: len(ENCODER.names)]]
    assert features == list(ENCODER.names)
    assert bandit.coefficients_.shape == (3, len(ENCODER.names))


def test_a_decision_before_the_first_episode_settles_the_columns() -> None:
    bandit = spuir.Bandit("puir", LABELS, random_state=0, encoder=ENCODER)
    with pytest.raises(InputError, match="got the columns 'age', but the encoder also learned from 'device', 'member'"):
        bandit.decide(LOG[["age"]])
    decision = bandit.decide(LOG[:5])
    np.testing.assert_allclose(decision.propensities, 1 / 3)
    assert tuple(bandit.feature_names_in_) == RAW


def test_the_encoder_is_saved_and_loaded_with_the_model(tmp_path: Path) -> None:
    bandit, path = taught(ENCODER), tmp_path / "model.spuir"
    bandit.save(path)
    loaded = spuir.load(path)
    assert loaded.encoder == ENCODER
    now = EPISODES[2]
    np.testing.assert_array_equal(loaded.decide(LOG[now]).actions, bandit.decide(LOG[now]).actions)
    for one in (bandit, loaded):
        one.partial_fit(LOG[now], ACTIONS[now], REWARDS[now])
    np.testing.assert_array_equal(loaded.coefficients_, bandit.coefficients_)
    fresh = spuir.Bandit("puir", LABELS, encoder=ENCODER)
    fresh.save(path)
    assert spuir.load(path).encoder == ENCODER


def test_files_without_an_encoder_are_what_they_were(tmp_path: Path) -> None:
    path = tmp_path / "model.spuir"
    taught(None).save(path)
    header, _ = snapshot.read(path)
    assert header["kind"] == "spuir bandit"
    assert "encoder" not in header
    assert spuir.load(path).encoder is None


def test_files_with_a_broken_encoder_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.spuir"
    taught(ENCODER).save(path)
    header, arrays = snapshot.read(path)
    assert header["kind"] != "spuir bandit"
    other = Encoder.learn({"x": [1.0]}).to_dict()
    for broken in ({"encoder": other}, {"encoder": None}, {"encoder": {"sources": 1}}, {"encoder": [1]}):
        snapshot.write(path, header | broken, arrays)
        with pytest.raises(SnapshotError):
            spuir.load(path)
    del header["encoder"]
    snapshot.write(path, header, arrays)
    with pytest.raises(SnapshotError, match="complete"):
        spuir.load(path)


@pytest.mark.parametrize("policy", ["puir", "spuir"])
def test_shards_of_raw_rows_add_up(policy: str) -> None:
    at = EPISODES[1]
    ids = np.arange(100)
    whole = taught(ENCODER, policy, 1).partial_fit(LOG[at], ACTIONS[at], REWARDS[at], row_ids=ids)
    bandit = taught(ENCODER, policy, 1)
    halves = [(slice(100, 140), ids[:40]), (slice(140, 200), ids[40:])]
    shards = [bandit.collect(LOG[part], ACTIONS[part], REWARDS[part], row_ids=rows) for part, rows in halves]
    assert shards[0].names == RAW
    bandit.absorb(shards[0] + shards[1])
    np.testing.assert_allclose(bandit.coefficients_, whole.coefficients_, rtol=1e-9, atol=1e-12)


def test_shards_through_another_encoder_are_refused() -> None:
    at = EPISODES[0]
    other = Encoder.learn(LOG[100:200], columns=RAW, scale=True, intercept=True)
    assert other.width == ENCODER.width
    shard = spuir.Bandit("puir", LABELS, 3, other).collect(LOG[at], ACTIONS[at], REWARDS[at])
    with pytest.raises(ShardError, match="another policy or state"):
        spuir.Bandit("puir", LABELS, 3, ENCODER).absorb(shard)


def test_scikit_learn_clones_and_sets_the_encoder() -> None:
    base = pytest.importorskip("sklearn.base")
    bandit = taught(ENCODER)
    twin = base.clone(bandit)
    assert twin.get_params(deep=False)["encoder"] == ENCODER
    assert twin.n_episodes_ == 0
    twin.partial_fit(LOG[:100], ACTIONS[:100], REWARDS[:100])
    assert repr(twin) == f"Bandit('puir', {LABELS!r}, random_state=3, encoder={ENCODER!r})"
    assert copy.deepcopy(bandit).predict(LOG[:3]).tolist() == bandit.predict(LOG[:3]).tolist()


def test_another_encoder_takes_effect_before_the_first_episode_or_in_fit() -> None:
    other = Encoder.learn(LOG, columns=["age"])
    bandit = spuir.Bandit("puir", LABELS, random_state=0)
    assert bandit.n_episodes_ == 0
    bandit.set_params(encoder=other).partial_fit(LOG[:100], ACTIONS[:100], REWARDS[:100])
    assert bandit.coefficients_.shape == (3, other.width)
    bandit.set_params(encoder=ENCODER)
    assert bandit.predict_proba(LOG[:2]).shape == (2, 3)
    assert bandit.coefficients_.shape == (3, other.width)
    bandit.fit(LOG[:100], ACTIONS[:100], REWARDS[:100])
    assert bandit.coefficients_.shape == (3, ENCODER.width)
    with pytest.raises(ParameterError, match="did you mean 'encoder'"):
        bandit.set_params(encoders=None)


def test_what_is_no_encoder_is_refused_at_once() -> None:
    wrong: Any = "auto"
    with pytest.raises(ParameterError, match=r"encoder: got str, but an encoder is learned .*Encoder\.fit"):
        spuir.Bandit("puir", LABELS, encoder=wrong)


def test_a_decision_about_raw_rows_is_learned_as_it_was_encoded() -> None:
    bandit, twin = taught(ENCODER), taught(ENCODER)
    day = bandit.decide(LOG[:100])
    bandit.partial_fit(day, REWARDS[:100])
    twin.partial_fit(LOG[:100], day.actions, REWARDS[:100])
    np.testing.assert_array_equal(bandit.coefficients_, twin.coefficients_)


def test_fit_and_transform_are_learn_and_encode() -> None:
    assert Encoder.fit(LOG).fingerprint == Encoder.learn(LOG).fingerprint
    np.testing.assert_array_equal(ENCODER.transform(LOG), ENCODER.encode(LOG))


def test_a_refusal_leaves_the_bandit_as_it_was() -> None:
    bandit = taught(ENCODER)
    before = bandit.coefficients_
    bad = LOG[:100].assign(age="old")
    with pytest.raises(InputError, match="column 'age': got 'old' at row 0, but the encoder learned this column as"):
        bandit.partial_fit(bad, ACTIONS[:100], REWARDS[:100])
    assert bandit.n_episodes_ == 2
    np.testing.assert_array_equal(bandit.coefficients_, before)
    assert bandit.partial_fit([], [], []).n_episodes_ == 2


def test_rows_are_encoded_without_arrow_and_pandas() -> None:
    program = """
import sys
sys.modules["pyarrow"] = sys.modules["pandas"] = None
import numpy as np, spuir
rows = [{"age": 30.0, "device": "tv", "user": {"tags": ["a"]}}, {"age": None, "device": "phone", "user": None}]
encoder = spuir.Encoder.learn(rows)
bandit = spuir.Bandit("puir", 2, random_state=0, encoder=encoder)
bandit.partial_fit(rows, [0, 1], [1.0, 0.0])
columns = {"age": np.ones(2), "device": ["tv", "x"], "user": [None] * 2}
print(encoder.names, bandit.predict(rows[0]), bandit.predict(columns))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "'user.tags has a'" in done.stdout

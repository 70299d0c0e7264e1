"""Criteo's log as a bandit: components, fits, the fits that are kept, and the two environments."""

import os
import pickle
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

import spuir
from spuir.base.streams import generator
from spuir.environments import criteo_fit
from spuir.environments.criteo import CriteoAll, CriteoRecent
from spuir.environments.criteo_fit import clicks_of, components, design, fitted
from spuir.environments.criteo_generator import CAMPAIGNS, DAY, RECENT, LogGenerator, write_rows
from spuir.environments.criteo_rows import ABSENT, CampaignRows, read_campaigns
from spuir.environments.synthetic import Synthetic
from spuir.errors import InputError, ParameterError, SnapshotFileError, UnknownNameError
from spuir.storage import snapshot

ROWS = 12_000


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("criteo") / "data.txt"
    write_rows(path, ROWS, seed=5)
    return str(path)


@pytest.fixture(scope="module")
def world():
    return CriteoRecent()


def some_rows(path, n=400):
    return read_campaigns(path, RECENT[:1], max_rows=n, seed=0).kept[0]


def naive_design(rows, width):
    """Return logarithms and one-hot columns, most frequent first, as a dense table."""
    columns = [np.array([np.sign(v) * np.log(1 + abs(v)) for v in column]) for column in rows.ints.T]
    levels = [
        (-np.sum(column == value), place, value)
        for place, column in enumerate(rows.categories.T)
        for value in np.unique(column)
        if value != ABSENT
    ]
    chosen = [one for one in sorted(levels)[:width] if 1 < -one[0] < len(rows)]
    for _, place, value in sorted(chosen, key=lambda one: one[1:]):
        columns.append((rows.categories[:, place] == value).astype(float))
    return np.column_stack(columns)


@pytest.mark.parametrize("width", [10, 500])
def test_the_design_is_the_naive_one(path, width, monkeypatch):
    monkeypatch.setattr(criteo_fit, "MOST_LEVELS", width)
    rows = some_rows(path)
    expected = naive_design(rows, width)
    np.testing.assert_allclose(design(rows).toarray(), expected, rtol=1e-15)
    assert 8 < expected.shape[1] <= 8 + width
    # Every row of a campaign has the campaign's own category, which tells nothing.
    assert not (expected[:, 8:].sum(axis=0) == len(rows)).any()


def test_components_are_those_of_a_dense_decomposition(path):
    table = design(some_rows(path))
    dense = table.toarray()
    U, s, V = np.linalg.svd(dense - dense.mean(axis=0), full_matrices=False)
    signs = np.sign(V[np.arange(30), np.abs(V[:30]).argmax(axis=1)])
    expected = U[:, :30] * signs * np.sqrt(len(dense))
    scores = components(table, 30)
    np.testing.assert_allclose(scores, expected, atol=1e-8)
    np.testing.assert_allclose(scores.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(scores.std(axis=0), 1, rtol=1e-9)
    assert s[29] > s[30]


def test_components_that_do_not_exist_are_zero():
    """Two columns that vary, one of them twice: two components, and nothing made of rounding."""
    from scipy.sparse import csr_array

    rng = generator(1, "table")
    one, other = rng.standard_normal((2, 200))
    scores = components(csr_array(np.column_stack([one, 3 * one, other, np.full(200, 7.0)])), 6)
    assert scores.shape == (200, 6)
    np.testing.assert_allclose(scores.std(axis=0), [1, 1, 0, 0, 0, 0], atol=1e-12)


def test_times_are_days_and_a_row_is_watched_for_thirty_at_most():
    column = np.array([0, 10, 40, 59]) * DAY
    rows = CampaignRows(
        lines=np.arange(4),
        clicked=column,
        converted=np.array([DAY // 2, ABSENT, ABSENT, ABSENT]),
        ints=np.zeros((4, 8), int),
        categories=np.zeros((4, 9), int),
    )
    clicks = clicks_of(np.zeros((4, 1)), rows, 60 * DAY)
    np.testing.assert_array_equal(clicks.converted, [True, False, False, False])
    np.testing.assert_allclose(clicks.elapsed, [0.5, 30, 20, 1])
    # A conversion on day 65 tells that the log goes so far.
    later = replace(rows, converted=np.array([65 * DAY, ABSENT, ABSENT, ABSENT]))
    np.testing.assert_allclose(clicks_of(np.zeros((4, 1)), later, 60 * DAY).elapsed, [65, 30, 25, 6])


def test_the_fit_finds_what_the_rows_were_drawn_from(world):
    """Fifty components hold the most part of the features, and each fit has 2,000 to 4,500 rows.

    The correlations found were 0.74 to 0.81 with the true log odds, and 0.57 to 0.78 with the true log rates.
    """
    chunks = list(LogGenerator(world.rows_seed).rows(world.rows))
    names = ("campaigns", "log_odds", "log_rate")
    codes, odds, rates = (np.concatenate([getattr(chunk, name) for chunk in chunks]) for name in names)
    found = world.fitted
    ends = np.cumsum(found.sizes)
    for code in range(world.n_actions):
        own, scores = codes == code, found.contexts[ends[code] - found.sizes[code] : ends[code]]
        assert found.counts[code] == found.sizes[code] == own.sum()
        log_odds = scores @ found.conversion[code] + found.levels[0, code]
        assert np.corrcoef(log_odds, odds[own])[0, 1] > 0.65
        assert np.corrcoef(scores @ found.delay[code], rates[own])[0, 1] > 0.4
        # The level is right too, which no weights on centred scores could tell.
        assert expit(log_odds).mean() == pytest.approx(expit(odds[own]).mean(), abs=0.05)


def test_without_constants_half_of_the_clicks_convert(path):
    plain, level = (CriteoRecent(path=path, intercept=flag, ridge=10.0, dim=20) for flag in (False, True))
    rounds = plain.draw(4000, generator(1, "contexts"))
    assert not plain.levels.any()
    np.testing.assert_allclose(plain.conversion_rates(rounds).mean(axis=0), 0.5, atol=0.08)
    assert (level.conversion_rates(rounds).mean(axis=0) < 0.42).all()


def test_shapes_names_and_click_rates(world):
    everything = CriteoAll()
    assert (world.n_actions, world.dim, world.campaigns) == (5, 50, RECENT)
    assert (everything.n_actions, everything.dim, everything.campaigns) == (15, 50, CAMPAIGNS)
    np.testing.assert_allclose(world.click_rates, [0.3, 0.34, 0.38, 0.42, 0.46])
    np.testing.assert_allclose(everything.click_rates, np.arange(15) / 75 + 0.3)
    assert (world.horizon, everything.horizon) == (4.2, 16.8)
    np.testing.assert_array_equal(replace(world, click_rate=0.5).click_rates, 0.5)
    # The fifteen are read from the same rows as the five.
    np.testing.assert_array_equal(everything.fitted.contexts[: world.fitted.sizes.sum()], world.fitted.contexts)
    np.testing.assert_array_equal(everything.fitted.conversion[:5], world.fitted.conversion)


def test_contexts_are_standardised_scores_met_as_often_as_in_the_log(world):
    rounds = world.draw(20_000, generator(1, "contexts"))
    # Each of 50 means and deviations within six standard errors, with room for heavy tails: false alarms below 1e-6.
    assert np.abs(rounds.contexts.mean(axis=0)).max() < 6 / np.sqrt(20_000)
    assert np.abs(rounds.contexts.std(axis=0) - 1).max() < 0.06
    where = {row.tobytes(): place for place, row in enumerate(world.fitted.contexts)}
    places = np.array([where[row.tobytes()] for row in rounds.contexts])
    met = np.bincount(np.searchsorted(np.cumsum(world.fitted.sizes), places, side="right"), minlength=5) / 20_000
    shares = world.fitted.counts / world.fitted.counts.sum()
    assert np.abs(met - shares).max() < 5 * np.sqrt(0.25 / 20_000)


def test_clicks_differ_by_action_and_expected_rewards_know(world):
    n = 40_000
    rounds = world.draw(n, generator(1, "contexts"))
    outcomes = [world.feedback(rounds, np.full(n, j), generator(2, "noise")) for j in range(5)]
    clicks = np.array([outcome.click.mean() for outcome in outcomes])
    # Five standard errors in five means: false alarms below 3e-6.
    assert np.abs(clicks - world.click_rates).max() < 5 * np.sqrt(0.25 / n)
    rates = world.conversion_rates(rounds)
    share = world.click_share
    np.testing.assert_allclose(world.expected_rewards(rounds), world.click_rates * (share + (1 - share) * rates))
    best = world.expected_rewards(rounds).argmax(axis=1)
    settled = world.feedback(rounds, best, generator(3, "noise"))
    assert share == pytest.approx(0.01 * settled.conversion.sum() / settled.click.sum(), abs=2e-4)


def test_the_seed_moves_the_weights_a_little_and_shares_the_fit(world):
    other, same, still = CriteoRecent(seed=1), CriteoRecent(seed=1), CriteoRecent(seed=1, noise=0.0)
    assert other.fitted is world.fitted
    np.testing.assert_array_equal(other.conversion_weights, same.conversion_weights)
    np.testing.assert_array_equal(still.conversion_weights, world.fitted.conversion)
    np.testing.assert_array_equal(still.delay_weights, world.fitted.delay)
    for found, weights in (
        (other.conversion_weights, still.conversion_weights),
        (other.delay_weights, still.delay_weights),
    ):
        # 250 normal numbers: their deviation within six standard errors.
        assert (found - weights).std() == pytest.approx(0.01, rel=6 / np.sqrt(500))


def test_other_rows_are_another_world():
    one, other = (CriteoRecent(rows=ROWS, rows_seed=seed, dim=8).fitted for seed in (0, 1))
    assert not np.array_equal(one.counts, other.counts) and not np.array_equal(one.conversion, other.conversion)


def test_it_says_whether_rows_are_generated_and_travels_light(world, path):
    assert world.generated and not CriteoRecent(path=path, dim=10).generated
    packed = pickle.dumps(world)
    assert len(packed) < 1000 and pickle.loads(packed) == world


def test_a_file_goes_the_way_of_generated_rows(path):
    """The generator's rows through a path are the same world as without one."""
    given, made = CriteoRecent(path=path, rows_seed=5, dim=10), CriteoRecent(rows=ROWS, rows_seed=5, dim=10)
    np.testing.assert_array_equal(given.fitted.contexts, made.fitted.contexts)
    np.testing.assert_array_equal(given.conversion_weights, made.conversion_weights)
    few = CriteoRecent(path=path, dim=10, max_rows=100)
    np.testing.assert_array_equal(few.fitted.sizes, 100)
    np.testing.assert_array_equal(few.fitted.counts, given.fitted.counts)


def test_a_policy_learns_it(world):
    history = spuir.run("sbucb", world, episodes=8, batch_size=1000, seed=1)
    expected = world.expected_rewards(world.draw(5000, generator(1, "contexts")))
    # 3,000 rewards have a standard error below 0.008: five of them.
    assert history.rewards[-3:].mean() > expected.mean() + 0.04


def test_what_cannot_be_fitted_is_refused(path, tmp_path):
    with pytest.raises(InputError, match=r"campaign '7227c706': got 30 rows, but 30 components need more rows"):
        CriteoRecent(path=path, max_rows=30, dim=30)
    with pytest.raises(InputError, match="must be readable"):
        CriteoRecent(path=str(tmp_path / "nowhere"))
    lines = [line for line in Path(path).read_text().splitlines(keepends=True) if RECENT[2] not in line]
    (tmp_path / "less.txt").write_text("".join(lines))
    with pytest.raises(UnknownNameError, match=f"none of {RECENT[2]}"):
        CriteoRecent(path=str(tmp_path / "less.txt"))


@pytest.mark.parametrize(
    ("name", "value"), [("rows", 100), ("max_rows", 0), ("click_rate", 2), ("path", 3), ("noise", -1), ("intercept", 1)]
)
def test_wrong_parameters(name, value):
    with pytest.raises(ParameterError, match=name):
        spuir.make_environment("criteo-all", **{name: value})
    with pytest.raises(ParameterError, match="no such parameter"):
        spuir.make_environment("criteo-all", n_actions=3)


def same_fit(one, other):
    for name, value in vars(one.fitted).items():
        np.testing.assert_array_equal(getattr(other.fitted, name), value)


def test_a_fit_is_kept_and_read_again(path, tmp_path, monkeypatch):
    cache = tmp_path / "kept" / "fits"
    plain = CriteoRecent(path=path, dim=10)
    first = CriteoRecent(path=path, dim=10, cache=cache)
    same_fit(plain, first)
    (kept,) = cache.iterdir()
    assert first.cache == str(cache) and kept.name.startswith("criteo-")
    fitted.cache_clear()
    monkeypatch.setattr(criteo_fit, "read_campaigns", None)  # to read the log again would fail
    second = CriteoRecent(path=path, dim=10, cache=cache)
    same_fit(plain, second)
    assert not second.fitted.contexts.flags.writeable


def test_another_fit_or_a_changed_file_never_meets_an_old_one(path, tmp_path):
    others: list[dict[str, Any]] = [{}, {"ridge": 2.0}, {"max_rows": 200}, {"intercept": False}, {"rows_seed": 9}]
    cache, copy = str(tmp_path / "fits"), tmp_path / "copy.txt"
    lines = Path(path).read_text().splitlines(keepends=True)
    copy.write_text("".join(lines))
    for given in others:
        CriteoRecent(path=copy, dim=10, cache=cache, **given)
    CriteoAll(path=copy, dim=10, cache=cache)
    assert len(os.listdir(cache)) == 6
    CriteoRecent(path=copy, dim=10, cache=cache, seed=4, noise=0.5)
    assert len(os.listdir(cache)) == 6
    copy.write_text("".join(lines[: ROWS // 2]))
    half = CriteoRecent(path=copy, dim=10, cache=cache)
    assert len(os.listdir(cache)) == 7 and half.fitted.total == ROWS // 2


@pytest.mark.parametrize("harm", [lambda data: data[:-40], lambda data: data[:500] + b"x" + data[501:], lambda _: b""])
def test_a_damaged_fit_is_made_again(path, tmp_path, harm):
    cache = tmp_path / "fits"
    first = CriteoRecent(path=path, dim=10, cache=cache)
    (kept,) = cache.iterdir()
    kept.write_bytes(harm(kept.read_bytes()))
    fitted.cache_clear()
    same_fit(first, CriteoRecent(path=path, dim=10, cache=cache))
    fitted.cache_clear()
    assert snapshot.read(kept)[0]["kind"] == criteo_fit.KIND


def test_a_folder_that_cannot_be_written_to_is_refused_before_the_log_is_read(path, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(criteo_fit, "read_campaigns", None)
    with pytest.raises(SnapshotFileError, match="the cache must be a folder that can be written to; choose another"):
        CriteoRecent(path=path, dim=10, cache=str(tmp_path / "file"))


SCRIPT = """
import os, sys, time
from spuir.environments import criteo_fit
from spuir.environments.criteo import CriteoRecent

def slow(*_):
    print("ready", flush=True)
    time.sleep(60)

if sys.argv[3] == "renaming":
    os.replace = slow
else:
    criteo_fit.fit_campaigns = slow
CriteoRecent(path=sys.argv[1], dim=10, cache=sys.argv[2])
"""


@pytest.mark.parametrize("moment", ["fitting", "renaming"])
def test_killed_at_any_moment_it_starts_again_cleanly(path, tmp_path, moment):
    """The process is stopped where it fits, and where all is written but the name; then it is killed."""
    cache = tmp_path / "fits"
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, path, str(cache), moment], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    with child.stdout:
        assert child.stdout.readline() == "ready\n"
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    left = os.listdir(cache)
    assert not any(name.startswith("criteo-") for name in left)
    assert len(left) == (moment == "renaming")
    fitted.cache_clear()
    same_fit(CriteoRecent(path=path, dim=10), CriteoRecent(path=path, dim=10, cache=cache))
    assert sum(name.startswith("criteo-") for name in os.listdir(cache)) == 1


def test_others_with_clicks_have_one_rate_and_no_levels():
    world = Synthetic(click_rate=0.3)
    np.testing.assert_array_equal(world.click_rates, 0.3)
    assert world.levels.shape == (2, 5) and not world.levels.any()

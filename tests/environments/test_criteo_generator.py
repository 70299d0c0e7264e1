"""Generated rows: the marginals that are published of Criteo's log, and a dependence that can be learnt."""

import gzip

import numpy as np
import pytest
from scipy.special import expit

from spuir.environments.criteo_generator import CAMPAIGNS, LARGEST, LEAST, LEVELS, RECENT, LogGenerator, write_rows
from spuir.environments.criteo_rows import CAMPAIGN, NAMES
from spuir.errors import ParameterError, SpuirError

ROWS = 40_000
DAY = 86_400


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("generated") / "data.txt"
    write_rows(path, ROWS)
    return path


@pytest.fixture(scope="module")
def cells(path):
    return np.array([line.split("\t") for line in path.read_text().splitlines()])


def test_rows_have_the_schema(cells):
    assert cells.shape == (ROWS, 19) == (ROWS, len(NAMES))
    clicked = cells[:, 0].astype(int)
    assert (np.diff(clicked) >= 0).all() and clicked[0] >= 0 and 59 * DAY < clicked[-1] < 60 * DAY
    for column, least, most in zip(cells[:, 2:10].T, LEAST, LARGEST, strict=True):
        values = column[column != ""].astype(int)
        assert least <= values.min() and values.max() <= most
        # A long tail: the largest is far from the middle, and reaches into the last three quarters of the range.
        assert values.max() > most / 4 > 2 * np.median(values)
        assert (column == "").any()
    for column in np.delete(cells[:, 10:], 2, axis=1).T:
        filled = column[column != ""]
        assert set(map(len, filled)) == {8} and all(int(cell, 16) >= 0 for cell in filled[:100])


def test_conversions_and_delays_are_as_published(cells):
    bought = cells[cells[:, 1] != ""]
    # 40,000 rows have a standard error of 0.0021, and the pilot that sets the level one of about 0.003: five of both.
    assert len(bought) / ROWS == pytest.approx(0.2269, abs=0.018)
    days = (bought[:, 1].astype(int) - bought[:, 0].astype(int)) / DAY
    assert days.min() >= 0 and 25 < days.max() <= 30
    assert np.median(days) < 3 < days.mean()


def test_categories_are_many_and_few_are_frequent(cells):
    for place, most in enumerate(LEVELS):
        if place == CAMPAIGN - 10:
            continue
        names, counts = np.unique(cells[:, 10 + place], return_counts=True)
        assert most / 3 < len(names[names != ""]) <= most
        assert counts.max() > 3 * ROWS / most or most < 10


def test_campaigns_are_the_published_ones_and_others(cells):
    names, counts = np.unique(cells[:, CAMPAIGN], return_counts=True)
    shares = dict(zip(names, counts / ROWS, strict=True))
    assert set(RECENT) < set(CAMPAIGNS) < set(shares) and len(shares) == 55
    assert sum(shares[name] for name in CAMPAIGNS) == pytest.approx(0.8, abs=0.02)
    assert min(shares[name] for name in CAMPAIGNS) > 0.02


def test_equal_seeds_write_equal_bytes_and_gzip_holds_the_same(tmp_path):
    for name in ("one", "two.gz", "three.gz"):
        write_rows(tmp_path / name, 3000)
    plain, packed = (tmp_path / "one").read_bytes(), (tmp_path / "two.gz").read_bytes()
    assert packed == (tmp_path / "three.gz").read_bytes()
    assert gzip.decompress(packed) == plain
    write_rows(tmp_path / "other", 3000, seed=1)
    assert (tmp_path / "other").read_bytes()[:1000] != plain[:1000]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["one", "other", "three.gz", "two.gz"]


def test_outcomes_follow_from_the_truth_and_differ_by_campaign():
    chunks = list(LogGenerator(0).rows(ROWS))
    log_odds = np.concatenate([chunk.log_odds for chunk in chunks])
    bought = np.concatenate([chunk.converted for chunk in chunks]) >= 0
    campaigns = np.concatenate([chunk.campaigns for chunk in chunks])
    # Ten groups by their true odds: those who convert in the end, less a few per cent beyond 30 days.
    for group in np.array_split(np.argsort(log_odds), 10):
        expected = expit(log_odds[group]).mean()
        assert 0.8 * expected - 0.03 < bought[group].mean() < expected + 0.03
    # Odds vary with the features inside each campaign, and levels between campaigns.
    for campaign in range(len(CAMPAIGNS)):
        assert 0.9 < log_odds[campaigns == campaign].std() < 1.5
    levels = [log_odds[campaigns == campaign].mean() for campaign in range(len(CAMPAIGNS))]
    assert np.ptp(levels) > 0.5


def test_wrong_arguments_and_places_are_refused(tmp_path):
    with pytest.raises(ParameterError, match="rows: got 0"):
        write_rows(tmp_path / "rows", 0)
    with pytest.raises(ParameterError, match="seed: got -1"):
        write_rows(tmp_path / "rows", 10, seed=-1)
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    with pytest.raises(SpuirError, match=r"file.*must be writable; check the folder"):
        write_rows(tmp_path / "file" / "rows", 10)

"""Generates rows in the schema of Criteo's conversion log, for users without the file.

The marginal distributions follow what is published about the real log: ranges of the integers, numbers of categories,
60 days of clicks, 22.69 % of them converted within the 30 days of attribution. The share of empty cells and the
delays are guesses. Conversions and delays depend on the integers and the frequent categories, by weights that
campaigns partly share. No row comes from the real log.
"""

import gzip
import os
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from scipy.optimize import brentq
from scipy.special import expit, ndtr

from spuir.base import streams
from spuir.base.parameters import COUNT, SEED, check_value
from spuir.base.records import Codes, Floats, Mask
from spuir.environments.criteo_rows import ABSENT, CAMPAIGN, Integers
from spuir.errors import SpuirError
from spuir.storage.atomic import atomic_file

RECENT = ("7227c706", "78dcd87f", "431c274d", "a86b6804", "c5a9a3c2")
"""The campaigns of Criteo-recent."""
CAMPAIGNS = (
    *RECENT,
    *("12420a1e", "66c8c82f", "5d87968e", "7fde5a70", "6855ef53"),
    *("41707ecb", "8379baa1", "95667a0f", "ad3508b1", "93ec533b"),
)
"""The campaigns of Criteo-all."""

DAY = 86_400
DAYS, WINDOW = 60, 30
"""Days of clicks, and days after a click in which a conversion is attributed to it."""
CONVERSION_RATE = 0.2269
OTHERS, OTHER_SHARE = 40, 0.2
"""Further campaigns, and their share of the rows."""

LARGEST = np.array([158, 38, 380, 929, 382, 453, 1_189_512, 3_325])
MEDIAN = np.array([2, 1, 6, 4, 6, 10, 900, 8])
LEAST = np.array([0, 0, -1, 0, -1, 0, 0, 0])
"""Ranges of int1…int8, and where their middle may lie."""
EMPTY = np.array([0.3, 0.05, 0.2, 0.05, 0.2, 0.02, 0.02, 0.1])
LEVELS = np.array([11_800, 2_123, 1, 3_575, 2_301, 2_717, 4_010, 9, 2_601])
"""Different values of cat1…cat9, without the campaign."""
LOCAL = np.array([False, True, False, True, True, True, False, False, True])
"""Categories whose frequent values are a campaign's own."""
BLANK = np.array([0.0, 0.02, 0.0, 0.05, 0.02, 0.3, 0.05, 0.0, 0.05])
REACH = 4.2
"""Deviations from the middle at which an integer reaches the end of its range."""

FREQUENT = 24
"""How many values of a category have an effect of their own."""
SHARED, SPREAD, DELAY_SPREAD = 0.3, 1.2, 0.7
"""Share of the weights that campaigns have in common; deviations over rows of log odds and of log rates of delays."""
QUICK, QUICK_RATE = 0.35, 96.0
"""Share of immediate conversions, and their rate per day: 15 minutes on average."""
SLOW_RATE = 1 / 6
CHUNK = 20_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Generated:
    """Rows with the truth behind them.

    ``campaigns`` (n,) codes; ``clicked``, ``converted`` (n,) seconds, −1 without a conversion; ``ints`` (n, 8) and
    ``categories`` (n, 9) with ``empty`` (n, 8) and ``blank`` (n, 9); ``log_odds`` (n,) of a conversion in the end,
    ``log_rate`` (n,) per day of a delayed one.
    """

    campaigns: Codes
    clicked: Integers
    converted: Integers
    ints: Integers
    empty: Mask
    categories: Codes
    blank: Mask
    log_odds: Floats
    log_rate: Floats


@dataclass(frozen=True, eq=False)
class _Effects:
    """Weights of all campaigns for one outcome, without levels.

    ``ints`` (K, 8), ``frequent`` (K, 9, FREQUENT + 1), whose last entry, 0, is for all rarer values.
    """

    ints: Floats
    frequent: Floats

    @classmethod
    def drawn(cls, count: int, rng: Generator) -> "_Effects":
        def mixed(*shape: int) -> Floats:
            common, own = rng.standard_normal(shape), rng.standard_normal((count, *shape))
            return np.sqrt(SHARED) * common + np.sqrt(1 - SHARED) * own

        frequent = np.zeros((count, len(LEVELS), FREQUENT + 1))
        frequent[..., :-1] = mixed(len(LEVELS), FREQUENT)
        return cls(mixed(len(LARGEST)), frequent)

    def of(self, campaigns: Codes, hidden: Floats, ranks: Codes) -> Floats:
        """Return the effect (n,) of integers (n, 8), standardised, and of categories (n, 9), by rank."""
        # An integer weighs half of a category's value; there are many values, each of them rare.
        ints = 0.5 * np.einsum("ni,ni->n", self.ints[campaigns], hidden)
        columns = np.arange(ranks.shape[1])
        return ints + self.frequent[campaigns[:, None], columns, np.minimum(ranks, FREQUENT)].sum(axis=1)


class LogGenerator:
    """What the rows of one seed are drawn from; ``rows`` draws them."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        rng = self._stream("truth")
        count = len(CAMPAIGNS) + OTHERS
        self._odds, self._rates = _Effects.drawn(count, rng), _Effects.drawn(count, rng)
        self._levels = 0.4 * rng.standard_normal(count)
        self._log_rates = np.log(SLOW_RATE) + 0.3 * rng.standard_normal(count)
        sizes = np.exp(0.3 * rng.standard_normal(count))
        known = np.arange(count) < len(CAMPAIGNS)
        part = [sizes * mask / sizes[mask].sum() for mask in (known, ~known)]
        self._shares = (1 - OTHER_SHARE) * part[0] + OTHER_SHARE * part[1]
        self._offsets = rng.integers(LEVELS, size=(count, len(LEVELS))) * LOCAL
        self._tokens = [rng.integers(2**32, size=size) for size in LEVELS]
        self._others = rng.integers(2**32, size=OTHERS)
        self._scales = np.empty((4, count))
        self._calibrate()

    def _stream(self, *names: str | int) -> Generator:
        return streams.generator(self.seed, "environment", "criteo", "generated", *names)

    def _calibrate(self) -> None:
        """Centre and scale the effects of each campaign, and set the level at which the conversion rate is right."""
        rng = self._stream("pilot")
        campaigns = rng.integers(len(self._levels), size=CHUNK)
        hidden, ranks, empty, blank = _features(CHUNK, rng)
        hidden, ranks = np.where(empty, 0.0, hidden), np.where(blank, FREQUENT, ranks)
        moments = [effects.of(campaigns, hidden, ranks) for effects in (self._odds, self._rates)]
        counts = np.bincount(campaigns)
        for place, values in zip((0, 2), moments, strict=True):
            means = np.bincount(campaigns, values) / counts
            self._scales[place] = means
            self._scales[place + 1] = np.sqrt(np.bincount(campaigns, (values - means[campaigns]) ** 2) / counts)
        log_odds, log_rate = self._outcomes(campaigns, hidden, ranks)
        counted = self._shares[campaigns] * (QUICK + (1 - QUICK) * -np.expm1(-WINDOW * np.exp(log_rate)))

        def excess(shift: float) -> float:
            return float(counted @ expit(log_odds + shift) - CONVERSION_RATE * self._shares[campaigns].sum())

        shift: Any = brentq(excess, -10, 10)
        self._levels += shift

    def _outcomes(self, campaigns: Codes, hidden: Floats, ranks: Codes) -> tuple[Floats, Floats]:
        """Return log odds and log rates (n,)."""
        odds = (self._odds.of(campaigns, hidden, ranks) - self._scales[0, campaigns]) / self._scales[1, campaigns]
        rates = (self._rates.of(campaigns, hidden, ranks) - self._scales[2, campaigns]) / self._scales[3, campaigns]
        return self._levels[campaigns] + SPREAD * odds, self._log_rates[campaigns] + DELAY_SPREAD * rates

    def rows(self, rows: int) -> Iterator[Generated]:
        """Yield ``rows`` rows in chunks; the rows of a chunk depend on the seed and on the number of rows."""
        for number, first in enumerate(range(0, rows, CHUNK)):
            yield self._chunk(self._stream("chunk", number), first, min(first + CHUNK, rows), rows)

    def _chunk(self, rng: Generator, first: int, last: int, rows: int) -> Generated:
        n = last - first
        campaigns = rng.choice(len(self._shares), size=n, p=self._shares)
        hidden, ranks, empty, blank = _features(n, rng)
        log_odds, log_rate = self._outcomes(campaigns, np.where(empty, 0.0, hidden), np.where(blank, FREQUENT, ranks))
        clicked = _times(first + np.sort(rng.random(n)) * n, rows)
        rate = np.where(rng.random(n) < QUICK, QUICK_RATE, np.exp(log_rate))
        days = rng.exponential(size=n) / rate
        bought = (rng.random(n) < expit(log_odds)) & (days < WINDOW)
        growth = np.log1p(MEDIAN) + hidden * np.log((LARGEST + 1) / (MEDIAN + 1)) / REACH
        return Generated(
            campaigns=campaigns,
            clicked=clicked,
            converted=np.where(bought, clicked + (days * DAY).astype(np.int64), ABSENT),
            ints=np.clip(np.exp(growth).astype(np.int64) - 1, LEAST, LARGEST),
            empty=empty,
            categories=(ranks + self._offsets[campaigns]) % LEVELS,
            blank=blank,
            log_odds=log_odds,
            log_rate=log_rate,
        )

    def lines(self, chunk: Generated) -> list[str]:
        """Return the rows of a chunk as the file has them."""
        names = np.array([*CAMPAIGNS, *(f"{one:08x}" for one in self._others)], object)
        converted = np.where(chunk.converted == ABSENT, "", chunk.converted.astype(str).astype(object))
        columns: list[Any] = [map(str, chunk.clicked.tolist()), converted.tolist()]
        columns += [
            np.where(empty, "", ints.astype(str).astype(object)).tolist()
            for ints, empty in zip(chunk.ints.T, chunk.empty.T, strict=True)
        ]
        for place, tokens in enumerate(self._tokens):
            known = np.array([f"{token:08x}" for token in tokens], object)
            cells = known[chunk.categories[:, place]]
            columns.append(np.where(chunk.blank[:, place], "", cells).tolist())
        columns[CAMPAIGN] = names[chunk.campaigns].tolist()
        return ["\t".join(row) + "\n" for row in zip(*columns, strict=True)]


def _features(n: int, rng: Generator) -> tuple[Floats, Codes, Mask, Mask]:
    """Return integers as normal numbers (n, 8), categories by rank (n, 9), and which of each are empty."""
    common = rng.standard_normal((n, 2))
    hidden = np.sqrt(0.3) * common[:, :1] + np.sqrt(0.7) * rng.standard_normal((n, len(LARGEST)))
    mixed = np.sqrt(0.2) * common[:, 1:] + np.sqrt(0.8) * rng.standard_normal((n, len(LEVELS)))
    # The r-th most frequent of L values has a share of about 1/(r·log L).
    ranks = np.minimum((LEVELS + 1) ** ndtr(mixed) - 1, LEVELS - 1).astype(np.intp)
    return hidden, ranks, rng.random(hidden.shape) < EMPTY, rng.random(ranks.shape) < BLANK


def _times(places: Floats, rows: int) -> Integers:
    """Return the seconds at which the clicks at ``places`` among ``rows`` happen: more by day than by night."""
    days = places / rows * DAYS
    return ((days - 0.1 * np.sin(2 * np.pi * days)) * DAY).astype(np.int64)


def write_rows(path: str | os.PathLike[str], rows: int = 60_000, *, seed: int = 0) -> None:
    """Write a file of generated rows, one chunk at a time.

    Parameters
    ----------
    path
        The file, written atomically; with gzip if its name ends in .gz.
    rows
        Number of rows. Four in five belong to the fifteen campaigns of Criteo-all.
    seed
        Seed of all draws: equal arguments write equal bytes.
    """
    check_value("rows", rows, COUNT, "write at least one")
    check_value("seed", seed, SEED, "choose another")
    target = os.fspath(path)
    truth = LogGenerator(seed)
    chunks = ("".join(truth.lines(chunk)).encode() for chunk in truth.rows(rows))
    try:
        with atomic_file(target) as raw:
            # Without a time and a name in its header, equal rows are equal bytes.
            with gzip.GzipFile("", "wb", 6, raw, mtime=0) if target.endswith(".gz") else nullcontext(raw) as file:
                file.writelines(chunks)
    except OSError as error:
        rule, remedy = "the file must be writable", "check the folder and its free space"
        raise SpuirError(f"file {target!r}", error.strerror or str(error), rule, remedy) from error

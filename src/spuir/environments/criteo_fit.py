"""Contexts and models of conversions and delays from the rows of Criteo's log, for each campaign.

Reading a large file takes long, so fits can be cached in snapshots, which :func:`fitted` reads.
"""

import json
import os
import tempfile
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array

from spuir import __version__
from spuir.base.hashing import digest
from spuir.base.records import Floats
from spuir.core.delays import Clicks, fit
from spuir.environments.criteo_generator import DAY, WINDOW, write_rows
from spuir.environments.criteo_rows import ABSENT, CampaignRows, Reading, read_campaigns
from spuir.errors import InputError, SnapshotError, SnapshotFileError
from spuir.storage import snapshot

KIND = "spuir criteo campaigns"
MOST_LEVELS = 500
"""The largest number of one-hot columns of a campaign, for its most frequent categories."""
LEAST_VARIANCE = 1e-10
"""A component with a smaller share of the variance of the first is rounding error, and becomes 0."""
CONSTANT = 4.0
"""The value of the constant column: so large that the ridge hardly shrinks its weight."""
STEPS = 200
"""How many steps a fit may take; it usually converges in 15 to 50."""


@dataclass(frozen=True, kw_only=True)
class FitSource:
    """Everything that a fit depends on: the file or the arguments of the generator, and how rows are used."""

    path: str | None
    stamp: tuple[int, int] | None
    generated: int
    seed: int
    campaigns: tuple[str, ...]
    max_rows: int
    dim: int
    ridge: float
    intercept: bool

    def key(self) -> str:
        """Return a text that is equal for equal fits; a file counts by absolute path, size and time."""
        path = None if self.path is None else os.path.abspath(self.path)
        return json.dumps(asdict(self) | {"path": path, "spuir": __version__}, sort_keys=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class Campaigns:
    """Fitted campaigns.

    ``contexts`` (n, d) are the standardised scores of all rows kept, one campaign after another, ``sizes`` (M,)
    their numbers and ``counts`` (M,) those in the file. ``conversion`` and ``delay`` (M, d) are w_c and w_d, delays in
    days; ``levels`` (2, M) their constants. ``total`` rows were read and ``broken`` left out, the first of them for
    the reasons in ``problems``.
    """

    contexts: Floats
    sizes: NDArray[np.int64]
    counts: NDArray[np.int64]
    conversion: Floats
    delay: Floats
    levels: Floats
    total: int
    broken: int
    problems: tuple[str, ...]

    def __post_init__(self) -> None:
        self.contexts.flags.writeable = False  # all environments of a process share them


@lru_cache(maxsize=8)
def fitted(source: FitSource, cache: str | None) -> Campaigns:
    """Return the fitted campaigns of ``source``, from the folder ``cache`` where it has them.

    The name of the snapshot depends on everything that the fit depends on, so a changed file or parameter never uses an
    old fit. The snapshot is written atomically, so a killed process leaves nothing that another one would read.
    """
    if cache is None:
        return _fitted_now(source)
    path = os.path.join(cache, f"criteo-{digest(source.key(), size=10)}.spuir")
    try:
        return _load(path, source)
    except SnapshotError:  # missing or damaged: a new one takes its place
        _prepare(cache)
    campaigns = _fitted_now(source)
    meta, arrays = snapshot.pack(campaigns)
    snapshot.write(path, {"kind": KIND, "key": source.key(), "campaigns": meta}, arrays)
    return campaigns


def _load(path: str, source: FitSource) -> Campaigns:
    header, arrays = snapshot.read(path)
    if header.get("kind") != KIND or header.get("key") != source.key():
        raise SnapshotError(f"snapshot {path!r}", "another fit", "its key must be that of the source", "fit again")
    return snapshot.unpack(Campaigns, header["campaigns"], arrays)


def _prepare(cache: str) -> None:
    """Make the folder, and refuse one that cannot be written to before any work is done."""
    try:
        os.makedirs(cache, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache):
            pass
    except OSError as error:
        rule, remedy = "the cache must be a folder that can be written to", "choose another with cache="
        raise SnapshotFileError(f"folder {cache!r}", error.strerror or str(error), rule, remedy) from error


def _fitted_now(source: FitSource) -> Campaigns:
    if source.path is not None:
        return fit_campaigns(_read(source.path, source), source)
    with tempfile.TemporaryDirectory(prefix="spuir-") as folder:
        path = os.path.join(folder, "data.txt")
        write_rows(path, source.generated, seed=source.seed)
        return fit_campaigns(_read(path, source), source)


def _read(path: str, source: FitSource) -> Reading:
    return read_campaigns(path, source.campaigns, max_rows=source.max_rows, seed=source.seed)


def fit_campaigns(reading: Reading, source: FitSource) -> Campaigns:
    """Return components and weights of every campaign that was read."""
    scores, weights = list[Floats](), list[Floats]()
    for name, rows in zip(source.campaigns, reading.kept, strict=True):
        if len(rows) <= source.dim:
            rule = f"{source.dim} components need more rows than that"
            raise InputError(f"campaign {name!r}", f"{len(rows)} rows", rule, "choose a smaller dim, or give more rows")
        scores.append(components(design(rows), source.dim))
        weights.append(_weights(scores[-1], rows, reading.last, source))
    table = np.stack(weights, axis=1)
    return Campaigns(
        contexts=np.concatenate(scores),
        sizes=np.array([len(rows) for rows in reading.kept], np.int64),
        counts=reading.counts,
        conversion=np.ascontiguousarray(table[0, :, : source.dim]),
        delay=np.ascontiguousarray(table[1, :, : source.dim]),
        levels=CONSTANT * table[:, :, source.dim] if source.intercept else np.zeros(table.shape[:2]),
        total=reading.total,
        broken=reading.broken,
        problems=tuple(map(str, reading.problems)),
    )


def _weights(scores: Floats, rows: CampaignRows, last: int, source: FitSource) -> Floats:
    """Return w_c and w_d (2, d), the weight of the constant last if it is fitted."""
    contexts = np.column_stack([scores, np.full(len(scores), CONSTANT)]) if source.intercept else scores
    start = np.zeros((2, contexts.shape[1]))
    return fit(clicks_of(contexts, rows, last), start, ridge=source.ridge, iterations=STEPS).weights


def clicks_of(contexts: Floats, rows: CampaignRows, last: int) -> Clicks:
    """Return rows as the delayed-feedback fit takes them, with times in days.

    A row without a conversion was watched for the 30 days of attribution, or until the log ends: with the ``last``
    click of all campaigns, or with a later conversion of this one.
    """
    converted = rows.converted != ABSENT
    watched = np.minimum(max(last, int(rows.converted.max())) - rows.clicked, WINDOW * DAY)
    return Clicks.of(contexts, converted, np.where(converted, rows.converted - rows.clicked, watched) / DAY)


def design(rows: CampaignRows) -> Any:
    """Return a campaign's rows as numbers, a sparse table (n, 8 + levels).

    Integers v, mostly counts with long tails, become ±log(1 + |v|). Each of the most frequent categories that at least
    two rows share has a column of 0 and 1; an empty cell and a rarer category have none.
    """
    n, columns = rows.categories.shape
    ints = np.sign(rows.ints) * np.log1p(np.abs(rows.ints))
    filled = np.flatnonzero(rows.categories.ravel() != ABSENT)
    # One number identifies a category: its column and its hash of 32 bits.
    cells = (np.arange(columns) << 32 | rows.categories).ravel()[filled]
    levels, codes, counts = np.unique(cells, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:MOST_LEVELS]
    chosen = order[(counts[order] > 1) & (counts[order] < n)]
    places = np.full(len(levels), -1)
    places[np.sort(chosen)] = ints.shape[1] + np.arange(len(chosen))
    used = places[codes] >= 0
    where = np.concatenate([np.repeat(np.arange(n), ints.shape[1]), filled[used] // columns])
    which = np.concatenate([np.tile(np.arange(ints.shape[1]), n), places[codes][used]])
    values = np.concatenate([ints.ravel(), np.ones(int(used.sum()))])
    return csr_array((values, (where, which)), shape=(n, ints.shape[1] + len(chosen)))


def components(table: Any, dim: int) -> Floats:
    """Return the first ``dim`` principal components (n, dim) of a sparse table, each with mean 0 and deviation 1.

    A component's sign is that of its largest loading, so that it does not depend on the solver. Where the table
    has fewer than ``dim`` of them, the others are 0.
    """
    n, width = table.shape
    mean = np.asarray(table.mean(axis=0)).ravel()
    covariance = (table.T @ table).toarray() / n - np.outer(mean, mean)
    count = min(dim, width)
    variances, loadings = eigh(covariance, subset_by_index=(width - count, width - 1))
    variances, loadings = variances[::-1], loadings[:, ::-1]
    real = variances > LEAST_VARIANCE * max(variances[0], 0.0)
    signs = np.sign(loadings[np.abs(loadings).argmax(axis=0), np.arange(count)])
    scale = np.where(real, signs / np.sqrt(np.where(real, variances, 1.0)), 0.0)
    scores = np.zeros((n, dim))
    scores[:, :count] = (table @ loadings - mean @ loadings) * scale
    return scores

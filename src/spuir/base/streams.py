"""One seed in, named independent generators out.

A stream is addressed by a path of names, as in ``generator(seed, "environment", "noise", 3)``. The same
seed and path give the same numbers on every machine; a new stream with a name of its own never changes
the others.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any, cast

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import ndtri

from spuir.base.hashing import GOLDEN_RATIO, Words, hash64, splitmix64
from spuir.errors import InputError, ParameterError

Seed = int | Generator | None
Floats = NDArray[np.float64]

_GOLDEN = np.uint64(GOLDEN_RATIO)
FEW = 8
"""Up to so many keys are computed one by one, which is faster than by arrays (measured)."""


def _is_integer(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def as_seed(random_state: Seed) -> int:
    """Return a non-negative integer seed: the integer itself, one drawn from a Generator, or a fresh one."""
    if random_state is None:
        return secrets.randbits(64)
    if isinstance(random_state, Generator):
        return int(random_state.integers(2**63))
    if _is_integer(random_state) and random_state >= 0:
        return int(random_state)
    raise ParameterError(
        "random_state", repr(random_state), "a seed is None, an integer ≥ 0 or a numpy Generator", "pass one of these"
    )


def generator(seed: int, *path: str | int) -> Generator:
    """Return the generator that belongs to ``path`` under ``seed``."""
    # Each name goes in with its length, so that ("a", "b/c") and ("a/b", "c") are different streams.
    text = "".join(f"{len(name)}:{name}" for name in map(str, path))
    digest = blake2b(text.encode(), digest_size=16).digest()
    key = tuple(int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4))
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


class Draws:
    """The random numbers of n decisions; a decision's numbers depend on its own 64-bit key alone.

    The key is a hash of (seed, episode, id), or of (seed, episode, row number within the episode) where no id is
    given. A decision can therefore be recomputed from its log, a retry with the same id repeats it, and replicas of
    one model agree, however the rows are split over calls. Nothing is computed until it is needed.
    """

    def __init__(self, size: int, make_keys: Callable[[Any], Any]) -> None:
        """Keep what returns the keys of some decisions, an array of their numbers, or the key of one of them."""
        self.size = size
        self._make_keys = make_keys

    @classmethod
    def numbered(cls, seed: int, episode: int, first: int, size: int) -> "Draws":
        """Return the draws of the rows first, first + 1, … of an episode."""

        def make_keys(rows: Any) -> Any:
            return splitmix64((rows + first) * GOLDEN_RATIO + _root(seed, "row", episode))

        return cls(size, make_keys)

    @classmethod
    def identified(cls, seed: int, episode: int, ids: Iterable[object]) -> "Draws":
        """Return the draws of decisions with these ids; an id counts by its text, so that 7 and "7" are the same."""
        texts = [str(one).encode() for one in ids]
        if len(set(texts)) < len(texts):
            first = {text: row for row, text in reversed(list(enumerate(texts)))}
            row = next(row for row, text in enumerate(texts) if first[text] != row)
            got, rule = f"{texts[row].decode()!r} again at row {row}", "each decision of a call has its own id"
            raise InputError("ids", got, rule, "drop the row, or give it another id")

        def make_keys(rows: Any) -> Any:
            shared = _root(seed, "id", episode)
            if isinstance(rows, int):
                return splitmix64(hash64(texts[rows]) ^ shared)
            chosen = [texts[row] for row in cast("list[int]", rows.tolist())]
            return splitmix64(np.fromiter(map(hash64, chosen), np.uint64, len(chosen)) ^ np.uint64(shared))

        return cls(len(texts), make_keys)

    @classmethod
    def of(cls, rng: "Generator | Draws", size: int) -> "Draws":
        """Return draws as they are; a generator gives one key per decision."""
        if isinstance(rng, Draws):
            return rng
        keys = rng.integers(2**64, size=size, dtype=np.uint64)
        return cls(size, lambda rows: int(keys[rows]) if isinstance(rows, int) else keys[rows])

    @cached_property
    def keys(self) -> Words:
        """The key of each decision (n,)."""
        return self._make_keys(np.arange(self.size, dtype=np.uint64))

    @cached_property
    def uniforms(self) -> Floats:
        """One number in [0, 1) for each decision (n,), from which its action is drawn."""
        return self.uniforms_at(None)

    def uniforms_at(self, rows: NDArray[np.intp] | None) -> Floats:
        """Return the numbers of some decisions, of all for None."""
        count = self.size if rows is None else len(rows)
        if count <= FEW:
            some = range(count) if rows is None else rows.tolist()
            return np.array([_uniform(self._make_keys(row)) for row in some])
        return _uniform(self.keys if rows is None else self._make_keys(rows.astype(np.uint64)))

    def normals(self, lane: int, columns: int, rows: slice = slice(None)) -> Floats:
        """Return standard normals (k, columns) for the chosen rows; each ``lane`` ≥ 1 gives independent ones."""
        starts = splitmix64(self.keys[rows] + np.uint64(lane * GOLDEN_RATIO % 2**64))
        steps = np.arange(columns, dtype=np.uint64) * _GOLDEN
        words = splitmix64(starts[:, None] + steps)
        uniforms = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        return np.asarray(ndtri(uniforms), dtype=np.float64)


def _uniform(key: Any) -> Any:
    """Return the number in [0, 1) that belongs to a key, or an array of them."""
    return (splitmix64(key) >> 11) * 2.0**-53


class RowNumbers:
    """How many rows were decided in each episode: rows without ids draw by their number within it.

    ``used`` has the current episode and the one before, in which a decision may still be under way. Callers hold a
    lock.
    """

    def __init__(self, used: Mapping[int, int] | None = None) -> None:
        self.used = dict(used or {})

    def take(self, episode: int, n: int) -> int:
        """Return the number of the first of n rows to decide in an episode; the next call starts behind them."""
        first = self.used.get(episode, 0)
        if first == 0:
            self.used = {number: used for number, used in self.used.items() if number >= episode - 1}
        self.used[episode] = first + n
        return first

    def give_back(self, episode: int, first: int, n: int) -> None:
        """Return the numbers of rows that were refused, unless later ones are in use."""
        if self.used.get(episode) == first + n:
            self.used[episode] = first
            self.used = {number: used for number, used in self.used.items() if used}


@lru_cache(maxsize=256)
def _root(seed: int, kind: str, episode: int) -> int:
    """Return the 64-bit number that all decisions of an episode share."""
    return hash64(f"{seed} decide {kind} {episode}".encode())

"""Raw per-action sums of rows: a commutative monoid under addition, scaled by decay.

For the rows s (with reward r and weight w) on which an action was observed, the sums are Σ w s sᵀ, Σ w s r,
Σ w and Σ w r². Nothing else of the rows is kept; the ridge joins at solve time, never here.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import daxpy

from spuir.base.records import FLOAT, Codes, Floats, all_finite
from spuir.core.quiet import quietly
from spuir.core.scratch import workspace
from spuir.errors import InputError

GATHER_BYTES = 4 * 2**20
"""Size of the pieces in which rows are gathered: memory stays bounded and a piece stays in the cache (measured)."""
AXPY_NUMBERS = 10_000
"""Numbers per BLAS call: with more, SciPy's BLAS starts threads, which compete with those of NumPy's BLAS."""


@dataclass(frozen=True, eq=False)
class Statistics:
    """Sums of M actions over feature vectors of p = ``width`` columns, in one table.

    Row j of ``table`` (M, p² + p + 2) holds action j's ``gram`` (Φ of (3)), ``moment`` (b of (3)), ``weight`` (the
    number of rows) and ``energy`` (the sum of squared rewards, or its estimate beside a sketch). All four are views of
    the table, so that every linear operation on sums is one operation on the table.
    """

    width: int
    table: Floats

    @classmethod
    def zero(cls, n_actions: int, width: int) -> Self:
        """Return the neutral element."""
        return cls(width, np.zeros((n_actions, width * width + width + 2)))

    @classmethod
    def of(cls, *, gram: Floats, moment: Floats, weight: Floats, energy: Floats | float = 0.0) -> Self:
        """Return sums built from their parts."""
        m, width = moment.shape
        made = cls(width, np.empty((m, width * width + width + 2)))
        made.gram[:], made.moment[:], made.weight[:], made.energy[:] = gram, moment, weight, energy
        return made

    @property
    def gram(self) -> Floats:
        """Σ w s sᵀ (M, p, p)."""
        width = self.width
        return self.table[:, : width * width].reshape(-1, width, width)

    @property
    def moment(self) -> Floats:
        """Σ w s r (M, p)."""
        return self.table[:, self.width * self.width : -2]

    @property
    def weight(self) -> Floats:
        """Σ w (M,)."""
        return self.table[:, -2]

    @property
    def energy(self) -> Floats:
        """Σ w r² (M,)."""
        return self.table[:, -1]

    def __add__(self, other: "Statistics") -> "Statistics":
        """Return the sums of both sets of rows."""
        return Statistics(self.width, self.table + other.table)

    def then(self, factor: float, new: "Statistics") -> "Statistics":
        """Return ``factor`` × these sums + ``new``, one episode later, in the table of ``new``, which it overwrites."""
        # In place: new memory of this size costs more than the sums themselves.
        add_scaled(new.table, factor, self.table)
        return new

    def copied(self) -> "Statistics":
        """Return the sums in a table of their own."""
        return Statistics(self.width, self.table.copy())

    def decayed(self, factor: float) -> "Statistics":
        """Return the sums with every row's weight multiplied by ``factor``."""
        return Statistics(self.width, factor * self.table)

    def grown(self, like: int | None) -> "Statistics":
        """Return the sums with one more action: empty, or a copy of action ``like``."""
        return Statistics(self.width, grow(self.table, like))


def add_scaled(total: Floats, factor: float, other: Floats) -> None:
    """Add ``factor`` × ``other`` to the contiguous ``total``, in place and without a temporary."""
    into, by = total.ravel(), other.ravel()
    if into.size <= AXPY_NUMBERS:
        daxpy(by, into, a=factor)
        return
    for at in range(0, into.size, AXPY_NUMBERS):
        daxpy(by[at : at + AXPY_NUMBERS], into[at : at + AXPY_NUMBERS], a=factor)


def grow(stack: Floats, like: int | None) -> Floats:
    """Return ``stack`` (M, …) with one more entry: zero, or a copy of entry ``like``."""
    extra = np.zeros_like(stack[:1]) if like is None else stack[like : like + 1]
    return np.concatenate([stack, extra])


class MappedRows(ABC):
    """Rows (B, p) computed from ``contexts`` when they are read; a feature map's rows are of this class."""

    contexts: Any

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(B, p)."""

    @abstractmethod
    def __getitem__(self, rows: Any) -> "MappedRows":
        """Return the chosen rows, not yet computed."""

    @abstractmethod
    def toarray(self) -> Floats:
        """Return the computed rows (B, p)."""


def dense_rows(contexts: Any, rows: Any) -> Floats:
    """Return the chosen rows of an array of any layout or dtype, of a CSR matrix or of mapped rows, as float64.

    Rows given by number may be in a workspace, which the next call overwrites.
    """
    if not isinstance(contexts, np.ndarray):
        return np.ascontiguousarray(contexts[rows].toarray(), dtype=np.float64)
    if isinstance(rows, slice):
        return np.ascontiguousarray(contexts[rows], dtype=np.float64)
    table = cast("NDArray[Any]", contexts)
    if not _in_order(table):
        return np.ascontiguousarray(table[rows], dtype=np.float64)
    if table.dtype != FLOAT:
        return table.take(rows, axis=0).astype(np.float64)
    # NumPy writes straight into ``out`` only in a mode other than "raise"; all row numbers are in range.
    return table.take(rows, axis=0, out=workspace("gathered", (len(rows), table.shape[1])), mode="clip")


def _in_order(table: NDArray[Any]) -> bool:
    """Return whether ``take`` reads the table in place; it copies any other table as a whole."""
    return table.flags.c_contiguous and table.flags.aligned


def blocks(n: int, row_bytes: int, budget: int | None = None) -> Iterator[slice]:
    """Return slices that cut n rows into pieces of at most ``budget`` bytes (at least one row each)."""
    size = max(1, (GATHER_BYTES if budget is None else budget) // max(1, row_bytes))
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def count_codes(codes: Codes, n_actions: int) -> Codes:
    """Return how often each code occurs (M,); codes outside 0…M−1 are refused."""
    try:
        counts = np.bincount(codes, minlength=n_actions)
    except ValueError:  # a negative code
        counts = None
    if counts is None or len(counts) > n_actions:
        row = int(np.argmax((codes < 0) | (codes >= n_actions)))
        raise InputError(
            "actions", f"code {codes[row]} at row {row}", f"codes run from 0 to {n_actions - 1}", "add the action first"
        )
    return counts


@quietly
def refuse_non_finite(contexts: Any) -> None:
    """Refuse contexts with a value that is not finite or too large to be squared, and name its row.

    Mapped rows are judged by the contexts that they are computed from.
    """
    if isinstance(contexts, MappedRows):
        contexts = contexts.contexts
    for piece in blocks(int(contexts.shape[0]), 8 * int(contexts.shape[1])):
        block = dense_rows(contexts, piece)
        bad = ~np.isfinite(np.square(block) * len(block))
        if bad.any():
            row, column = (int(i) for i in np.argwhere(bad)[0])
            raise InputError(
                "contexts",
                f"{block[row, column]} at row {piece.start + row}, column {column}",
                "every context value must be finite and its square too",
                "drop, fill or rescale that value",
            )


@quietly
def refuse_overflow(contexts: Any, rewards: Floats, rows: Codes | None = None) -> None:
    """Explain why sums of rows are not finite: a context, a reward, or rows that are too many or too heavy.

    ``rewards`` (k,) and ``rows`` are as in :func:`summarise`; those after the first B entries were revealed.
    """
    refuse_non_finite(contexts)
    bad = ~np.isfinite(rewards * rewards * len(rewards))
    if bad.any():
        entry = int(np.argmax(bad))
        name = "rewards" if entry < contexts.shape[0] else "revealed_rewards"
        row = entry if rows is None else rows[entry]
        rule = "the square of a reward must be finite"
        raise InputError(name, f"{rewards[entry]} at row {row}", rule, "scale the rewards down")
    rule = "weights × squares of contexts and rewards must have finite sums"
    raise InputError("rows", "sums that are not finite", rule, "scale weights, contexts or rewards down")


def by_action(codes: Codes, n_actions: int) -> Codes:
    """Return the row numbers ordered by action, stable within each."""
    # NumPy sorts short integers by radix, several times faster than by comparison.
    short = np.uint8 if n_actions <= 2**8 else np.uint16 if n_actions <= 2**16 else np.intp
    return codes.astype(short, copy=False).argsort(kind="stable")


def summarise(
    contexts: Any, codes: Codes, rewards: Floats, weights: Floats | None, n_actions: int, rows: Codes | None = None
) -> Statistics:
    """Return the sums of the observed rows, one product SᵀS and one SᵀR per action and piece: (3).

    Parameters
    ----------
    contexts
        (B, p) feature rows, in any layout, float dtype or CSR.
    codes, rewards, weights
        (k,) action, reward and weight (None = 1) of each entry.
    rows
        (k,) row of ``contexts`` for each entry; None = entry i is row i. A row may occur for several actions.
    """
    width = int(contexts.shape[1])
    counts = count_codes(codes, n_actions)
    order = by_action(codes, n_actions)
    source = order if rows is None else rows[order]
    values = rewards.take(order)
    scale: Floats | None = None
    if weights is not None:
        scale = np.sqrt(weights.take(order))
        values = values * scale
    sums = Statistics(width, np.empty((n_actions, width * width + width + 2)))
    lengths: list[int] = counts.tolist()
    most = max(lengths)
    plain = type(contexts) is np.ndarray and contexts.dtype == FLOAT and _in_order(contexts)
    if plain and 8 * most * width <= GATHER_BYTES:
        _by_action(sums, contexts, source, values, scale, lengths)
    else:
        _by_piece(sums, contexts, source, values, scale, lengths)
    sums.table[:, -2] = counts if weights is None else np.bincount(codes, weights, n_actions)
    if not all_finite(sums.table):
        refuse_overflow(contexts, rewards, rows)
    return sums


def _by_action(sums: Statistics, contexts: Any, source: Codes, values: Floats, scale: Any, lengths: list[int]) -> None:
    """Write the products of the rows ``source`` of a float64 array, gathered one action at a time, in the cache."""
    room, start = workspace("gathered", (max(lengths), sums.width)), 0
    # The list comes first so that it ends the loop: at the end of an array NumPy formats an error message nobody reads.
    for length, gram, moment, row in zip(lengths, sums.gram, sums.moment, sums.table, strict=False):
        if not length:
            row[:] = 0.0
            continue
        stop = start + length
        S = contexts.take(source[start:stop], axis=0, out=room[:length], mode="clip")
        if scale is not None:
            np.multiply(S, scale[start:stop, None], out=S)
        _multiply(S, values[start:stop], gram, moment, row)
        start = stop


def _by_piece(sums: Statistics, contexts: Any, source: Codes, values: Floats, scale: Any, lengths: list[int]) -> None:
    """Write the same products for many rows or for rows that are expensive to select, in pieces that span actions."""
    sums.table[[not length for length in lengths]] = 0.0
    gram, moment, table, more = sums.gram, sums.moment, sums.table, Statistics.zero(1, sums.width)
    ends, action, first = list(accumulate(lengths)), 0, 0
    for piece in blocks(len(source), 8 * sums.width):
        gathered = dense_rows(contexts, source[piece])
        if scale is not None:
            gathered = gathered * scale[piece, None]
        start = piece.start
        while start < piece.stop:
            while ends[action] == start:
                action, first = action + 1, start
            stop = min(ends[action], piece.stop)
            S, R = gathered[start - piece.start : stop - piece.start], values[start:stop]
            if start == first:
                _multiply(S, R, gram[action], moment[action], table[action])
            else:  # the action began in an earlier piece
                _multiply(S, R, more.gram[0], more.moment[0], more.table[0])
                table[action] += more.table[0]
            start = stop


def _multiply(S: Floats, R: Floats, gram: Floats, moment: Floats, row: Floats) -> None:
    """Write the products of an action's rows into ``row``, of which ``gram`` and ``moment`` are views."""
    S.T.dot(S, gram)  # (3) SᵀS, a symmetric rank-k product
    R.dot(S, moment)  # (3) SᵀR
    row[-1] = R.dot(R)


def per_action(codes: Codes, values: Floats, n_actions: int) -> Floats:
    """Return the sum of ``values`` (k,) by action (M,)."""
    return np.bincount(codes, values, n_actions).astype(np.float64, copy=False)

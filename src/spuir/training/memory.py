"""How much memory a training needs: a forecast before it starts, and an error with the arithmetic if it is too much."""

import os
from dataclasses import dataclass

from spuir.errors import ParameterError
from spuir.planning import FLOAT_BYTES
from spuir.policies.base import Policy

BLOCK_BYTES, BLOCK_ROWS = 32 * 2**20, 65_536
"""What a worker reads at once: at most about this many bytes as numbers, and this many rows."""
COPIES = 4
"""Copies of such a block that exist at once: as read, as numbers, ordered by action, and on their way."""
FREE_SHARE = 0.8
"""Share of the free memory that training may use by default."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """The memory that training needs, in bytes.

    ``tables`` of ``table`` bytes hold the model while an episode is learned: of ``actions`` and ``width`` columns, or
    of ``numbers`` in all where sums are smaller. ``open_episodes`` shards of at most ``shard`` bytes wait for the rest
    of their rows, and ``coming`` bytes are the shards of parts that workers have collected. ``sketch`` is for the
    hashed rows of all actions and of their complements, ``reading`` for the rows that workers read and sort.
    """

    actions: int
    width: int
    table: int
    tables: int
    shard: int
    open_episodes: int
    coming: int
    sketch: int
    reading: int
    numbers: int | None = None

    @property
    def total(self) -> int:
        """All bytes."""
        waiting = self.open_episodes * self.shard + self.coming
        return self.tables * self.table + waiting + self.sketch + self.reading

    def __str__(self) -> str:
        """Return the sum and its terms."""
        sketch = f"{amount(self.sketch)} for sketches, " if self.sketch else ""
        each = f"× ({self.width:,}² + {self.width:,} + 2) numbers"
        if self.numbers is not None:
            each = f"with {self.numbers:,} numbers in all"
        return (
            f"{amount(self.total)} of memory: {self.tables} tables of {self.actions:,} actions "
            f"{each} = {amount(self.tables * self.table)}, "
            f"{self.open_episodes:,} open episodes of up to {amount(self.shard)}, "
            f"{amount(self.coming)} for what workers have collected, {sketch}"
            f"{amount(self.reading)} for reading"
        )


def amount(size: float) -> str:
    """Return a number of bytes as text."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}"
        size /= 1024
    return f"{size:,.1f} GiB"


def row_bytes(width: int) -> int:
    """Return the bytes of one row as numbers: context, action, reward, weight and number."""
    return FLOAT_BYTES * (width + 5)


def block_rows(width: int) -> int:
    """Return the number of rows that a worker reads at once."""
    return min(BLOCK_ROWS, max(1, BLOCK_BYTES // row_bytes(width)))


def table_bytes(policy: Policy, actions: int, dim: int) -> int:
    """Return the bytes of the sums of one episode: Gram, moment, weight and energy of every action, or fewer."""
    width = policy.width(dim)
    return FLOAT_BYTES * (policy.fewer_numbers(actions, dim) or actions * (width * width + width + 2))


@dataclass(frozen=True, kw_only=True)
class ShardSize:
    """How many bytes a shard takes: ``row`` for each kept row, or ``sums``; up to ``held`` rows a sketch keeps as rows.

    ``keep_rows`` is the most rows with which an episode takes less memory as rows than as sums; None = no limit.
    """

    row: int
    held: int
    sums: int
    keep_rows: int | None

    @classmethod
    def of(cls, policy: Policy, actions: int, dim: int, *, masks: bool = False) -> "ShardSize":
        """Return the sizes for a policy; ``masks`` says whether rows carry a mask of the eligible actions."""
        width, held = policy.width(dim), 0
        sums = table_bytes(policy, actions, dim)
        if "sketched" in policy.traits:
            held = getattr(policy, "sketch_size", 0)
            # Hashed rows and rewards, and residual, acting and reference coefficients of every action.
            sums = FLOAT_BYTES * actions * (held * (width + 1) + 3 * width + 2)
        row = row_bytes(max(dim, width)) + actions * masks
        return cls(row=row, held=held, sums=sums, keep_rows=sums // row if "foldable" in policy.traits else None)

    def of_rows(self, rows: int, size: int) -> int:
        """Return the bytes of a shard of ``rows`` rows of an episode of ``size`` rows."""
        if self.keep_rows is None or size <= self.keep_rows:
            return rows * self.row
        return min(self.sums, rows * self.row) if rows <= self.held else self.sums


def forecast(
    policy: Policy,
    actions: int,
    dim: int,
    *,
    largest: int,
    open_episodes: int,
    workers: int,
    coming: int = 0,
    sorting: int = 0,
) -> Forecast:
    """Return the memory that training needs for ``actions`` actions and ``dim`` encoded columns.

    Parameters
    ----------
    largest
        Rows of the largest episode.
    open_episodes, workers
        The largest number of episodes open at once, and the number of workers.
    coming
        Bytes of the shards of all parts that workers may have collected before their turn.
    sorting
        Bytes of rows that each worker sorts at a time.
    """
    width = policy.width(dim)
    table = table_bytes(policy, actions, dim)
    # Observed sums, the factors that act and those that will act, the sums of an episode and a copy; with imputation
    # also the imputed sums and the complement of the episode.
    tables = 7 if "imputing" in policy.traits else 5
    rows = row_bytes(dim) * largest
    size = ShardSize.of(policy, actions, dim)
    reading = COPIES * (workers + 1) * block_rows(dim) * row_bytes(dim) + COPIES * workers * sorting
    sketch = 0
    if largest > size.held > 0:
        sketch = 3 * FLOAT_BYTES * actions * size.held * (width + 1)
    if size.keep_rows is None:
        reading += 2 * rows  # the whole episode in one piece, and what learning it takes
    return Forecast(
        actions=actions,
        width=width,
        table=table,
        tables=tables,
        shard=size.of_rows(largest, largest),
        open_episodes=open_episodes,
        coming=coming,
        sketch=sketch,
        reading=reading,
        numbers=policy.fewer_numbers(actions, dim),
    )


def free_memory() -> int:
    """Return the free memory of this machine in bytes."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            fields = dict(line.split(":", 1) for line in lines)
        return 1024 * int(fields["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_fits(needed: Forecast, limit: int | None) -> None:
    """Raise if training needs more than ``limit`` bytes; None = 80 % of the free memory."""
    allowed = int(FREE_SHARE * free_memory()) if limit is None else limit
    if needed.total > allowed:
        remedy = (
            "use fewer actions (merge rare ones) or fewer features (hash or leave out columns, or lower n_features "
            "of a kernel policy), or raise --memory; a sketch saves time, not memory, though a smaller sketch_size does"
        )
        raise ParameterError("memory", f"{amount(allowed)} to use", f"training needs {needed}", remedy)

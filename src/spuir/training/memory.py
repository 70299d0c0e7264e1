"""How much memory training will take, told before it starts; what is too much is refused with the arithmetic."""

import os
from dataclasses import dataclass

from spuir.errors import ParameterError
from spuir.policies.base import Policy

FLOAT = 8
BLOCK_BYTES, BLOCK_ROWS = 32 * 2**20, 65_536
"""What a worker reads at once: about so many bytes as numbers, and no more than so many rows."""
COPIES = 4
"""Copies of such a block that exist at once: as read, as numbers, ordered by action, and on their way."""
SHARE = 0.8
"""Share of the free memory that training may take unless it is told otherwise."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What training will need, in bytes, and how that comes about.

    ``tables`` of ``table`` bytes hold the model while an episode is learnt; ``open_episodes`` shares of at most
    ``share`` bytes wait for the rest of their rows; ``sketch`` is for the hashed rows of all actions and of their
    complements, ``reading`` for the rows under way.
    """

    actions: int
    width: int
    table: int
    tables: int
    share: int
    open_episodes: int
    sketch: int
    reading: int

    @property
    def total(self) -> int:
        """Everything together."""
        return self.tables * self.table + self.open_episodes * self.share + self.sketch + self.reading

    def __str__(self) -> str:
        """Tell the sum and its parts."""
        sketch = f"{amount(self.sketch)} for sketches, " if self.sketch else ""
        return (
            f"{amount(self.total)} of memory: {self.tables} tables of {self.actions:,} actions × "
            f"({self.width:,}² + {self.width:,} + 2) numbers = {amount(self.tables * self.table)}, "
            f"{self.open_episodes} open episodes of up to {amount(self.share)}, {sketch}"
            f"{amount(self.reading)} for reading"
        )


def amount(size: float) -> str:
    """Return a number of bytes as people read it."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}"
        size /= 1024
    return f"{size:,.1f} GiB"


def row_bytes(width: int) -> int:
    """Return the bytes of one row as numbers: context, action, reward, weight and number."""
    return FLOAT * (width + 5)


def block_rows(width: int) -> int:
    """Return how many rows a worker reads at once."""
    return min(BLOCK_ROWS, max(1, BLOCK_BYTES // row_bytes(width)))


def table_bytes(actions: int, width: int) -> int:
    """Return the bytes of the sums of one episode: Gram, moment, weight and energy of every action."""
    return FLOAT * actions * (width * width + width + 2)


def forecast(
    policy: Policy, actions: int, dim: int, *, keep_rows: int | None, largest: int, window: int, workers: int
) -> Forecast:
    """Return what training will need for ``actions`` actions and ``dim`` encoded columns.

    Parameters
    ----------
    keep_rows, largest
        Episodes of up to ``keep_rows`` rows (None: all) are kept as rows; the largest episode has ``largest``.
    window, workers
        The most episodes open at once, and the workers that read.
    """
    width = policy.width(dim)
    table = table_bytes(actions, width)
    # Observed sums, the factors that acted and those that will act, an episode's own and a copy; with imputation the
    # imputed sums and the episode's complement too.
    tables = 7 if "imputing" in policy.traits else 5
    rows = row_bytes(dim) * largest
    share = rows if keep_rows is None or largest <= keep_rows else table
    reading = COPIES * (workers + 1) * block_rows(dim) * row_bytes(dim)
    sketch = 0
    if "sketched" in policy.traits and largest > (size := getattr(policy, "sketch_size", 0)):
        sketch = 3 * FLOAT * actions * size * (width + 1)
    if keep_rows is None:
        reading += 2 * rows  # the episode joined, and what learning it takes
    return Forecast(
        actions=actions,
        width=width,
        table=table,
        tables=tables,
        share=share,
        open_episodes=window,
        sketch=sketch,
        reading=reading,
    )


def free_memory() -> int:
    """Return the bytes that this machine can still give, as far as it tells."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            fields = dict(line.split(":", 1) for line in lines)
        return 1024 * int(fields["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_fits(needed: Forecast, limit: int | None) -> None:
    """Refuse what needs more than ``limit`` bytes (None: most of the free memory)."""
    allowed = int(SHARE * free_memory()) if limit is None else limit
    if needed.total > allowed:
        remedy = (
            "train fewer actions (merge the rare ones), fewer features (hash or leave out columns, or n_features of a "
            "kernel policy), or raise --memory; a sketch saves time, not this memory"
        )
        raise ParameterError("training", f"a need of {needed}", f"{amount(allowed)} are allowed", remedy)

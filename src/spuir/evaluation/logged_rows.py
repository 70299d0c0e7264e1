"""Rows of a log as evaluation reads them: checked, with actions as codes, block after block in bounded memory."""

from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from spuir.base.hashing import splitmix64
from spuir.base.records import Codes, Floats, Mask
from spuir.errors import InputError, quoted
from spuir.logs import Cut, Log
from spuir.logs.eligible_masks import holds_masks, listed_items, read_mask
from spuir.logs.formats import Faults
from spuir.logs.id_hashes import Hashes, hash_ids
from spuir.tables.arrow import pa
from spuir.tables.encoder import Encoder
from spuir.training.collect import check_numbers, rows_by_key

TOLERANCE = 1e-4
"""Logged probabilities may miss a sum of one by this much: logs round them."""
BLOCK_CELLS, BLOCK_ROWS = 1 << 21, (4096, 131_072)
"""Cells of a block of rows that is read at a time, and its least and most rows: long blocks cost fewer calls, and
tables with many columns or actions have to fit into memory."""
LEAST_EXPLORATION = 1e-12
"""Propensities within this of 1 count as 1."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LoggedRows:
    """Some consecutive rows of a log, as the estimators, models and evaluated policies read them.

    Parameters
    ----------
    table
        Record batch with the raw context columns (n rows).
    actions
        (n,) executed actions as codes into the labels of the log.
    rewards, weights
        (n,) rewards and row weights; a log without weights has ones.
    propensities
        (n,) probabilities of the executed actions; None where the log has none.
    eligible
        (n, M) mask of what could be chosen; None = every action.
    units
        (n,) hashes of ``unit_id``; None where the log has none.
    episodes
        (n,) numbers of the episodes, counted as they first appear in the log; None where the log has none.
    numbers
        (n,) places of the rows in the log, from 0.
    offered
        Record batch with what could be chosen, and the features of these actions at each decision (n rows); None where
        no evaluated policy reads any.
    """

    table: Any
    actions: Codes
    rewards: Floats
    weights: Floats
    propensities: Floats | None
    eligible: Mask | None
    units: Hashes | None
    episodes: Codes | None
    numbers: NDArray[np.int64]
    offered: Any = None

    def __len__(self) -> int:
        """Return n."""
        return len(self.actions)

    def executed(self, values: Floats) -> Floats:
        """Return the entry (n,) of a table (n, M) that belongs to the executed action."""
        return values[np.arange(len(self)), self.actions]

    def folds(self, by: str, count: int) -> Codes:
        """Return the fold (n,) of each row, of ``count``: rows that belong together are in the same one.

        ``by`` is "unit", "episode", "blocks" (64 rows in the order of the log) or "row".
        """
        if by == "unit" and self.units is not None:
            return (self.units % np.uint64(count)).astype(np.intp)
        if by == "episode" and self.episodes is not None:
            return self.episodes % count
        places = self.numbers >> 6 if by == "blocks" else self.numbers
        first, last = int(places[0]), int(places[-1])
        hashed = splitmix64(np.arange(first, last + 1, dtype=np.uint64)) % np.uint64(count)
        return hashed.astype(np.intp)[places - first]


@dataclass(kw_only=True, eq=False)
class EvaluationLog:
    """A log to evaluate on: iterate over it for :class:`LoggedRows`, any number of times.

    Reading sets ``actions`` (all labels), ``logged`` (codes of the executed ones), ``silent`` (rows without a reward)
    and ``faults`` (broken rows); ``complete`` says that all rows were read once.

    Parameters
    ----------
    log
        What ``open_log`` returned.
    cut
        How episodes are cut; None = by the column ``episode`` where the log has one.
    actions
        Labels known before the log is read: those of the evaluated models. The others follow as they appear.
    context
        Names of the context columns to read; ``position`` counts as context.
    mask_order
        Labels in the order of the masks in the column ``eligible``; None = sorted.
    ignored
        Columns of the log that are not read, such as propensities that are estimated instead.
    offered
        Columns with features of actions at each decision, which evaluated models read.
    """

    log: Log
    cut: Cut | None = None
    actions: list[Hashable] = field(default_factory=list[Hashable])
    context: tuple[str, ...] = ()
    mask_order: Sequence[Hashable] | None = None
    ignored: tuple[str, ...] = ()
    offered: tuple[str, ...] = ()
    silent: int = 0
    faults: Faults = field(default_factory=Faults)
    complete: bool = False
    logged: set[int] = field(default_factory=set[int])
    _codes: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    _episodes: dict[Any, int] = field(default_factory=dict[Any, int])

    def __post_init__(self) -> None:
        self._codes = {label: code for code, label in enumerate(self.actions)}
        if self.cut is None and "episode" in self.log.schema.names:
            self.cut = Cut("column")

    def catalogue(self) -> Any:
        """Return the features of the actions by code, as a data frame; None where some have none."""
        known = self.log.catalogue
        if known is None or not known.features or not set(self.actions) <= set(known.labels):
            return None
        return known.to_frame().loc[self.actions].reset_index(drop=True)

    def action_columns(self) -> Floats | None:
        """Return the encoded features (M, k) of the actions by code; None where some have none."""
        table = self.catalogue()
        return None if table is None else Encoder.fit(table).transform(table)

    @property
    def mask_labels(self) -> list[Hashable]:
        """All labels in the order of the masks; known once all rows were read."""
        return sorted(cast("list[Any]", self.actions)) if self.mask_order is None else list(self.mask_order)

    @property
    def episode_names(self) -> list[Any]:
        """Episodes as people read them, in the order of their numbers."""
        return [self.cut.named(key) if self.cut else key for key in self._episodes]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of the log to read."""
        optional = ("propensity", "probabilities", "eligible", "weight", "unit_id", "decision_id", "position")
        has = set(self.log.schema.names) - set(self.ignored)
        cut = () if self.cut is None else self.cut.columns
        read = [name for name in optional if name in has]
        return tuple(dict.fromkeys(["action", "reward", *read, *cut, *self.offered, *self.context]))

    @property
    def block_rows(self) -> int:
        """How many rows are read at a time."""
        least, most = BLOCK_ROWS
        return min(max(BLOCK_CELLS // max(len(self.columns), len(self.actions)), least), most)

    def __iter__(self) -> Iterator[LoggedRows]:
        """Yield the rows; after the first time, the labels are complete."""
        self.silent, self.faults, start = 0, Faults(), 0
        for part in self.log.parts:
            rows = 0
            for batch in part.read(self.columns, batch_rows=self.block_rows, faults=self.faults):
                if not batch.num_rows:
                    continue
                with part.locating(rows):
                    read = self._read(batch, start + rows)
                rows += batch.num_rows
                if len(read):
                    yield read
            start += rows
        self.complete = True
        if not self._codes or not start:
            rule = "decisions with their rewards are needed"
            remedy = "check the path, the column of rewards and, in an evaluation, --after"
            raise InputError("log", "no rows", rule, remedy)

    def ahead(self) -> Iterator[LoggedRows]:
        """Yield the rows as iterating does, reading the next ones in another thread meanwhile."""
        coming = iter(self)
        with ThreadPoolExecutor(1) as reader:
            read = reader.submit(next, coming, None)
            while (rows := read.result()) is not None:
                read = reader.submit(next, coming, None)
                yield rows

    def _read(self, batch: Any, start: int) -> LoggedRows:
        if not self.complete:  # what was read once is not checked again
            _check_slates(batch)
            _check_propensities(batch)
            check_numbers(batch)
            _check_probabilities(batch)
        actions = self._encode(batch.column("action"), "action")
        rewards = _floats(batch, "reward")
        names = batch.schema.names
        found = LoggedRows(
            table=batch.select([name for name in names if name in self.context]),
            actions=actions,
            rewards=rewards,
            weights=_floats(batch, "weight") if "weight" in names else np.ones(batch.num_rows),
            propensities=_floats(batch, "propensity") if "propensity" in names else None,
            eligible=self._eligible(batch, actions) if "eligible" in names else None,
            units=hash_ids(batch.column("unit_id")) if "unit_id" in names else None,
            episodes=self._numbered(batch, start),
            numbers=np.arange(start, start + batch.num_rows),
            offered=batch.select(["action", *self.offered]) if self.offered else None,
        )
        known = ~np.isnan(rewards) & (found.weights > 0)
        if known.all():
            return found
        self.silent += int(np.isnan(rewards).sum())
        return _taken(found, np.flatnonzero(known))

    def _encode(self, column: Any, what: str) -> Codes:
        """Return labels as codes; new ones are added while the log is read for the first time."""
        if column.null_count:
            row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            raise InputError(what, f"nothing at row {row}", "every decision has an action", "fill or drop that row")
        encoded = column.dictionary_encode()
        codes = [self._code(label) for label in encoded.dictionary.to_pylist()]
        if what == "action":
            self.logged.update(codes)
        return np.array(codes, np.intp)[encoded.indices.to_numpy(zero_copy_only=False)]

    def _code(self, label: Hashable) -> int:
        if label not in self._codes:
            if self.complete:
                rule = "a log must not change while it is read"
                raise InputError("log", f"a new action {label!r}", rule, "evaluate on files that are finished")
            self._codes[label] = len(self.actions)
            self.actions.append(label)
        return self._codes[label]

    def code(self, label: Hashable) -> int | None:
        """Return the code of a label, or of the label that reads like it; None where there is none."""
        by_text = {str(name): code for name, code in self._codes.items()}
        return self._codes.get(label, by_text.get(str(label)))

    def codes_of(self, column: Any) -> Codes:
        """Return the codes (n,) of labels in an Arrow array, −1 for those that the log does not have."""
        encoded = column.dictionary_encode()
        known = [self.code(label) for label in encoded.dictionary.to_pylist()]
        codes = np.array([-1 if code is None else code for code in known], np.intp)
        return codes[encoded.indices.to_numpy(zero_copy_only=False)]

    def _numbered(self, batch: Any, start: int) -> Codes | None:
        """Return the numbers (n,) of the episodes, counted as they first appear."""
        if self.cut is None:
            return None
        numbers = np.empty(batch.num_rows, np.intp)
        for key, rows in rows_by_key(self.cut.keys(batch, start)):
            numbers[rows] = self._episodes.setdefault(key, len(self._episodes))
        return numbers

    def _eligible(self, batch: Any, actions: Codes) -> Mask | None:
        """Return which actions could be chosen (n, M); None where no row says so."""
        column = batch.column("eligible")
        if column.null_count == len(column) or (holds_masks(column) and not self.complete):
            return None  # the order of a mask is known when all labels are
        _, owners, items = listed_items(column)
        if items.null_count and not holds_masks(column):
            row = owners[int(np.argmax(items.is_null().to_numpy(zero_copy_only=False)))]
            rule, remedy = "every eligible action has a label", "drop it from the list"
            raise InputError("eligible", f"nothing for a label at row {row}", rule, remedy)
        return read_mask(column, actions, self.actions, lambda items: self._encode(items, "eligible"), self.mask_labels)


def _taken(rows: LoggedRows, at: NDArray[np.intp]) -> LoggedRows:
    """Return the rows at some places."""
    tables = ("table", "offered")
    columns: dict[str, Any] = {
        name: None if value is None else value.take(pa.array(at)) if name in tables else value[at]
        for name, value in vars(rows).items()
    }
    return LoggedRows(**columns)


def _floats(batch: Any, name: str) -> Floats:
    """Return a column of numbers (n,), NaN where there is none."""
    return np.asarray(batch.column(name).to_numpy(zero_copy_only=False), dtype=np.float64)


def _check_propensities(batch: Any) -> None:
    if "propensity" not in batch.schema.names:
        return
    gone = batch.column("propensity").is_null().to_numpy(zero_copy_only=False)
    if gone.any():
        rule = "off-policy evaluation needs the propensity of every row"
        remedy = "log it with every decision, or estimate it (--propensity estimate)"
        raise InputError("propensity", f"nothing at row {int(np.argmax(gone))}", rule, remedy)


def _check_probabilities(batch: Any) -> None:
    """Refuse rows of probabilities that do not sum to one."""
    if "probabilities" not in batch.schema.names:
        return
    lengths, owners, items = listed_items(batch.column("probabilities"))
    totals = np.bincount(owners, items.to_numpy(zero_copy_only=False), len(lengths))
    wrong = (lengths > 0) & ~(np.abs(totals - 1) <= TOLERANCE)
    if wrong.any():
        row = int(np.argmax(wrong))
        rule = "the probabilities of a row sum to one"
        raise InputError(
            "probabilities", f"a sum of {totals[row]:.6g} at row {row}", rule, "log all probabilities of the row"
        )


def _check_slates(batch: Any) -> None:
    """Refuse a decision that fills several positions: its rewards depend on each other."""
    if not {"decision_id", "position"} <= set(batch.schema.names):
        return
    ids = batch.column("decision_id").drop_null()
    if len(ids) > len(ids.unique()):
        rule = "evaluation takes one action per decision, and here a decision fills several positions (a slate)"
        remedy = "keep one position of each decision, or drop decision_id if the rows are separate decisions"
        raise InputError("log", f"{len(ids) - len(ids.unique())} repeated decision_ids", rule, remedy)


def refuse_without_exploration(most: float, least: float, actions: Sequence[Hashable]) -> None:
    """Refuse a log whose propensities, from ``least`` to ``most``, are all 1."""
    if len(actions) > 1 and least >= 1 - LEAST_EXPLORATION and most <= 1 + 1e-9:
        rule = f"a log without exploration over {quoted(sorted(actions, key=str))} says nothing about other policies"
        remedy = "decide with a floor from now on, e.g. floor=0.05, or use --propensity estimate if chance was involved"
        raise InputError("propensity", "1 in every row", rule, remedy)

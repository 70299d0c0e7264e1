"""The catalogue beside a log: one row per action, with its label and its features."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from spuir.base.counting import counted
from spuir.errors import InputError, listed
from spuir.logs.columns import renaming
from spuir.tables.action_catalogue import LABEL
from spuir.tables.arrow import is_number, pa

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class ActionTable:
    """Actions with their features, each label once; made by :func:`action_table`.

    Parameters
    ----------
    table
        The labels in a column ``action``, in the order in which they first appear, and a column for each feature.
    source
        What messages call the place it comes from.
    repeated
        Rows whose label has a later row, which counts.
    conflicts
        How many labels have rows that differ, by feature.
    unnamed
        Rows without a label, which are left out.
    varying
        Features that differ between the decisions of one action; they are columns of the log, and none of this table.
    given
        Whether it was passed with the log, or found in its events.
    """

    table: "pa.Table" = field(repr=False)
    source: str = "table of actions"
    repeated: int = 0
    conflicts: Mapping[str, int] = field(default_factory=dict[str, int])
    unnamed: int = 0
    varying: tuple[str, ...] = ()
    given: bool = True

    @property
    def labels(self) -> list[Hashable]:
        """The labels."""
        return self.table[LABEL].to_pylist()

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features."""
        return tuple(name for name in self.table.column_names if name != LABEL)

    def to_frame(self) -> "pd.DataFrame":
        """Return the features as a data frame with the labels as its index, as :class:`spuir.Bandit` takes it."""
        return self.table.to_pandas().set_index(LABEL)

    def notices(self) -> list[str]:
        """Return sentences about what was left out or overruled."""
        found: list[str] = []
        if self.conflicts:
            parts = ", ".join(f"{name} ({counted(count, 'label')})" for name, count in list(self.conflicts.items())[:5])
            found.append(
                f"{self.source} lists labels more than once with different values; the last one counts: {parts}."
            )
        elif self.repeated:
            found.append(f"{self.source} lists labels more than once, in {counted(self.repeated, 'repeated row')}.")
        return found

    def check(self) -> "ActionTable":
        """Return this table if it can be learned from; refuse rows without a label, and a table without features."""
        if self.unnamed:
            rule, remedy = "every row of a catalogue names its action", "fill or drop these rows"
            raise InputError(self.source, counted(self.unnamed, "row", "without a label"), rule, remedy)
        if not self.table.num_rows:
            raise InputError(self.source, "no rows", "a catalogue has at least one action", "check the file")
        if not self.features:
            rule, remedy = "a catalogue describes its actions", "add a column, or pass the labels alone"
            raise InputError(self.source, "no column of features", rule, remedy)
        return self

    def labelled_like(self, kind: "pa.DataType") -> "ActionTable":
        """Return the table with labels of the type that a log's actions have: whole numbers or texts."""
        labels = self.table[LABEL].combine_chunks()
        if labels.type.equals(kind):
            return self
        try:
            cast = pa.array([int(one) for one in labels.to_pylist()], kind) if is_number(kind) else labels.cast(kind)
        except (ValueError, TypeError, OverflowError, pa.ArrowInvalid):
            bad = next(one for one in labels.to_pylist() if not str(one).lstrip("-").isdigit())
            rule, remedy = "the actions of the log are whole numbers", "write the labels in one way in both"
            raise InputError(self.source, f"the label {bad!r}", rule, remedy) from None
        return replace(self, table=self.table.set_column(0, LABEL, cast))

    def check_labels(self, labels: Sequence[Hashable]) -> None:
        """Refuse labels of a log that this catalogue does not have."""
        known = set(self.labels)
        missing = [label for label in labels if label not in known]
        if missing:
            more = f" and {counted(len(missing) - 1, 'other')}" if len(missing) > 1 else ""
            rule = f"{self.source} has no row for it, and each action of the log needs its features"
            raise InputError("action", f"{missing[0]!r}{more}", rule, "add it to the catalogue, or drop its rows")


def action_table(source: Any, rename: Mapping[str, str | None] | None = None, **opening: Any) -> ActionTable:
    """Read a catalogue of actions.

    Parameters
    ----------
    source
        A path, a DataFrame (the labels in a column ``action`` or in its index), an Arrow table, a dict of columns, or a
        dict of features by label.
    rename, **opening
        As :func:`spuir.logs.open_log` takes them.
    """
    from spuir.logs.open import open_log

    if isinstance(source, ActionTable):
        return source
    log = open_log(_with_labels(source, rename or {}), rename=rename, kind="actions", **opening)
    name = log.parts[0].source if log.parts else "table of actions"
    return unique_labels(log.table(), name.replace("table", "table of actions") if name == "table" else name)


def _with_labels(source: Any, rename: Mapping[str, str | None]) -> Any:
    """Return a source with its labels in a column: the index of a data frame, or the keys of a dict of dicts."""
    if isinstance(source, Mapping) and source and all(isinstance(one, Mapping) for one in source.values()):
        return [{LABEL: label, **features} for label, features in source.items()]
    if not hasattr(source, "reset_index"):
        return source
    frame: Any = source
    if LABEL in [rename.get(name, name) for name in frame.columns]:
        return frame
    if type(frame.index).__name__ == "RangeIndex":  # no one named it: labels 0, 1, 2… would be a guess
        rule = "its labels are in a column 'action', or are its index"
        remedy = f"set the index, or say which column it is: {renaming('…', LABEL, 'actions')}"
        raise InputError("actions", f"columns {listed(list(frame.columns))}", rule, remedy)
    return frame.rename_axis(LABEL).reset_index()


def unique_labels(table: "pa.Table", source: str) -> ActionTable:
    """Return a table with each label once; the last row of a label counts, and conflicts are counted by feature."""
    labels = table[LABEL].combine_chunks()
    named = labels.is_valid()
    unnamed = labels.null_count
    if unnamed:
        table, labels = table.filter(named), labels.filter(named)
    coded = labels.dictionary_encode()
    codes = coded.indices.to_numpy(zero_copy_only=False)
    last = np.zeros(len(coded.dictionary), np.int64)
    last[codes] = np.arange(len(codes))
    repeated = len(codes) - len(last)
    conflicts = _conflicts(table, codes, last) if repeated else {}
    kept = table.take(pa.array(last)) if repeated else table
    order = [LABEL, *(name for name in kept.column_names if name != LABEL)]
    return ActionTable(kept.select(order), source, repeated, conflicts, unnamed)


def _conflicts(table: "pa.Table", codes: Any, last: Any) -> dict[str, int]:
    """Return how many labels have rows that differ from their last one, by feature."""
    found: dict[str, int] = {}
    for name in table.column_names:
        values = table[name].to_pylist()
        differing = {int(code) for row, code in enumerate(codes) if not _same(values[row], values[last[code]])}
        if differing and name != LABEL:
            found[name] = len(differing)
    return found


def _same(one: Any, other: Any) -> bool:
    return one == other or (one != one and other != other)  # noqa: PLR0124 - true of NaN

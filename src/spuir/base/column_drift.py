"""How far the values of raw columns have drifted from the sample that the encoder was learned on."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spuir.base.data_frame import data_frame
from spuir.errors import InputError

NOTABLE_SHARE, NOTABLE_ROWS = 0.1, 100
"""A column has drifted if this share of at least so many values is unlike the sample, beyond what is usual there."""
STANDARD_ERRORS = 4
"""How many standard errors of the difference the share must be above the usual one too."""
DRIFT_KINDS = ("missing", "unseen", "outside")
_MEANINGS = ("are missing", "are levels without a feature", "are outside the range")


@dataclass(frozen=True, kw_only=True, eq=False)
class Drift:
    """How many values of each raw column are unlike the sample that the encoder was learned on.

    Parameters
    ----------
    rows
        The number of rows n that were counted.
    columns
        The C columns of the encoder; dotted names inside objects.
    counts
        (C, 3) rows whose value is missing; is a level without a feature, or has an item without one; is outside the
        range of the sample.
    usual
        (C, 3) shares of the same in the sample.
    sample
        The number of rows of the sample.

    Examples
    --------
    >>> encoder = spuir.Encoder.fit({"age": [31, 58, 40], "device": ["phone", "tv", "phone"]})
    >>> encoder.drift({"age": [35, 99, None, 41], "device": ["tv", "watch", "phone", "watch"]}).to_frame()
       column  missing  unseen  outside  drifted
    0     age        1       0        1      0.5
    1  device        0       2        0      0.5
    """

    rows: int
    columns: tuple[str, ...]
    counts: NDArray[np.int64]
    usual: NDArray[np.float64]
    sample: int

    def __post_init__(self) -> None:
        if not self.counts.shape == self.usual.shape == (len(self.columns), len(DRIFT_KINDS)):
            rule = f"{len(self.columns)} columns have {len(DRIFT_KINDS)} counts each"
            raise InputError("drift", f"counts of shape {self.counts.shape}", rule, "count again")

    def __add__(self, other: "Drift | None") -> "Drift":
        """Return the counts of the rows of both; with another encoder, counting starts again."""
        if other is None:
            return self
        if other.columns != self.columns:
            return other
        return replace(other, rows=self.rows + other.rows, counts=self.counts + other.counts)

    __radd__ = __add__

    @property
    def _excess(self) -> NDArray[np.float64]:
        """Shares (C, 3) above the usual ones."""
        return np.maximum(self.counts / max(self.rows, 1) - self.usual, 0.0) if self.rows else 0.0 * self.usual

    @property
    def shares(self) -> dict[str, float]:
        """The share of drifted values of each column: beyond the shares that are usual in the sample."""
        return dict(zip(self.columns, self._drifted, strict=True))

    @property
    def _drifted(self) -> list[float]:
        return self._excess.sum(axis=1).tolist()

    def notable(self) -> Iterator[tuple[str, str]]:
        """Yield each column that has drifted by more than chance, with a clause that says how.

        More than 10 % of at least 100 values are unlike the sample, beyond the usual share, and the difference is
        more than four of its standard errors.
        """
        if self.rows < NOTABLE_ROWS:
            return
        # Two cases of each outcome are added, so that a small sample without a case does not count as certain.
        likely = (self.usual.clip(0, 1) * self.sample + 2) / (self.sample + 4)
        errors = np.sqrt(likely * (1 - likely) * (1 / self.rows + 1 / max(self.sample, 1)))
        large = self._excess > np.maximum(NOTABLE_SHARE, STANDARD_ERRORS * errors)
        for at in np.flatnonzero(large.any(axis=1)).tolist():
            found = [
                f"{self.counts[at, kind] / self.rows:.0%} of the values {_MEANINGS[kind]} "
                f"({self.usual[at, kind]:.0%} in the sample)"
                for kind in np.flatnonzero(large[at])
            ]
            yield self.columns[at], " and ".join(found)

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as JSON-ready data: the rows, and the columns with at least one drifted value."""
        lines = zip(self.columns, self.counts.tolist(), self._drifted, strict=True)
        columns = {name: dict(zip(DRIFT_KINDS, line, strict=True)) | {"drifted": share} for name, line, share in lines}
        return {"rows": self.rows, "columns": {name: line for name, line in columns.items() if line["drifted"]}}

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per column: counts, and the share of drifted values."""
        table = {"column": list(self.columns), **dict(zip(DRIFT_KINDS, self.counts.T, strict=True))}
        return data_frame({**table, "drifted": self._drifted}, "to_frame", index=range(len(self.columns)))

    def __repr__(self) -> str:
        """Show the rows, and the columns with drifted values."""
        shown = "".join(f", {name!r}: {share:.1%}" for name, share in self.shares.items() if share)
        return f"Drift({self.rows:,} rows{shown})"

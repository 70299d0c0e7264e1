"""What the encoder saw of each column in its sample: what later rows are compared with to count drift."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from spuir.tables.column_encoders import FlagEncoder, NumberEncoder, Seen, TimeEncoder, count
from spuir.tables.raw_columns import Location, RawColumn


@dataclass(frozen=True, kw_only=True)
class ColumnSample:
    """One column in the sample.

    ``missing`` and ``unseen`` are the shares of missing values and of levels without a feature, ``low`` and ``high``
    the range of numbers (of all numbers of vectors; a time has no ``high``, since time moves on), and ``constant`` says
    whether all values were the same.
    """

    missing: float
    unseen: float
    low: float | None
    high: float | None
    constant: bool

    @classmethod
    def learn(cls, part: Any, column: RawColumn) -> Self:
        """Return what a column encoder saw in the rows that it learned from."""
        rows, plain = len(column), isinstance(part, NumberEncoder | FlagEncoder)
        features = np.zeros((0 if plain else rows, len(part.names)))
        if plain:
            values = part.values(column, Location(part.column))
            seen = Seen(count(column.missing), numbers=None if part.wanted == "flag" else values)
        else:
            seen = part.write(column, features, Location(part.column))
        low = high = None
        if seen.numbers is not None and seen.missing < rows:
            low = float(np.nanmin(seen.numbers))
            high = None if isinstance(part, TimeEncoder) else float(np.nanmax(seen.numbers))
        if column.items is None:
            same = bool(column.values.min() == column.values.max())
        else:
            same = bool((features == features[0]).all()) and part.wanted == "list"
        constant = same and rows > 1 and not seen.missing
        return cls(missing=seen.missing / rows, unseen=seen.unseen / rows, low=low, high=high, constant=constant)

    def outside(self, numbers: NDArray[Any], extremes: tuple[Any, Any] | None = None) -> int:
        """Return how many rows (n,) or (n, L) have a number outside the range; a missing one is not.

        ``extremes`` are the smallest and the largest number, if known: if both are within the range, so are all others.
        """
        if self.low is None:
            return 0
        high = np.inf if self.high is None else self.high
        if extremes is not None and extremes[0] >= self.low and extremes[1] <= high:
            return 0
        beyond = (numbers < self.low) | (numbers > high)
        return count(beyond if beyond.ndim == 1 else beyond.any(axis=1))

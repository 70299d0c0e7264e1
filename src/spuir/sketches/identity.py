"""No sketch: every row is kept, so that the exact policies are the sketched ones with this map."""

from typing import final

import numpy as np
from numpy.typing import NDArray

from spuir.base.records import Codes
from spuir.errors import ShardError
from spuir.sketches.base import Sketch, Spread


@final
class IdentitySketch(Sketch):
    """Keep all rows."""

    def keeps(self, rows: int) -> bool:
        """Return True for any number of rows."""
        return True

    def spread(self, groups: Codes, n_groups: int, ids: NDArray[np.int64], key: int) -> Spread:
        """Refuse: rows that are kept are summed directly."""
        raise ShardError("identity sketch", "rows to compress", "it keeps every row", "sum the rows themselves")

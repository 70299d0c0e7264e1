"""Results as pandas data frames, where pandas is installed."""

from collections.abc import Mapping, Sequence
from typing import Any

from spuir.errors import MissingExtraError


def data_frame(columns: Mapping[str, Any] | Sequence[Any], what: str, instead: str = "") -> Any:
    """Return columns by name, or a list of rows, as a pandas DataFrame for the caller of ``what``."""
    try:
        import pandas
    except ImportError:
        remedy = 'run pip install "spuir[data]"' + (f", or use {instead}" if instead else "")
        raise MissingExtraError(what, "no pandas", "a data frame needs it", remedy) from None
    return pandas.DataFrame(columns)

"""Results as a pandas DataFrame, where pandas is installed."""

from importlib import import_module
from typing import Any

from spuir.errors import MissingExtraError


def data_frame(content: Any, subject: str, **options: Any) -> Any:
    """Return rows or columns as a pandas DataFrame; without pandas, say how to get it."""
    try:
        pandas = import_module("pandas")  # by name: the mathematics, which uses the records, stands on NumPy alone
    except ImportError:
        rule, remedy = "a data frame needs it", 'run pip install "spuir[data]"'
        raise MissingExtraError(subject, "no pandas", rule, remedy) from None
    return pandas.DataFrame(content, **options)

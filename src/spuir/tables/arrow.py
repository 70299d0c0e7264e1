"""Access to pyarrow and other optional libraries, and questions about Arrow types."""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from spuir.errors import MissingExtraError


class OptionalModule:
    """A module of an optional library, imported when it is first used.

    Parameters
    ----------
    name
        What it is called in an import.
    rule
        What it is needed for, said with the command that installs it where it is missing.
    """

    def __init__(self, name: str, rule: str) -> None:
        self._name, self._rule = name, rule

    def _load(self) -> ModuleType:
        """Return the module itself."""
        try:
            return import_module(self._name)
        except ImportError:
            library = self._name.partition(".")[0]
            raise MissingExtraError("logs", f"no {library}", self._rule, 'run pip install "spuir[data]"') from None

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(self._load(), attribute)
        setattr(self, attribute, found)  # the next use finds it at once
        return found


_RULE = "logs are read and joined as Arrow tables"
pc: Any = OptionalModule("pyarrow.compute", _RULE)
if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = OptionalModule("pyarrow", _RULE)


def arrow() -> ModuleType:
    """Return the module pyarrow, or refuse with the command that installs it."""
    return OptionalModule("pyarrow", _RULE)._load()


def plain_type(kind: Any) -> Any:
    """Return an Arrow type whatever its storage: dictionaries as their values, every text as ``string``."""
    types = pa.types
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(plain_type(kind.value_type))
    return kind


def is_number(kind: Any) -> bool:
    """Return whether an Arrow type holds integers, floats or decimals."""
    types = pa.types
    return types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)


def is_date(kind: Any) -> bool:
    """Return whether an Arrow type holds dates or timestamps."""
    types = pa.types
    return types.is_timestamp(kind) or types.is_date(kind)

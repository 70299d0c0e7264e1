"""Access to pyarrow, which is optional, and questions about Arrow types."""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from spuir.errors import MissingExtraError


def arrow() -> ModuleType:
    """Return the module pyarrow, or refuse with the command that installs it."""
    try:
        import pyarrow
    except ImportError:
        rule, remedy = "logs are read and joined as Arrow tables", 'run pip install "spuir[data]"'
        raise MissingExtraError("logs", "no pyarrow", rule, remedy) from None
    return pyarrow


def compute() -> Any:
    """Return the module pyarrow.compute."""
    arrow()
    import pyarrow.compute

    return pyarrow.compute


class _ArrowModule:
    """A module of pyarrow that is imported when it is first used: a module that names it needs no pyarrow."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        arrow()
        found = getattr(import_module(self._name), attribute)
        setattr(self, attribute, found)  # the next use finds it at once
        return found


pc: Any = _ArrowModule("pyarrow.compute")
if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = _ArrowModule("pyarrow")


def plain_type(kind: Any) -> Any:
    """Return an Arrow type whatever its storage: dictionaries as their values, every text as ``string``."""
    pa = arrow()
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
    types = arrow().types
    return types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)


def is_date(kind: Any) -> bool:
    """Return whether an Arrow type holds dates or timestamps."""
    types = arrow().types
    return types.is_timestamp(kind) or types.is_date(kind)

"""Tables of named members that are imported on first use: ``"name": "module:Target"``.

A family (policies, sketches, environments, …) has one :class:`Registry`. An unknown name is refused with the nearest
registered one.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from spuir.errors import ParameterError, UnknownNameError, did_you_mean


class Registry:
    """The members of one family by name, in the order of registration."""

    def __init__(self, kind: str, table: Mapping[str, str]) -> None:
        self.kind = kind
        self._table = dict(table)

    def names(self) -> list[str]:
        """Return the registered names."""
        return list(self._table)

    def __contains__(self, name: object) -> bool:
        """Return whether ``name`` is registered."""
        return name in self._table

    def get(self, name: str) -> Any:
        """Import and return the member called ``name``."""
        entry = self._table.get(str(name))
        if entry is None:
            rule = f"no {self.kind} has that name"
            raise UnknownNameError(self.kind, repr(name), rule, did_you_mean(name, self._table))
        module, _, target = entry.partition(":")
        return getattr(import_module(module), target)

    def register(self, name: str, target: str) -> None:
        """Add a member, given as ``"module:Target"``. A name that another member has is refused."""
        if name in self._table and self._table[name] != target:
            rule = "a registered name is never reused"
            raise ParameterError(f"{self.kind} name", repr(name), rule, "choose another name")
        if ":" not in target:
            rule = 'a target reads "module:Target"'
            raise ParameterError("target", repr(target), rule, "write the module before a colon")
        self._table[name] = target

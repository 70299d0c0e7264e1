"""Tables of named members that are imported on first use: ``"name": "module:Target"``.

A family (policies, sketches, environments, …) has one :class:`Registry`. An unknown name is refused with the nearest
registered one. Installed packages may add members to a family by entry points of its group.
"""

from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import Any

from spuir.errors import ParameterError, UnknownNameError, did_you_mean


class Registry:
    """The members of one family by name, in the order of registration."""

    def __init__(self, kind: str, table: Mapping[str, str], group: str | None = None) -> None:
        self.kind = kind
        self._table = dict(table)
        self._group = group

    @cached_property
    def _installed(self) -> dict[str, str]:
        """The members that installed packages add; a name of our own is never replaced."""
        if not self._group:
            return {}
        from importlib import metadata  # slow to import, and needed for unknown names and lists only

        found = metadata.entry_points(group=self._group)
        return {one.name: one.value for one in found if one.name not in self._table}

    def names(self) -> list[str]:
        """Return the registered names, those of installed packages last."""
        return [*self._table, *self._installed]

    def __contains__(self, name: object) -> bool:
        """Return whether ``name`` is registered."""
        return name in self._table or name in self._installed

    def get(self, name: str) -> Any:
        """Import and return the member called ``name``."""
        entry = self._table.get(str(name)) or self._installed.get(str(name))
        if entry is None:
            rule = f"no {self.kind} has that name"
            raise UnknownNameError(self.kind, repr(name), rule, did_you_mean(name, self.names()))
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

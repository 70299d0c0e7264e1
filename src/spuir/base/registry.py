"""Lazy tables of named members: ``"name": "module:Target"``. Knows no algorithm.

A family (policies, sketches, environments, …) keeps one :class:`Registry`. Nothing is imported until a
name is asked for; a wrong name is answered with the nearest right one.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from spuir.errors import ParameterError, UnknownNameError


class Registry:
    """The members of one family, by name, in the order in which they were listed."""

    def __init__(self, kind: str, table: Mapping[str, str]) -> None:
        self.kind = kind
        self._table = dict(table)

    def names(self) -> list[str]:
        """Return the registered names."""
        return list(self._table)

    def __contains__(self, name: object) -> bool:
        """Tell whether ``name`` is registered."""
        return name in self._table

    def get(self, name: str) -> Any:
        """Import and return the member called ``name``."""
        found = self._table.get(str(name))
        if found is None:
            near = get_close_matches(str(name).lower(), self._table, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"the names are {', '.join(self._table)}"
            raise UnknownNameError(self.kind, repr(name), f"no {self.kind} has that name", hint)
        module, _, target = found.partition(":")
        return getattr(import_module(module), target)

    def register(self, name: str, target: str) -> None:
        """Add a member from outside; ``target`` is ``"module:Target"``. A taken name is refused."""
        if name in self._table and self._table[name] != target:
            rule = "a registered name is never reused"
            raise ParameterError(f"{self.kind} name", repr(name), rule, "choose another name")
        if ":" not in target:
            rule = 'a target reads "module:Target"'
            raise ParameterError("target", repr(target), rule, "write the module before a colon")
        self._table[name] = target

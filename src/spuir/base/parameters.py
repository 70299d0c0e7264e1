"""Parameters as data: a default, a meaning and a rule that one checker phrases every refusal from.

A policy, an environment or a feature map is a frozen dataclass whose fields are made by :func:`parameter`.
:func:`check` tests the values of such an object, :func:`check_names` the names a caller gave.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any

import numpy as np

from spuir.errors import ParameterError


@dataclass(frozen=True)
class Rule:
    """What a parameter may be: a clause for people and a test for values."""

    clause: str
    test: Callable[[Any], bool]


LARGEST = float(np.finfo(np.float64).max)
_NUMBERS: tuple[Any, ...] = (int, float, np.integer, np.floating)


def _number(value: Any) -> bool:
    if not isinstance(value, _NUMBERS) or isinstance(value, bool):
        return False
    # An integer of a thousand digits is finite, but no float; isfinite cannot hold it.
    return bool(-np.inf < value < np.inf) and not (isinstance(value, int) and abs(value) > LARGEST)


def _integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


NUMBER = Rule("a finite number", _number)
NON_NEGATIVE = Rule("a finite number ≥ 0", lambda v: _number(v) and v >= 0)
POSITIVE = Rule("a finite number > 0", lambda v: _number(v) and v > 0)
UNIT = Rule("a number in [0, 1]", lambda v: _number(v) and 0 <= v <= 1)
COUNT = Rule("an integer ≥ 1", lambda v: _integer(v) and v >= 1)
SEED = Rule("an integer ≥ 0", lambda v: _integer(v) and v >= 0)
FLAG = Rule("True or False", lambda v: isinstance(v, (bool, np.bool_)))
TEXT = Rule("a text", lambda v: isinstance(v, str))


def optional(rule: Rule) -> Rule:
    """Return ``rule`` with None allowed."""
    return Rule(f"None or {rule.clause}", lambda v: v is None or rule.test(v))


def one_of(*names: str) -> Rule:
    """Return the rule that a value is one of these texts."""
    return Rule("one of " + ", ".join(repr(n) for n in names), lambda v: isinstance(v, str) and v in names)


def either(first: Rule, second: Rule) -> Rule:
    """Return the rule that one of two rules holds."""
    return Rule(f"{first.clause}, or {second.clause}", lambda v: first.test(v) or second.test(v))


def parameter(default: Any, doc: str, rule: Rule) -> Any:
    """Declare a hyper-parameter: default, meaning (with the paper's letter) and range."""
    return field(default=default, metadata={"doc": doc, "rule": rule})


def check(owner: Any, kind: str, name: str = "") -> None:
    """Refuse the first field of the dataclass ``owner`` (a policy called ``name``, say) that breaks its rule."""
    given = {item.name: getattr(owner, item.name) for item in fields(owner) if "rule" in item.metadata}
    check_fields(owner, given, {}, kind, name)


def check_fields(owner: Any, given: Mapping[str, Any], defaults: Mapping[str, Any], kind: str, name: str) -> None:
    """Refuse the first value ``given`` for a field of ``owner`` that breaks its rule.

    The remedy names the default, by ``defaults`` where it is there and else by the field.
    """
    for item in fields(owner):
        rule: Rule | None = item.metadata.get("rule")
        if rule is not None and item.name in given and not rule.test(value := given[item.name]):
            label = f"{item.name} of {kind} {name!r}" if name else item.name
            default = defaults.get(item.name, item.default)
            raise ParameterError(label, repr(value), f"it must be {rule.clause}", f"the default is {default!r}")


def parameters_of(owner: Any) -> dict[str, Any]:
    """Return the parameters of a dataclass, its registered name aside, as JSON-ready data."""
    values = {item.name: getattr(owner, item.name) for item in fields(owner) if item.init and item.name != "name"}
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}


def check_value(label: str, value: Any, rule: Rule, remedy: str) -> None:
    """Refuse one ``value`` that breaks ``rule``: for arguments that are no dataclass fields."""
    if not rule.test(value):
        raise ParameterError(label, repr(value), f"it must be {rule.clause}", remedy)


def check_names(given: Iterable[str], known: Iterable[str], kind: str, name: str) -> None:
    """Refuse the first given parameter name that is not known, and answer with the nearest that is."""
    names = list(known)
    for one in given:
        if one not in names:
            near = get_close_matches(one, names, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}" if near else f"the parameters are {', '.join(names)}"
            raise ParameterError(f"parameter of {name!r}", repr(one), f"the {kind} has no such parameter", hint)

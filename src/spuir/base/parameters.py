"""Parameters as data: each has a default, a meaning and a rule, and all errors about them read alike.

A policy, an environment or a feature map is a frozen dataclass whose fields are declared with :func:`parameter`.
:func:`check` tests the values of such an object, :func:`check_names` the names that a caller passed.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from spuir.errors import ParameterError, did_you_mean


@dataclass(frozen=True)
class Rule:
    """What a parameter may be: a clause for error messages and a test for values."""

    clause: str
    test: Callable[[Any], bool]


LARGEST = sys.float_info.max
# The rules import NumPy where they test a value, so that declaring parameters (for a help text) needs no NumPy.


def _number(value: Any) -> bool:
    import numpy as np

    if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, bool):
        return False
    # An integer of a thousand digits is finite but has no float, so isfinite would fail.
    return bool(-np.inf < value < np.inf) and not (isinstance(value, int) and abs(value) > LARGEST)


def _integer(value: Any) -> bool:
    import numpy as np

    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _flag(value: Any) -> bool:
    import numpy as np

    return isinstance(value, (bool, np.bool_))


NUMBER = Rule("a finite number", _number)
NON_NEGATIVE = Rule("a finite number ≥ 0", lambda v: _number(v) and v >= 0)
POSITIVE = Rule("a finite number > 0", lambda v: _number(v) and v > 0)
UNIT = Rule("a number in [0, 1]", lambda v: _number(v) and 0 <= v <= 1)
SHARE = Rule("a number in (0, 1]", lambda v: _number(v) and 0 < v <= 1)
INSIDE = Rule("a number in (0, 1)", lambda v: _number(v) and 0 < v < 1)
COUNT = Rule("an integer ≥ 1", lambda v: _integer(v) and v >= 1)
SEED = Rule("an integer ≥ 0", lambda v: _integer(v) and v >= 0)
FLAG = Rule("True or False", _flag)
TEXT = Rule("a text", lambda v: isinstance(v, str))


def optional(rule: Rule) -> Rule:
    """Return ``rule`` with None allowed."""
    return Rule(f"None or {rule.clause}", lambda v: v is None or rule.test(v))


def one_of(*names: str) -> Rule:
    """Return the rule that a value is one of these strings."""
    return Rule("one of " + ", ".join(repr(n) for n in names), lambda v: isinstance(v, str) and v in names)


def either(first: Rule, second: Rule) -> Rule:
    """Return the rule that one of two rules holds."""
    return Rule(f"{first.clause}, or {second.clause}", lambda v: first.test(v) or second.test(v))


def parameter(default: Any, doc: str, rule: Rule) -> Any:
    """Declare a parameter: its default, its meaning (with the paper's symbol) and its rule."""
    return field(default=default, metadata={"doc": doc, "rule": rule})


def check(owner: Any, kind: str, name: str = "") -> None:
    """Refuse the first field of the dataclass ``owner`` (e.g. a policy called ``name``) that breaks its rule."""
    given = {item.name: getattr(owner, item.name) for item in fields(owner) if "rule" in item.metadata}
    check_fields(owner, given, {}, kind, name)


def check_fields(owner: Any, given: Mapping[str, Any], defaults: Mapping[str, Any], kind: str, name: str) -> None:
    """Refuse the first value ``given`` for a field of ``owner`` that breaks its rule.

    The remedy names the default from ``defaults``, or else that of the field.
    """
    for item in fields(owner):
        rule: Rule | None = item.metadata.get("rule")
        if rule is not None and item.name in given and not rule.test(value := given[item.name]):
            label = f"{item.name} of {kind} {name!r}" if name else item.name
            default = defaults.get(item.name, item.default)
            raise ParameterError(label, repr(value), f"it must be {rule.clause}", f"the default is {default!r}")


def parameters_of(owner: Any) -> dict[str, Any]:
    """Return the values of the parameters of a dataclass, without its registered name, as plain Python values."""
    import numpy as np

    values = {name: getattr(owner, name) for name in parameter_names(owner)}
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}


def parameter_names(owner: Any) -> list[str]:
    """Return the names of the parameters of a dataclass, given as a class or an object."""
    return [item.name for item in fields(owner) if item.init and item.name != "name"]


def check_value(label: str, value: Any, rule: Rule, remedy: str) -> None:
    """Refuse a ``value`` that breaks ``rule``: for arguments that are not fields of a dataclass."""
    if not rule.test(value):
        raise ParameterError(label, repr(value), f"it must be {rule.clause}", remedy)


def check_names(given: Iterable[str], known: Iterable[str], kind: str, name: str) -> None:
    """Refuse the first given parameter name that is not known, and suggest the nearest known one."""
    names = list(known)
    for one in given:
        if one not in names:
            rule, remedy = f"the {kind} has no such parameter", did_you_mean(one, names, "parameters")
            raise ParameterError(f"parameter of {name!r}", repr(one), rule, remedy)

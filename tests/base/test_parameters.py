"""Rules, and the refusals phrased from them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from spuir.base import parameters as rules
from spuir.base.parameters import check, check_names, check_value, either, one_of, optional, parameter
from spuir.errors import ParameterError

HUGE = 10**400
ODD: tuple[Any, ...] = (None, "1", True, np.nan, np.inf, -np.inf, 1j, [1])


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (rules.NUMBER, (0, -1.5, np.float32(2), np.int64(3), 10**300), (*ODD, HUGE)),
        (rules.NON_NEGATIVE, (0, 0.0, 1.5), (*ODD, -1e-9, HUGE, -HUGE)),
        (rules.POSITIVE, (1e-300, 1), (*ODD, 0, -1)),
        (rules.UNIT, (0, 1, 0.5, np.float32(0.5)), (*ODD[:2], True, 1.0001, -0.1)),
        (rules.COUNT, (1, np.int32(7), HUGE), (*ODD, 0, 1.0, -3)),
        (rules.SEED, (0, np.uint8(7)), (*ODD, -1, 0.0)),
        (rules.FLAG, (True, False, np.True_), (0, 1, "true", None)),
        (rules.TEXT, ("", "a"), (None, 1, b"a")),
        (one_of("a", "b"), ("a",), ("c", None, ["a"])),
        (optional(rules.COUNT), (None, 1), (0, "none")),
        (either(rules.COUNT, one_of("auto")), (3, "auto"), ("car", 0, None)),
    ],
)
def test_rules(rule, good, bad):
    assert all(rule.test(value) for value in good)
    assert not any(rule.test(value) for value in bad)


@dataclass(frozen=True, kw_only=True)
class Thing:
    size: int = parameter(3, "how large", rules.COUNT)
    extra: Any = None


def test_the_refusal_names_value_rule_and_default():
    check(Thing(), "thing")
    with pytest.raises(
        ParameterError, match=r"^size of thing 'box': got 0, but it must be an integer ≥ 1; the default is 3\.$"
    ):
        check(Thing(size=0), "thing", "box")
    with pytest.raises(ParameterError, match=r"^size: got 'x'"):
        check(Thing(size="x"), "thing")  # pyright: ignore[reportArgumentType]


def test_a_single_value():
    check_value("seed", 3, rules.SEED, "count up")
    with pytest.raises(ParameterError, match="seed: got -3, but it must be an integer ≥ 0; count up"):
        check_value("seed", -3, rules.SEED, "count up")


def test_names():
    check_names(["alpha"], ["alpha", "ridge"], "policy", "puir")
    with pytest.raises(ParameterError, match=r"parameter of 'puir': got 'aplha'.*did you mean 'alpha'"):
        check_names(["ridge", "aplha"], ["alpha", "ridge"], "policy", "puir")
    with pytest.raises(ParameterError, match="the parameters are alpha, ridge"):
        check_names(["zzz"], ["alpha", "ridge"], "policy", "puir")

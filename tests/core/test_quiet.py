"""Arithmetic without warnings, in any number of threads, and nothing of it left behind."""

import threading
import warnings

import numpy as np
import pytest

from spuir.core.quiet import quietly


@quietly
def square(values: np.ndarray, *, times: float = 1.0) -> np.ndarray:
    """Return times · values²."""
    return times * values * values


def test_overflow_and_invalid_values_are_not_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isinf(square(np.array([1e200]))).all()
        assert np.isnan(square(np.array([np.inf]), times=0.0)).all()


def test_the_caller_warns_and_raises_as_before() -> None:
    before = np.geterr()
    square(np.array([1e200]))
    assert np.geterr() == before
    with np.errstate(over="raise"):
        square(np.array([1e200]))
        with pytest.raises(FloatingPointError):
            _ = np.array([1e200]) * np.array([1e200])


def test_other_warnings_and_errors_pass() -> None:
    @quietly
    def divide(by: np.ndarray) -> np.ndarray:
        return np.ones(1) / by

    @quietly
    def fail() -> None:
        raise LookupError("as it was")

    with pytest.warns(RuntimeWarning, match="divide"):
        divide(np.zeros(1))
    with pytest.raises(LookupError, match="as it was"):
        fail()


def test_it_nests_and_runs_in_many_threads_at_once() -> None:
    together, results = threading.Barrier(4), []

    @quietly
    def meet(value: float) -> float:
        together.wait(timeout=30)  # all four are inside
        return float(square(np.array([value]))[0])

    threads = [threading.Thread(target=lambda v=v: results.append(meet(v))) for v in (1.0, 2.0, 3.0, 1e200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sorted(results) == [1.0, 4.0, 9.0, np.inf]


def test_name_and_docstring_are_kept() -> None:
    assert square.__name__ == "square" and square.__doc__ == "Return times · values²."

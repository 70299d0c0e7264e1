"""Arithmetic without warnings: what is not finite is refused where it matters, in words that name the value.

NumPy keeps how it warns in a context variable. To run in a copy of a context that was made once is cheaper than
``np.errstate``, which makes its settings anew at every call.
"""

from collections.abc import Callable
from contextvars import Context
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np

Given = ParamSpec("Given")
Result = TypeVar("Result")

_SILENT = Context()
_SILENT.run(np.seterr, divide="warn", under="ignore", over="ignore", invalid="ignore")


def quietly(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Let a function overflow and be invalid without a warning."""

    @wraps(function)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        # A context can be entered once at a time; a copy costs next to nothing.
        return _SILENT.copy().run(function, *args, **kwargs)

    return run

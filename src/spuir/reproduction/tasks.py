"""A task and its result: one function call with JSON data, which the store finds again by its key."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np

from spuir.base.hashing import digest
from spuir.base.process_settings import one_blas_thread
from spuir.reproduction.workers import Watcher


@dataclass(frozen=True, kw_only=True)
class Task:
    """One function call.

    Parameters
    ----------
    function
        ``"module:name"`` of the function. Called with the arguments as keywords, it returns tidy rows.
    arguments
        JSON data. Tasks with the same function and arguments are the same task.
    alone
        Whether the task measures time. Such tasks run last, one at a time.
    """

    function: str
    arguments: Mapping[str, Any]
    alone: bool = False

    @classmethod
    def of(cls, function: Callable[..., Any], *, alone: bool = False, **arguments: Any) -> "Task":
        """Return the task that calls ``function``, which a module defines, with these arguments."""
        return cls(function=f"{function.__module__}:{function.__name__}", arguments=arguments, alone=alone)

    @classmethod
    def each(cls, function: Callable[..., Any], seeds: Iterable[int], **arguments: Any) -> "list[Task]":
        """Return one task per seed."""
        return [cls.of(function, seed=seed, **arguments) for seed in seeds]

    @cached_property
    def key(self) -> str:
        """Digest of the function and the arguments. The store finds finished work by it."""
        text = json.dumps([self.function, self.arguments], sort_keys=True, allow_nan=False)
        return digest(text, size=10)

    @property
    def label(self) -> str:
        """The call as a reader would write it, without empty arguments."""
        given = {name: value for name, value in self.arguments.items() if value not in (None, {}, [], "")}
        words = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in given.items())
        return f"{self.function.rpartition(':')[2]}({words})"

    def run(self, step: Watcher | None = None) -> list[dict[str, Any]]:
        """Call the function with one BLAS thread; return the rows exactly as a file of results gives them back."""
        module, _, name = self.function.partition(":")
        with one_blas_thread:
            rows = getattr(import_module(module), name)(**self.arguments)
        return json.loads(json.dumps(rows, default=_plain_number))


def _plain_number(value: Any) -> Any:
    """Return a NumPy number as a Python number."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a row holds a {type(value).__name__}, which is not JSON data")


@dataclass(frozen=True)
class Result:
    """What a finished task returned: its rows, and the seconds it took."""

    task: Task
    rows: Sequence[Mapping[str, Any]]
    seconds: float

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The task's arguments."""
        return self.task.arguments

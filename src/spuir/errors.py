"""All errors of spuir, and the hints for misspelled names.

Every message is one sentence: *subject: got value, but rule; remedy.* Readers, logs and tests can rely on its parts.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


class SpuirError(Exception):
    """The base of all errors that spuir raises on purpose.

    Parameters
    ----------
    subject
        What was examined: a parameter, an argument, a file.
    got
        The wrong value, as short as possible.
    rule
        What is allowed, as a clause: "every reward must be finite".
    remedy
        What the caller can do about it, as an imperative.
    """

    def __init__(self, subject: str, got: object, rule: str, remedy: str) -> None:
        self.subject, self.got, self.rule, self.remedy = subject, str(got), rule, remedy
        end = "" if remedy.endswith("?") else "."
        super().__init__(f"{subject}: got {self.got}, but {rule}; {remedy}{end}")

    def __str__(self) -> str:
        """Return the sentence; ``KeyError`` and its relatives would put it in quotes."""
        return str(self.args[0])

    def __reduce__(self) -> tuple[type, tuple[str, str, str, str]]:
        """Rebuild from the four parts, so that other processes receive the error unchanged."""
        return type(self), (self.subject, self.got, self.rule, self.remedy)


class ParameterError(SpuirError, ValueError):
    """A hyper-parameter or an option outside its range."""


class InputError(SpuirError, ValueError):
    """Contexts, actions, rewards or another array that cannot be used as given."""


class RepeatedEpisodeError(InputError):
    """An episode that the model has learned before, such as one of a job that ran twice."""


class UnknownNameError(SpuirError, LookupError):
    """A name that no registered member, action or column has."""


class NotFittedError(SpuirError, ValueError, AttributeError):
    """A result was requested that exists only after the first episode."""


class ShardError(SpuirError, ValueError):
    """Shards that cannot be collected, added or absorbed by this bandit."""


class NumericalError(SpuirError, ArithmeticError):
    """A computation whose result is not finite; the state is unchanged."""


class SnapshotError(SpuirError, ValueError):
    """A saved file that is damaged, malicious, of another kind, or written by a newer version."""


class SnapshotFileError(SnapshotError, OSError):
    """A snapshot that the file system could not read or write."""


class MissingSnapshotError(SnapshotFileError, FileNotFoundError):
    """A snapshot that does not exist."""


class MissingExtraError(SpuirError, ImportError):
    """An optional dependency that is not installed."""


def nearest(name: object, names: Iterable[str]) -> str | None:
    """Return the one of ``names`` that is spelled most like ``name``, whatever the case; None if none is similar."""
    by_lower = {known.lower(): known for known in names}
    near = get_close_matches(str(name).lower(), by_lower, n=1, cutoff=0.5)
    return by_lower[near[0]] if near else None


def did_you_mean(name: object, names: Iterable[str], kind: str = "names") -> str:
    """Return the remedy for an unknown ``name``: the nearest of ``names``, or all of them.

    >>> did_you_mean("alhpa", ["alpha", "beta"])
    "did you mean 'alpha'?"
    >>> did_you_mean("xyz", ["alpha", "beta"], "parameters")
    'the parameters are alpha, beta'
    """
    known = list(names)
    near = nearest(name, known)
    return f"the {kind} are {', '.join(known)}" if near is None else f"did you mean {near!r}?"


def listed(names: Sequence[object]) -> str:
    """Return names for a message, the first ten of many."""
    return ", ".join(map(str, names[:10])) + (" …" if len(names) > 10 else "") if names else "none"


def quoted(labels: Sequence[object]) -> str:
    """Return labels for a message as Python writes them, so that 1 and '1' differ; the first ten of many."""
    return listed(list(map(repr, labels)))


class ServiceError(SpuirError, RuntimeError):
    """A request to the decision service that was refused, or could not be carried out; nothing was recorded for it.

    Parameters
    ----------
    code
        One of :data:`spuir.service.commands.CODES`: stable, for programs.
    subject, got, rule, remedy
        As in every error.
    where
        The place in the request, as in ``decisions[3].context``; None if it is all of it.
    """

    def __init__(self, code: str, subject: str, got: object, rule: str, remedy: str, where: str | None = None) -> None:
        super().__init__(subject, got, rule, remedy)
        self.code, self.where = code, where

    def __reduce__(self) -> tuple[type, tuple[str | None, ...]]:  # type: ignore[override]
        """Rebuild from its parts, so that other processes receive the error unchanged."""
        return type(self), (self.code, self.subject, self.got, self.rule, self.remedy, self.where)


class InterceptWarning(UserWarning):
    """A policy without an intercept learns from rewards that do not average 0."""


class DriftWarning(UserWarning):
    """Many values of a raw column are unlike the sample that the encoder was learned on."""


class CatalogueWarning(UserWarning):
    """A catalogue is so large that the model of its actions was simplified."""

"""One family of refusals: what was looked at, what came, which rule it broke, what to do.

Every message is one sentence of the form *subject: got value, but rule; remedy.* so that a reader, a log
and a test can all rely on its three parts.
"""


class SpuirError(Exception):
    """A refusal by spuir.

    Parameters
    ----------
    subject
        What was examined: a parameter, an argument, a file.
    got
        The offending value, as short as it can be shown.
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
        """Return the sentence itself, also where a built-in base class would quote it."""
        return str(self.args[0])

    def __reduce__(self) -> tuple[type, tuple[str, str, str, str]]:
        """Rebuild from the four parts, so that the error crosses process boundaries unchanged."""
        return type(self), (self.subject, self.got, self.rule, self.remedy)


class ParameterError(SpuirError, ValueError):
    """A hyper-parameter or an option outside its range."""


class InputError(SpuirError, ValueError):
    """Contexts, actions, rewards or another array that cannot be used as given."""


class UnknownNameError(SpuirError, LookupError):
    """A name that no registry line, action label or column carries."""


class NotFittedError(SpuirError, ValueError, AttributeError):
    """Something that exists only after the first episode was asked for before it."""


class ShardError(SpuirError, ValueError):
    """Partial sums that cannot be collected from, added to, or absorbed by this bandit."""


class NumericalError(SpuirError, ArithmeticError):
    """A computation that left the finite numbers; the state is as it was before."""


class SnapshotError(SpuirError, ValueError):
    """A saved file that is damaged, foreign, hostile, or written by a newer version."""


class SnapshotFileError(SnapshotError, OSError):
    """A snapshot that the file system did not let us read or write."""


class MissingSnapshotError(SnapshotFileError, FileNotFoundError):
    """A snapshot that is not where it was looked for."""


class MissingExtraError(SpuirError, ImportError):
    """An optional dependency that is not installed."""

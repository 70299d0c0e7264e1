"""The engine of the decision service: commands in, records in one durable transaction, answers out."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from spuir.errors import ServiceError
from spuir.service.commands import Answer, Command, DecisionStatus, ExperimentAnswer, VersionAnswer


class Engine:
    """A decision service without HTTP.

    Parameters
    ----------
    store
        Where the log is: ``spuir.service.stores.open_store("sqlite:///path")``.
    clock
        Seconds since 1970.
    learner
        ``InProcess()`` learns before ``execute`` returns (tests, replays), ``ChildProcess()`` beside serving.
    ids
        Returns 16 random hexadecimal digits for the id of a decision without one.

    Notes
    -----
    One thread at a time calls ``execute`` and ``tick``; reads are safe in any thread meanwhile.
    """

    def __init__(
        self,
        store: Any,
        *,
        clock: Callable[[], float] = ...,  # type: ignore[assignment]
        learner: Any = None,
        ids: Callable[[], str] = ...,  # type: ignore[assignment]
    ) -> None:
        raise NotImplementedError

    def execute(self, commands: Sequence[Command]) -> list[Answer | ServiceError]:
        """Carry out commands in order, in one transaction; what is refused writes nothing and changes no neighbour.

        A failing store gives every command that writes a ``storage_unavailable`` or ``storage_full`` error.
        """
        raise NotImplementedError

    def tick(self, now: float | None = None) -> float:
        """Close episodes that are due and record what was learned; return the seconds until the next call is due."""
        raise NotImplementedError

    def experiments(self) -> list[ExperimentAnswer]:
        """Return all experiments, by name."""
        raise NotImplementedError

    def experiment(self, name: str) -> ExperimentAnswer:
        """Return one experiment; raise ``unknown_experiment``."""
        raise NotImplementedError

    def decision(self, name: str, decision_id: str) -> DecisionStatus:
        """Return what became of a decision."""
        raise NotImplementedError

    def versions(self, name: str) -> list[VersionAnswer]:
        """Return the versions of an experiment, the cold one first."""
        raise NotImplementedError

    def model(self, name: str, version: int | None = None) -> bytes:
        """Return a version as a model file for :func:`spuir.load`; None = the published one."""
        raise NotImplementedError

    def log(self, name: str, settled: bool = False) -> Iterator[list[dict[str, Any]]]:
        """Yield blocks of canonical log rows in the order of decisions; ``settled`` = only those learned."""
        raise NotImplementedError

    def status(self) -> dict[str, Any]:
        """Return whether the store can write, and totals for health and metrics."""
        raise NotImplementedError

    def close(self) -> None:
        """Finish what was accepted and free everything."""
        raise NotImplementedError

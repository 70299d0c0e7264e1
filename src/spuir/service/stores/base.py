"""What a store of logs does: append records of several experiments in one durable transaction, and read them.

The protocol is small enough for an embedded database and for a server that several processes share. A transaction
locks the heads of the experiments that it asks for, so that places are given once, and what was known under an id is
decided inside it.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from spuir.errors import ServiceError
from spuir.service.log_records import CONTROL, COUNTED, DECISION, CloseFact, Record, broken, first_chain

TAIL = 1_000
"""So many of the last records of each experiment are verified whenever a store is opened."""
CHUNK = 2_000
"""Records are read in pieces of this many, so that memory is bounded."""


@dataclass
class Head:
    """The end of an experiment's log: the last place, time and chain digest, and running counts.

    ``facts`` are derived from the log (counts, row numbers used in each episode, the form of contexts) and kept here
    so that nobody has to count again.
    """

    name: str
    seq: int = 0
    time: int = 0
    chain: bytes = b""
    facts: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chain = self.chain or first_chain(self.name)


class LogReader(Protocol):
    """Reads of a log; places and times are bounds of what is returned, both included unless said otherwise."""

    def heads(self) -> list[Head]:
        """Return the heads of all experiments, by name."""
        ...

    def head(self, name: str) -> Head | None:
        """Return the head of one experiment."""
        ...

    def records(
        self, name: str, first: int, last: int, kinds: Sequence[str] | None = None, limit: int = CHUNK
    ) -> list[Record]:
        """Return the records from place ``first`` to ``last`` in order, of some kinds, about ``limit`` at most.

        Records of several decisions are taken apart into single ones, which have the same place, and none is cut.
        """
        ...

    def stored(
        self, name: str, first: int, last: int, kinds: Sequence[str] | None = None, limit: int = CHUNK
    ) -> list[Record]:
        """Return the same records as they were appended, at most ``limit``."""
        ...

    def find(self, name: str, kind: str, keys: Sequence[str]) -> dict[str, Record]:
        """Return the records of one kind that have these keys, by key."""
        ...

    def owned(self, name: str, ids: Sequence[str]) -> list[Record]:
        """Return rewards and activations of decisions by their ids, in order."""
        ...

    def settling(self, name: str, after: int, until: int) -> tuple[int, int, int]:
        """Return how many decisions settle after one time and until another, and the first and last of their places."""
        ...

    def settles(self, name: str, after: int, count: int) -> int | None:
        """Return when the ``count``-th decision after a time settles; None if there are fewer."""
        ...

    def of_unit(self, name: str, unit: str) -> list[Record]:
        """Return the decisions of a unit, in order."""
        ...

    def model(self, name: str, version: int) -> bytes | None:
        """Return the saved model of a version."""
        ...

    def models(self, name: str) -> list[int]:
        """Return the versions whose models are saved, the oldest first."""
        ...


class LogWriter(LogReader, Protocol):
    """One transaction: reads see what it wrote, and nothing is durable before it ends."""

    def lock(self, name: str) -> Head | None:
        """Return the head of an experiment, which nobody else appends to until the transaction ends."""
        ...

    def append(self, head: Head, records: Sequence[Record]) -> None:
        """Add records behind the head that was locked; ``head`` is the new one."""
        ...

    def erase(self, name: str, seqs: Iterable[int]) -> None:
        """Overwrite the payloads of records; their digests stay."""
        ...

    def put_model(self, name: str, version: int, content: bytes, piece: int = 0) -> None:
        """Save the model of a version; a large one in pieces from 0 on, each in a transaction of its own."""
        ...

    def drop_models(self, name: str, versions: Iterable[int], piece: int | None = None) -> None:
        """Delete saved models, or one piece of each; what is left of a model then counts as damaged."""
        ...


class LogStore(LogReader, Protocol):
    """A store of logs. Reads are safe in any thread, beside one transaction at a time."""

    url: str
    """What :func:`spuir.service.stores.open_store` takes, so that another process can read the same logs."""
    notes: list[str]
    """What was found and mended when the store was opened."""

    def transaction(self) -> AbstractContextManager[LogWriter]:
        """Begin a transaction; it is durable when the block has ended without an error.

        Raises
        ------
        ServiceError
            ``storage_unavailable`` or ``storage_full``: nothing of the transaction counts as recorded.
        """
        ...

    def available(self) -> bool:
        """Return whether the last transaction could be written."""
        ...

    def elect(self) -> bool:
        """Return whether this process is the one that closes episodes and learns."""
        ...

    def scrub(self) -> bool:
        """Make the bytes of erased payloads disappear from the files of the store; return whether that is done."""
        ...

    def backup(self, path: str) -> None:
        """Write a copy of everything to a new file, while others keep using it."""
        ...

    def check(self) -> list[str]:
        """Return what is wrong with the store itself, below the records."""
        ...

    def close(self) -> None:
        """Free everything."""
        ...


def store_failed(error: object) -> bool:
    """Return whether an error says that the store cannot be read or written, which may pass."""
    return isinstance(error, ServiceError) and error.code in ("storage_unavailable", "storage_full")


def in_pieces(
    store: LogReader, name: str, first: int, last: int, kinds: Sequence[str] | None = None
) -> Iterator[list[Record]]:
    """Yield the records from one place to another in order, a piece of them at a time, so that memory is bounded."""
    while first <= last:
        piece = store.records(name, first, last, kinds)
        if piece:
            yield piece
        if len(piece) < CHUNK:
            return
        first = piece[-1].seq + 1


def each_record(store: LogReader, name: str, first: int, last: int, kinds: Sequence[str]) -> Iterator[Record]:
    """Yield the records of some kinds from one place to another in order, which are read in pieces."""
    for piece in in_pieces(store, name, first, last, kinds):
        yield from piece


def mended_facts(store: LogReader, head: Head, lost: Record | None) -> dict[str, Any]:
    """Return the facts of a head after its last record was taken away, ``lost`` as far as it can be read.

    Row numbers stay used up.
    """
    facts = dict(head.facts)
    counts = dict(facts.get("counts", {}))
    counted = COUNTED.get(lost.kind) if lost is not None else None
    if lost is not None and counted is not None:
        counts[counted] = counts.get(counted, 0) - lost.rows
    closed = last = control = 0
    for record in each_record(store, head.name, 1, head.seq - 1, CONTROL):
        if record.kind == "close" and record.payload is not None:
            closed, last = closed + msgspec.json.decode(record.payload, type=CloseFact).rows, record.seq
        control = record.seq
    decisions = each_record(store, head.name, last + 1, head.seq - 1, (DECISION,))
    waiting = sum(record.due is None for record in decisions)
    return facts | {"counts": counts, "closed": closed, "open": waiting, "control": control}


def damage(store: LogReader, name: str, first: int = 1) -> list[tuple[int, str]]:
    """Return (place, what is wrong) of damaged records of an experiment from a place on."""
    head = store.head(name)
    if head is None:
        return []
    chain = first_chain(name)
    if first > 1:
        before = store.stored(name, first - 1, first - 1)
        chain = before[0].chain or b"" if before else b""
    found: list[tuple[int, str]] = []
    place = first
    while place <= head.seq:
        piece = store.stored(name, place, head.seq)
        if not piece:
            break
        found += broken(piece, chain, place)
        if not isinstance(piece[-1].seq, int) or piece[-1].seq < place:
            return found
        chain, place = piece[-1].chain, piece[-1].seq + 1
    if place <= head.seq:
        found.append((place, f"the log ends before its head, at {head.seq}"))
    elif chain != head.chain:
        found.append((head.seq, "the head does not match its chain digest"))
    return found

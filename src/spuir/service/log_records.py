"""Records, the facts of the log: their bytes, their digests, and the chain of digests.

The log of an experiment is one sequence of records. Each carries the digest of its payload, and a chain digest over
the chain before it, its place, time, kind, key and payload digest. A payload that was erased leaves its digest, so
that the chain can be verified without it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from spuir.errors import ServiceError
from spuir.service.settings import MADE, Features, Label

DECISION, REWARD, ACTIVATION = "decision", "reward", "activation"
DECISIONS = "decisions"
"""The kind of a record that holds several decisions of one request; reading takes it apart into single ones."""
COUNTED = {DECISION: "decisions", DECISIONS: "decisions", REWARD: "rewards", ACTIVATION: "activations"}
"""Kinds of traffic, each with the name of the running count that it is part of."""
CONTROL = ("create", "change", "action", "close", "version", "publish", "forget", "archive", "repair")
"""Kinds of records that say how an experiment is run; the others are its traffic."""
_SIZE = 16
_HELD = re.compile(rf"({MADE}[^.]*\.[^.]*)\.(0|[1-9a-f][0-9a-f]{{0,7}})")


class Record(NamedTuple):
    """One fact.

    Parameters
    ----------
    seq
        Its place in the log of its experiment, from 1.
    time
        Log time in microseconds since 1970; it never decreases along the log.
    kind, key
        What it is about; a key is used once per kind.
    payload
        JSON; None after it was erased. The numbers of a context are as the client wrote them.
    digest, chain
        Of the payload, and of everything up to here.
    owner
        The id of the decision that a reward or an activation belongs to.
    due
        When a decision settles; None = when the episode is closed.
    unit
        The unit of a decision.
    rows
        How many decisions it holds, if its kind is ``decisions``.
    row
        Which of them this is, from 0, after such a record was taken apart; its payload is that of all.
    """

    seq: int
    time: int
    kind: str
    key: str
    payload: bytes | None
    digest: bytes
    chain: bytes
    owner: str | None = None
    due: int | None = None
    unit: str | None = None
    rows: int = 1
    row: int | None = None

    @property
    def singles(self) -> "list[Record]":
        """The records of single decisions that it holds; of any other kind, itself."""
        if self.kind != DECISIONS:
            return [self]
        return [self.single(row) for row in range(self.rows)]

    def single(self, row: int) -> "Record":
        """Return the record of one of the decisions that it holds."""
        shared = (self.payload, self.digest, self.chain, None, self.due, None, self.rows)
        return Record(self.seq, self.time, DECISION, id_in(self.key, row), *shared, row)


def id_in(key: str, row: int) -> str:
    """Return the id of a decision in a record of several."""
    return f"{key}.{row:x}"


def ids_in(key: str, rows: int) -> list[str]:
    """Return the ids of all decisions in a record of several."""
    return [f"{key}.{row:x}" for row in range(rows)]


def place_in(decision_id: str) -> tuple[str, int] | None:
    """Return the key and the row that an id of a decision stands for if a record of several holds it; None if not."""
    found = _HELD.fullmatch(decision_id)
    return None if found is None else (found[1], int(found[2], 16))


class DecisionFact(msgspec.Struct, omit_defaults=True, gc=False):
    """The payload of a decision.

    ``probabilities`` are those of all actions in the order of their labels at that position. ``row`` is the number
    within ``episode`` by which the action was drawn, None = by the id. ``call`` is the place of the first decision of
    the call of ``Bandit.decide`` that it was part of. ``shadow`` is what the policy drew where the baseline was
    served; ``imported`` marks a decision that was taken elsewhere.
    """

    context: list[float] | dict[str, Any]
    action: Label
    propensity: float | None
    version: int
    episode: int
    call: int = 0
    row: int | None = None
    probabilities: list[float] | None = None
    eligible: list[Label] | None = None
    action_features: dict[str, dict[str, float]] | None = None
    defer: bool = False
    unit: str | None = None
    shadow: Label | None = None
    imported: bool = False
    time: int | None = None


def held_in(several: Mapping[str, Record], ids: Iterable[str]) -> dict[str, Record]:
    """Return single decisions by their ids, those that records of several hold; these are given by their keys."""
    found: dict[str, Record] = {}
    for one in ids:
        key, row = place_in(one) or ("", 0)
        if key in several and row < several[key].rows:
            found[one] = several[key].single(row)
    return found


class ContextRow(msgspec.Struct, gc=False):
    """A decision of a request that has nothing but a context."""

    context: list[float] | dict[str, Any]


class ContextRows(msgspec.Struct, gc=False):
    """The body of a request whose decisions have nothing but contexts."""

    decisions: list[ContextRow]


class DecisionsFact(msgspec.Struct, omit_defaults=True, gc=False):
    """The payload of several decisions of one request that have nothing but a context, in order.

    ``request`` is the body of the request as the client wrote it, or that of a part of it. ``row`` is the number of the
    first decision within ``episode``; ``probabilities`` are the different rows of probabilities, and ``shares`` says
    which of them each decision has (empty = the first). The rest is as in :class:`DecisionFact`.
    """

    request: ContextRows
    actions: list[Label]
    propensities: list[float]
    version: int
    episode: int
    call: int
    row: int
    probabilities: list[list[float]]
    shares: list[int] = []

    def single(self, row: int) -> DecisionFact:
        """Return the fact of one of the decisions."""
        return DecisionFact(
            self.request.decisions[row].context,
            self.actions[row],
            self.propensities[row],
            self.version,
            self.episode,
            self.call,
            self.row + row,
            self.probabilities[self.shares[row] if self.shares else 0],
        )


class RewardFact(msgspec.Struct, omit_defaults=True, gc=False):
    """The payload of a reward; ``time`` is the client's, in microseconds, which orders rewards of one decision."""

    decision_id: str
    reward: float
    time: int | None = None


class ActionFact(msgspec.Struct, omit_defaults=True):
    """The payload of a change of the actions: ``change`` is add, update or remove."""

    change: str
    label: Label
    like: Label | None = None
    ramp: float | None = None
    ramp_episodes: int = 0
    features: Features | None = None


class CloseFact(msgspec.Struct, omit_defaults=True):
    """The payload of a closed episode: its ``number`` from 1, and how many decisions it holds.

    It holds the decisions that settled after the time of the close before, up to its own, and those without a window
    between the places of the two. ``relearn`` says that everything is learned again, under another policy.
    """

    number: int
    rows: int
    previous_seq: int
    previous_time: int
    relearn: bool = False


class VersionFact(msgspec.Struct, omit_defaults=True):
    """The payload of a version.

    ``close`` is the number of the episode that it learned, None for a cold or an imported model; ``actions_at`` the
    place up to which changes of actions are in the model; ``read_at`` the place of the log's end when its rows were
    read; ``refused`` why it is not published by itself.
    """

    number: int
    parent: int | None
    close: int | None
    episode: int
    rows: int
    digest: str
    actions_at: int
    read_at: int
    refused: str | None = None
    value: float | None = None
    defaulted: int = 0
    not_activated: int = 0
    erased: int = 0
    content: bytes | None = None


class PublishFact(msgspec.Struct, omit_defaults=True):
    """The payload of a publication."""

    version: int
    previous: int


class ForgetFact(msgspec.Struct, omit_defaults=True):
    """The payload of an erasure: ranges of places whose decisions and rewards were erased, and why."""

    ranges: list[tuple[int, int]]
    reason: str = "unit"

    @classmethod
    def of(cls, seqs: Iterable[int], reason: str) -> "ForgetFact":
        """Return the payload of an erasure of single records."""
        ranges: list[tuple[int, int]] = []
        for seq in sorted(seqs):
            first = ranges.pop()[0] if ranges and ranges[-1][1] == seq - 1 else seq
            ranges.append((first, seq))
        return cls(ranges, reason)


_encoder = msgspec.json.Encoder(order="deterministic")
encode = _encoder.encode
"""Return the bytes of a payload, which are equal for equal content."""
_decode_decision = msgspec.json.Decoder(DecisionFact).decode
# The decisions of a record are read one after the other, and their payload is decoded once.
_decode_decisions = lru_cache(maxsize=8)(msgspec.json.Decoder(DecisionsFact).decode)
reward_fact = msgspec.json.Decoder(RewardFact).decode


def decision_fact(record: Record) -> DecisionFact:
    """Return what the record of a single decision says; its payload is not erased."""
    payload = record.payload or b""
    return _decode_decision(payload) if record.row is None else _decode_decisions(payload).single(record.row)


def version_fact(record: Record) -> VersionFact:
    """Return what the record of a version says."""
    return msgspec.json.decode(record.payload or b"{}", type=VersionFact)


def payload_digest(payload: bytes) -> bytes:
    """Return the digest of a payload."""
    return blake2b(payload, digest_size=_SIZE).digest()


def first_chain(name: str) -> bytes:
    """Return what the chain of an experiment begins with."""
    return blake2b(name.encode(), digest_size=_SIZE).digest()


def next_chain(chain: bytes, seq: int, time: int, kind: str, key: str, digest: bytes, rows: int = 1) -> bytes:
    """Return the chain digest of a record, given the chain digest of the record before."""
    size = "" if rows == 1 else f" {rows}"
    text = f"{seq} {time} {kind}{size} {key}".encode("utf-8", "surrogatepass")
    return blake2b(chain + digest + text, digest_size=_SIZE).digest()


def is_damaged(record: Record) -> bool:
    """Return whether the payload of a record is not what was appended; in a damaged file it may not even be bytes."""
    payload: Any = record.payload
    return payload is not None and (not isinstance(payload, bytes) or payload_digest(payload) != record.digest)


def check_record(name: str, record: Record) -> None:
    """Refuse a record whose payload is damaged."""
    if is_damaged(record):
        got, rule = f"record {record.seq:,} ({record.kind})", "a payload matches its digest"
        remedy = "run spuir serve --check, then --repair, or restore a backup"
        raise ServiceError("damaged", f"log {name!r}", got, rule, remedy)


def _whole(record: Record) -> bool:
    """Return whether the fields of a record are of their types, which a damaged file does not ensure."""
    texts, digests = (record.kind, record.key), (record.digest, record.chain)
    numbers = all(isinstance(one, int) for one in (record.seq, record.time, record.rows))
    return numbers and all(isinstance(one, str) for one in texts) and all(isinstance(one, bytes) for one in digests)


def broken(records: Iterable[Record], chain: bytes, first: int) -> Iterator[tuple[int, str]]:
    """Yield (place, what is wrong) for damaged records among consecutive ones from place ``first``.

    ``chain`` is the chain digest before them. After a break the stored chain is taken up, so that one damaged record
    is reported once.
    """
    expected = first
    for record in records:
        if not _whole(record):
            yield expected, "the record has a field that cannot be read"
            return
        while expected < record.seq:
            yield expected, "the record is missing"
            expected += 1
        if is_damaged(record):
            yield record.seq, "the payload does not match its digest"
        place = (record.seq, record.time, record.kind, record.key, record.digest, record.rows)
        if next_chain(chain, *place) != record.chain:
            yield record.seq, "the record does not match its chain digest"
        chain, expected = record.chain, record.seq + 1

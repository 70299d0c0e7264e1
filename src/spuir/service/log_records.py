"""Records, the facts of the log: their bytes, their digests, and the chain of digests.

The log of an experiment is one sequence of records. Each carries the digest of its payload, and a chain digest over
the chain before it, its place, time, kind, key and payload digest. A payload that was erased leaves its digest, so
that the chain can be verified without it.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from spuir.errors import ServiceError
from spuir.service.settings import Features, Label

DECISION, REWARD, ACTIVATION = "decision", "reward", "activation"
CONTROL = ("create", "change", "action", "close", "version", "publish", "forget", "archive", "repair")
"""Kinds of records that say how an experiment is run; the three others are its traffic."""
_SIZE = 16


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
decision_fact = msgspec.json.Decoder(DecisionFact).decode
reward_fact = msgspec.json.Decoder(RewardFact).decode


def payload_digest(payload: bytes) -> bytes:
    """Return the digest of a payload."""
    return blake2b(payload, digest_size=_SIZE).digest()


def first_chain(name: str) -> bytes:
    """Return what the chain of an experiment begins with."""
    return blake2b(name.encode(), digest_size=_SIZE).digest()


def next_chain(chain: bytes, seq: int, time: int, kind: str, key: str, digest: bytes) -> bytes:
    """Return the chain digest of a record after that of the record before."""
    text = f"{seq} {time} {kind} {key}".encode("utf-8", "surrogatepass")
    return blake2b(chain + digest + text, digest_size=_SIZE).digest()


def check_record(name: str, record: Record) -> None:
    """Refuse a record whose payload is damaged."""
    if record.payload is not None and payload_digest(record.payload) != record.digest:
        got, rule = f"record {record.seq:,} ({record.kind})", "a payload matches its digest"
        remedy = "run spuir serve --check, then --repair, or restore a backup"
        raise ServiceError("damaged", f"log {name!r}", got, rule, remedy)


def _whole(record: Record) -> bool:
    """Return whether the fields of a record are of their types, which a damaged file does not ensure."""
    texts, digests = (record.kind, record.key), (record.digest, record.chain)
    numbers = isinstance(record.seq, int) and isinstance(record.time, int)
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
        if record.payload is not None and payload_digest(record.payload) != record.digest:
            yield record.seq, "the payload does not match its digest"
        if next_chain(chain, record.seq, record.time, record.kind, record.key, record.digest) != record.chain:
            yield record.seq, "the record does not match its chain digest"
        chain, expected = record.chain, record.seq + 1

"""Routes of the traffic: decisions, their activation, their status, and rewards."""

from collections.abc import Sequence
from typing import Any

import msgspec

from spuir.errors import ServiceError
from spuir.service.api import shapes
from spuir.service.api.bodies import decision_keys, decode, reward_keys
from spuir.service.api.operations import Call, Operation, Reply
from spuir.service.commands import (
    Activate,
    ActivateAnswer,
    Decide,
    DecideMany,
    DecisionAnswer,
    DecisionsAnswer,
    DecisionStatus,
    Reward,
    RewardAnswer,
    RewardMany,
    RewardRow,
    RewardsAnswer,
)
from spuir.service.number_rows import read_numbers

MOST_BYTES = 26
"""Bytes per number up to which the numbers of a context are kept as they were sent: all digits, a comma, a space."""


async def decide(call: Call) -> DecisionAnswer | DecisionsAnswer:
    """Take one decision or several."""
    body, name = await call.body(), call.experiment
    counter = call.service.metrics.decisions
    if b'"decisions"' in body and (body.startswith(b'{"decisions"') or _has_key(body, "decisions")):
        rows, sent, request = _several(body)
        _check_rows(call, rows, "decisions")
        command = DecideMany(experiment=name, rows=rows, sent=sent, request=request, as_json=True)
        several: DecisionsAnswer = await call.execute(command)
        replayed = len([one for one in several.decisions if one.replayed])
        if replayed:
            counter.add(name, "replayed", by=replayed)
        counter.add(name, "recorded", by=len(rows) - replayed)
        return several
    row = decode(body, shapes.one_decision, decision_keys)
    sent = _sent([row], [shapes.one_sent.decode(body)])
    one: DecisionAnswer = await call.execute(Decide(experiment=name, row=row, sent=sent, as_json=True))
    counter.add(name, "replayed" if one.replayed else "recorded")
    return one


async def reward(call: Call) -> Reply | RewardsAnswer:
    """Record one reward or several."""
    body, name = await call.body(), call.experiment
    counter = call.service.metrics.rewards
    if b'"rewards"' in body and _has_key(body, "rewards"):
        rows = decode(body, shapes.several_rewards, _keys_of_rewards).rewards
        _check_rows(call, rows, "rewards")
        several: RewardsAnswer = await call.execute(RewardMany(experiment=name, rows=rows))
        for answer in several.rewards:
            counter.add(name, answer.status)
        return several
    row = decode(body, shapes.one_reward, reward_keys)
    one: RewardAnswer = await call.execute(Reward(experiment=name, row=row))
    counter.add(name, one.status)
    if one.status == "unknown":
        rule = "no decision has this id, so the reward was recorded and will never be learned"
        remedy = "send the id that the decision was answered with"
        raise ServiceError("unknown_decision", "decision_id", repr(row.decision_id), rule, remedy, "decision_id")
    if one.status == "forgotten":
        rule, remedy = "the unit of this decision was forgotten, and nothing was recorded", "drop the reward"
        raise ServiceError("forgotten", "decision_id", repr(row.decision_id), rule, remedy, "decision_id")
    return Reply(one, 202 if one.status in ("late", "early") else 200)


async def status(call: Call) -> DecisionStatus:
    """Say what became of a decision."""
    return await call.read(call.service.engine.decision, call.experiment, call.params["id"])


async def activate(call: Call) -> ActivateAnswer:
    """Let a deferred decision be learned."""
    return await call.execute(Activate(experiment=call.experiment, decision_id=call.params["id"]))


def _has_key(body: bytes, name: str) -> bool:
    """Tell whether a body is an object with this key at its top; one that cannot be read has it, and is refused."""
    try:
        content = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return True
    return name in content


def _several(body: bytes) -> tuple[Sequence[Any], list[msgspec.Raw] | None, msgspec.Raw | None]:
    """Return the decisions that a body asks for, and their contexts as they were sent or, if it has no more, itself."""
    numbers = read_numbers(body)
    if numbers is not None and len(body) <= MOST_BYTES * (len(numbers) + numbers.matrix.size):
        return numbers, None, msgspec.Raw(body)
    colons = body.count(b":")

    def keys(value: shapes.DecisionsBody) -> int:
        fewest = 1 + len(value.decisions)
        return fewest if colons == fewest else 1 + sum(map(decision_keys, value.decisions))

    rows: list[Any] = decode(body, shapes.several_decisions, keys, colons).decisions
    if colons == 1 + len(rows) and len(body) <= MOST_BYTES * sum(1 + len(row.context) for row in rows):
        return rows, None, msgspec.Raw(body)
    return rows, _sent(rows, shapes.several_sent.decode(body).decisions), None


def _sent(rows: list[Any], given: list[Any]) -> list[msgspec.Raw] | None:
    """Return contexts as they were sent, which spares writing them again; None unless all are compact numbers."""
    if rows and type(rows[0].context) is list:
        sent = [one.context for one in given]
        if max(map(len, sent)) <= MOST_BYTES * len(rows[0].context):
            return sent
    return None


def _check_rows(call: Call, rows: Sequence[Any], where: str) -> None:
    limit = call.service.config.max_rows
    if len(rows) > limit:
        remedy = "send several requests"
        raise ServiceError("too_large", where, f"{len(rows):,} rows", f"at most {limit:,} are taken", remedy, where)


def _keys_of_rewards(body: shapes.RewardsBody) -> int:
    return 1 + sum(map(reward_keys, body.rewards))


_ROOT = "/v1/experiments/{name}"
OPERATIONS = (
    Operation(
        method="POST",
        path=f"{_ROOT}/decisions",
        role="decide",
        summary="Decide for one context or several",
        doc="A decision with an `id` can be sent again: the same body gets the same answer with `replayed`, another "
        "body is refused with `conflict`. One without an `id` is taken anew whenever it is sent. Several decisions are "
        "taken in order, all of them or none.",
        handler=decide,
        body=(shapes.DecisionBody, shapes.DecisionsBody),
        example={"id": "d1", "context": [0.5, -1.0, 2.0], "unit": "u1", "defer": True},
        answers={200: DecisionAnswer | DecisionsAnswer},
        errors=(409, 410),
    ),
    Operation(
        method="POST",
        path=f"{_ROOT}/rewards",
        role="reward",
        summary="Report one reward or several",
        doc="A single reward is answered with 200 if it is joined or known already, and with 202 if it is recorded "
        "but late or early. A reward for a decision that does not exist is recorded too, and answered with 404. "
        "Of several rewards, each has its status in the answer.",
        handler=reward,
        body=(RewardRow, shapes.RewardsBody),
        example={"decision_id": "d1", "reward": 1.0, "id": "r1"},
        answers={200: RewardAnswer | RewardsAnswer, 202: RewardAnswer},
        errors=(409, 410),
    ),
    Operation(
        method="POST",
        path=f"{_ROOT}/decisions/{{id}}/activate",
        role="decide",
        summary="Activate a deferred decision",
        doc="Only activated decisions among the deferred ones are learned.",
        handler=activate,
        answers={200: ActivateAnswer},
        errors=(400, 409, 410),
    ),
    Operation(
        method="GET",
        path=f"{_ROOT}/decisions/{{id}}",
        role="read",
        summary="Read what became of a decision",
        handler=status,
        answers={200: DecisionStatus},
        errors=(400,),
    ),
)

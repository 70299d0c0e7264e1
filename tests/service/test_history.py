"""Many clients at once: what they were answered could have been answered one after the other, id by id.

Clients send decisions, rewards and reads with few ids, so that requests with the same id overlap. The history has when
each request was sent and answered. A checker then looks for answers that no order of the requests explains.
"""

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest

from spuir.service.clients.client import Client
from spuir.service.clients.load import HttpConnection
from tests.service.api.servers import ACTIONS, NUMBERS
from tests.service.processes import server_process

PATH = "/v1/experiments/shop"
ACCEPTED = ("joined", "early", "late", "unknown")


class Call(NamedTuple):
    """One request and its answer: ``key`` is the id that it is about, ``body`` which of two bodies was sent.

    ``answer`` has what the checker needs; what a decision says is one hash, so that a million answers fit in memory.
    """

    kind: str
    key: str
    body: int
    start: float
    end: float
    status: int
    answer: dict[str, Any]


def before(one: Call, other: Call) -> bool:
    """Tell whether a call was answered before another one was sent."""
    return one.end < other.start


# ---- the checker --------------------------------------------------------------------------------------------


def winner(calls: list[Call], first: Iterable[Call]) -> Call | None:
    """Return the call that recorded an id, after checking the others: one body wins, and nobody answers before it."""
    won = list(first)
    if not won:
        assert all(call.status >= 400 for call in calls), calls
        return None
    assert len(won) == 1, f"{won[0].key} was recorded {len(won)} times"
    for call in calls:
        assert not before(call, won[0]), f"{call} is an answer to what was not sent yet: {won[0]}"
        assert (call.status == 409) == (call.body != won[0].body), (call, won[0])
    return won[0]


def check_decision(calls: list[Call]) -> Call | None:
    """Check the calls that ask for one decision."""
    won = winner(calls, (call for call in calls if call.status == 200 and not call.answer["replayed"]))
    assert won is None or all(call.status == 409 or call.answer["said"] == won.answer["said"] for call in calls)
    return won


def check_reward(calls: list[Call], decided: Call | None) -> Call | None:
    """Check the calls that report one reward, against the call that recorded its decision."""
    won = winner(calls, (call for call in calls if call.answer.get("status") in ACCEPTED))
    if won is not None and won.answer["status"] == "joined":
        assert decided is not None and not before(won, decided)
    if won is not None and won.answer["status"] == "early" and decided is not None:
        assert not before(decided, won)
    return won


def check_read(read: Call, decided: Call | None, rewards: list[Call]) -> None:
    """Check that a read saw everything that was acknowledged before it, and nothing that was not sent yet."""
    if read.status == 404:
        assert decided is None or not before(decided, read), (read, decided)
        return
    assert decided is not None and not before(read, decided), (read, decided)
    least = sum(before(one, read) for one in rewards)
    most = sum(not before(read, one) for one in rewards)
    assert least <= read.answer["rewards"] <= most, (read, least, most)


def check_history(history: list[Call]) -> Counter[str]:
    """Check all calls, and return how many decisions and rewards were recorded."""
    decisions, rewards = defaultdict(list[Call]), defaultdict(list[Call])
    for call in history:
        if call.kind != "read":
            (decisions if call.kind == "decide" else rewards)[call.key].append(call)
    decided = {key: check_decision(calls) for key, calls in decisions.items()}
    recorded = defaultdict(list[Call])
    for key, calls in rewards.items():
        owner = key.partition("/")[0]
        won = check_reward(calls, decided.get(owner))
        if won is not None:
            recorded[owner].append(won)
    for call in history:
        if call.kind == "read":
            check_read(call, decided.get(call.key), recorded[call.key])
    return Counter(decisions=sum(one is not None for one in decided.values()), rewards=sum(map(len, recorded.values())))


def test_the_checker_finds_what_no_order_explains() -> None:
    answer = {"said": 1, "replayed": False}
    first = Call("decide", "a", 0, 0.0, 2.0, 200, answer)
    again = Call("decide", "a", 0, 1.0, 3.0, 200, {**answer, "replayed": True})
    assert check_history([first, again]) == {"decisions": 1, "rewards": 0}
    wrong = [
        [first, again._replace(answer=answer)],  # recorded twice
        [first, again._replace(answer={**again.answer, "said": 2})],  # another answer
        [first._replace(start=4.0, end=5.0), again],  # replayed before it was asked for
        [first, again._replace(body=1)],  # another body was taken for the same
        [first, Call("read", "a", 0, 3.0, 4.0, 404, {})],  # an acknowledged decision is not there
        [first, Call("read", "a", 0, 3.0, 4.0, 200, {"rewards": 1})],  # a reward that nobody sent
        [first, Call("reward", "a/0", 0, 3.0, 4.0, 200, {"status": "early"})],  # its decision was acknowledged before
    ]
    for history in wrong:
        with pytest.raises(AssertionError):
            check_history(history)


# ---- the clients --------------------------------------------------------------------------------------------


def plan(calls: int, seed: int) -> list[tuple[str, str, int]]:
    """Return what to send: (kind, key, body), with neighbours that often share an id."""
    rng = random.Random(seed)
    made: list[tuple[str, str, int]] = []
    while len(made) < calls:
        owner = f"d{rng.randrange(len(made) // 8 + 1, len(made) // 8 + 8)}"
        kind = rng.choices(["decide", "reward", "read"], [5, 3, 2])[0]
        key = f"{owner}/{rng.randrange(3)}" if kind == "reward" else owner
        made.append((kind, key, int(rng.random() < 0.1)))
    return made


async def send(connection: HttpConnection, kind: str, key: str, body: int) -> Call:
    """Send one call."""
    owner = key.partition("/")[0]
    requests: dict[str, tuple[str, str, Any]] = {
        "decide": ("POST", f"{PATH}/decisions", {"id": key, "context": [float(body), 0.5, 1.0]}),
        "reward": ("POST", f"{PATH}/rewards", {"decision_id": owner, "reward": float(body), "id": key}),
        "read": ("GET", f"{PATH}/decisions/{key}", None),
    }
    method, path, content = requests[kind]
    start = time.perf_counter()
    status, answer = await connection.send(method, path, b"" if content is None else msgspec.json.encode(content))
    end, said = time.perf_counter(), msgspec.json.decode(answer)
    kept = {name: said[name] for name in ("status", "rewards", "replayed") if name in said}
    if kind == "decide" and status == 200:
        kept["said"] = hash(str([said[name] for name in ("action", "propensity", "version", "probabilities")]))
    return Call(kind, key, body, start, end, status, kept)


async def run_clients(url: str, todo: list[tuple[str, str, int]], clients: int) -> list[Call]:
    """Let clients take one call after the other from a list, and return the history."""
    history: list[Call] = []
    waiting = iter(todo)

    async def work() -> None:
        connection = HttpConnection(url, None)
        for one in waiting:
            history.append(await send(connection, *one))
        connection.close()

    await asyncio.gather(*(work() for _ in range(clients)))
    return history


def metric(text: str, name: str, outcome: str) -> int:
    """Return the value of a counter."""
    label = f'{name}{{experiment="shop",outcome="{outcome}"}} '
    return sum(int(line.removeprefix(label)) for line in text.splitlines() if line.startswith(label))


def check_many(folder: Path, calls: int, seed: int) -> None:
    with server_process(folder) as server, Client(server.url) as client:
        client.create("shop", ACTIONS, context=NUMBERS, window="1d", seed=7)
        history = asyncio.run(run_clients(server.url, plan(calls, seed), 64))
        about = client.experiment("shop")
        rows = len(client.log("shop"))
        text = httpx.get(f"{server.url}/metrics", timeout=60).text
    assert len(history) == calls
    assert {call.status for call in history} <= {200, 202, 404, 409}
    counted = check_history(history)
    overlapping = Counter(call.status for call in history if call.kind == "decide")
    assert overlapping[409] > calls / 100 and counted["decisions"] < overlapping[200]  # ids did meet
    assert counted["decisions"] == about.counts["decisions"] == rows
    assert counted["decisions"] == metric(text, "spuir_decisions_total", "recorded")
    assert counted["rewards"] == about.counts["rewards"]
    assert counted["rewards"] == sum(metric(text, "spuir_rewards_total", status) for status in ACCEPTED)
    replayed = sum(call.kind == "decide" and call.answer.get("replayed", False) for call in history)
    assert replayed == metric(text, "spuir_decisions_total", "replayed")


def test_answers_to_sixty_four_clients_have_an_order(tmp_path: Path) -> None:
    check_many(tmp_path, calls=4_000, seed=1)


@pytest.mark.faults
def test_answers_to_a_million_calls_have_an_order(tmp_path: Path) -> None:
    check_many(tmp_path, calls=1_000_000, seed=2)

"""The clients against a real server: methods, errors, buffers, retries across kills, and what is never repeated."""

import asyncio
import inspect
import json
import random
import threading
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from spuir import Bandit
from spuir.base.parameters import parameters_of
from spuir.errors import InputError, ParameterError, ServiceError
from spuir.service import AsyncClient, Client
from spuir.service.clients.flows import ENCODER, Method
from spuir.service.clients.request_rows import decision_bodies
from spuir.service.commands import DecisionRow, RewardRow
from tests.service.api.servers import ACTIONS, NUMBERS, RunningServer, running_server
from tests.service.processes import ServerProcess, WarmServerProcess, ended

SHOP: dict[str, Any] = {"context": NUMBERS, "window": None, "seed": 7}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("client")) as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Generator[Client]:
    with Client(server.url, patience=5) as made:
        yield made


def test_a_decision_is_taken_rewarded_learned_and_looked_up(client: Client) -> None:
    made = client.create("life", ACTIONS, **SHOP)
    assert made.created_now and made.version == 0
    assert "life" in [one.name for one in client.experiments()]
    one = client.decide("life", [0.5, -1.0, 2.0], id="first", eligible=["red", "blue"], unit="ann")
    assert one.id == "first" and one.action in ("red", "blue") and not one.replayed
    assert client.decide("life", [0.5, -1.0, 2.0], id="first", eligible=["red", "blue"], unit="ann").replayed
    rows = client.decide_many("life", np.eye(3), ids=["a", "b", "c"])
    assert [row.id for row in rows] == ["a", "b", "c"]
    deferred = client.decide("life", np.zeros(3), defer=True)
    assert client.activate("life", deferred.id).status == "activated"
    assert client.reward("life", "first", 1.0, time=datetime(2026, 1, 1, tzinfo=UTC)).status == "joined"
    statuses = client.reward_many("life", {"a": 1.0, "b": 0.0})
    assert [answer.status for answer in statuses] == ["joined", "joined"]
    closed = client.close_episode("life")
    assert (closed.rows, closed.version) == (5, 1)
    assert client.wait_for("life", closed.version).version == 1
    status = client.decision("life", "first")
    assert (status.status, status.reward, status.used_in) == ("joined", 1.0, 1)
    assert client.decision("life", "c").status == "defaulted"


def test_a_model_of_other_parameters_is_refused_with_these(client: Client) -> None:
    rows = np.random.default_rng(0).normal(size=(40, 3))
    model = Bandit("puir", ACTIONS, intercept=True).fit(rows, (ACTIONS * 20)[:40], rows[:, 0])
    client.create("cold", ACTIONS, policy="puir")
    wanted = "got policy 'puir', intercept=True, but this experiment has the policy 'puir', intercept=False; create the"
    with pytest.raises(ServiceError, match=wanted):
        client.import_model("cold", model)
    client.create("other", ACTIONS, policy="sbucb")
    with pytest.raises(ServiceError, match="got policy 'puir', but this experiment has the policy 'sbucb'"):
        client.import_model("other", model)
    client.create("warm", ACTIONS, policy="puir", parameters=parameters_of(model.policy_))
    assert client.import_model("warm", model).version == 1


def test_versions_models_actions_settings_and_logs(client: Client) -> None:
    client.create("control", ACTIONS, **SHOP)
    rows = client.decide_many("control", np.random.default_rng(0).normal(size=(60, 3)))
    client.reward_many("control", [(row.id, float(row.action == "red")) for row in rows])
    client.wait_for("control", client.close_episode("control").version)
    assert [one.version for one in client.versions("control")] == [0, 1]
    assert client.publish("control", 0).previous == 1
    cold, learned = client.model("control"), client.model("control", 1)
    assert (cold.n_episodes_, learned.n_episodes_) == (0, 1)
    assert client.import_model("control", learned).newest == 2
    assert client.change("control", floor=0.05).settings.floor == 0.05
    labels = [one.label for one in client.add_action("control", "green-2", like="green").actions]
    assert labels == [*ACTIONS, "green-2"]
    assert [one.active for one in client.remove_action("control", "green-2").actions] == [True, True, True, False]
    log = client.log("control")
    assert [row["decision_id"] for row in log] == [row.id for row in rows]
    client.create("copy", ACTIONS, **SHOP)
    again = [
        {
            "decision_id": row["decision_id"],
            "context": [row[f"x{i}"] for i in range(3)],
            "action": row["action"],
            "reward": row["reward"],
            "propensity": row["propensity"],
        }
        for row in log
    ]
    assert client.import_log("copy", again).recorded == 60
    assert client.import_log("copy", again).duplicates == 60
    client.decide("control", np.ones(3), id="for-ann", unit="ann")
    assert client.forget("control", "ann").decisions == 1
    assert client.decision("control", "for-ann").status == "forgotten"
    assert client.archive("copy").archived


def test_a_refusal_is_an_error_with_the_code_sentence_and_remedy_of_the_service(client: Client) -> None:
    with pytest.raises(ServiceError) as unknown:
        client.decide("nowhere", [1.0])
    assert unknown.value.code == "unknown_experiment"
    client.create("refusing", ACTIONS, **SHOP)
    client.decide("refusing", [1.0, 2.0, 3.0], id="mine")
    with pytest.raises(ServiceError) as conflict:
        client.decide("refusing", [9.0, 9.0, 9.0], id="mine")
    assert conflict.value.code == "conflict"
    assert str(conflict.value) == (
        "id: got 'mine', but this id was used before with another body; use a new id, or send the same body."
    )
    assert conflict.value.remedy == "use a new id, or send the same body"
    with pytest.raises(ServiceError) as wrong:
        client.decide_many("refusing", [[1.0, 2.0, 3.0], [1.0]])
    assert wrong.value.where is not None and wrong.value.where.startswith("decisions[1]")
    with pytest.raises(ServiceError) as early:
        client.wait_for("refusing", 7, seconds=0.1)
    assert early.value.code == "not_learned"


def test_both_clients_have_the_same_methods_and_signatures() -> None:
    names = [name for name in dir(Client) if isinstance(inspect.getattr_static(Client, name), Method)]
    assert len(names) > 20
    for name in names:
        assert inspect.getattr_static(AsyncClient, name) is inspect.getattr_static(Client, name)
        assert getattr(Client, name).__doc__


def test_many_coroutines_share_one_client(server: RunningServer) -> None:
    async def ask() -> tuple[list[Any], int, dict[str, int]]:
        async with AsyncClient(server.url) as client:
            await client.create("async", ACTIONS, **SHOP)
            answers = await asyncio.gather(*(client.decide("async", [float(i), 0.0, 1.0]) for i in range(200)))
            async with client.buffer("async", size=50) as rewards:
                for answer in answers[:120]:
                    await rewards.add(answer.id, 1.0)
                waiting = len(rewards)
            return list(answers), waiting, dict(rewards.counts)

    answers, waiting, counts = asyncio.run(ask())
    assert len({answer.id for answer in answers}) == 200
    assert (waiting, counts) == (20, {"joined": 120})
    assert server.service.engine.experiment("async").counts["decisions"] == 200


def test_a_buffer_sends_groups_and_keeps_what_could_not_be_sent(client: Client, server: RunningServer) -> None:
    client.create("buffered", ACTIONS, **SHOP)
    ids = [row.id for row in client.decide_many("buffered", np.zeros((30, 3)))]
    with client.buffer("buffered", size=10) as rewards:
        sent = [len(rewards.add(one, 1.0)) for one in ids[:25]]
        assert sent == ([0] * 9 + [10]) * 2 + [0] * 5
    assert len(rewards) == 0 and rewards.counts == {"joined": 25}
    with Client("http://127.0.0.1:9", patience=0) as nobody:
        lost = nobody.buffer("buffered", size=2)
        lost.add(ids[25], 1.0)
        with pytest.raises(ServiceError, match="no answer"):
            lost.add(ids[26], 1.0)
        assert len(lost) == 2


def test_rows_may_be_given_as_rows(client: Client) -> None:
    client.create("rows", ACTIONS, **SHOP)
    rows = [DecisionRow(context=[1.0, 2.0, 3.0], eligible=["red"]), DecisionRow(context=[1.0, 2.0, 3.0], id="named")]
    first, second = client.decide_many("rows", rows)
    assert first.action == "red" and second.id == "named"
    (answer,) = client.reward_many("rows", [RewardRow(decision_id="named", reward=1.0, id="sale-1")])
    assert (answer.id, answer.status) == ("sale-1", "joined")
    numbered = client.decide_many("rows", np.zeros((2, 3)), numbered=True)
    assert all(one.id.startswith("~") for one in numbered)


def test_rewards_may_be_true_or_false_or_elements_of_arrays(client: Client) -> None:
    client.create("kinds", ACTIONS, **SHOP)
    ids = [row.id for row in client.decide_many("kinds", np.zeros((5, 3)))]
    assert client.reward("kinds", ids[0], True).status == "joined"
    assert client.reward("kinds", ids[1], False).status == "joined"
    bought = np.array([True, False])
    assert [one.status for one in client.reward_many("kinds", zip(ids[2:4], bought, strict=True))] == ["joined"] * 2
    assert client.reward("kinds", ids[4], np.float64(0.5)).status == "joined"
    assert client.log("kinds", settled=True) == []
    client.close_episode("kinds")
    assert [row["reward"] for row in client.log("kinds", settled=True)] == [1.0, 0.0, 1.0, 0.0, 0.5]


def test_a_catalogue_may_be_a_table(client: Client) -> None:
    frame = pd.DataFrame({"price": [2.0, 3.0, np.nan], "size": [1, 2, 3]}, index=["jam", "tea", "cup"])
    rows = frame.rename_axis("action").reset_index()
    expected = {"cup": {"price": None, "size": 3}, "jam": {"price": 2.0, "size": 1}, "tea": {"price": 3.0, "size": 2}}
    for number, catalogue in enumerate((frame, rows, rows[::-1], pa.Table.from_pandas(rows, preserve_index=False))):
        made = client.create(f"table-{number}", catalogue, policy="hierarchical")
        assert made.settings.actions == expected
    assert sorted(action.label for action in client.create("labels", rows[["action"]]).actions) == sorted(frame.index)
    client.add_action("table-0", "pot", features=frame.loc["tea"])
    with pytest.raises(ParameterError, match="'jam' twice"):
        client.create("twice", pd.concat([frame, frame[:1]]), policy="hierarchical")
    for call in (
        lambda: client.create("infinite", frame.assign(price=np.inf), policy="hierarchical"),
        lambda: client.add_action("table-0", "jam", features={"price": np.float32("inf"), "size": 1}),
        lambda: client.update_action("table-0", "jam", {"price": np.inf, "size": 1}),
    ):
        with pytest.raises(InputError, match="column 'price': got inf for action 'jam'"):
            call()
    assert "infinite" not in [one.name for one in client.experiments()]


def test_rows_of_data_frames_are_contexts(client: Client) -> None:
    frame = pd.DataFrame(
        {"age": [31.0, np.nan], "seen": pd.to_datetime(["2026-01-31T09:30", None]), "plan": ["a", "b"]}
    )
    expected = [{"age": 31.0, "seen": "2026-01-31T09:30:00", "plan": "a"}, {"age": None, "seen": None, "plan": "b"}]
    bodies = ENCODER.encode(decision_bodies(frame, None, numbered=True))
    assert [row["context"] for row in json.loads(bodies)] == expected
    client.create("frames", ACTIONS, window=None, seed=7)
    answers = client.decide_many("frames", frame, ids=["f1", "f2"])
    assert [one.id for one in answers] == ["f1", "f2"]
    assert client.decide("frames", frame.iloc[0], id="f1").replayed


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.decide_many("x", {"age": 31}), "rows: got one dict, .* call decide for a single one"),
        (lambda c: c.decide_many("x", [{"age": 31}], ids=["a", "b"]), "ids: got 2 of them, but there are 1 rows"),
        (lambda c: c.decide("x", {"age": object()}), "a value of type object"),
        (lambda c: c.reward("x", "v1", "yes"), "reward: got 'yes' for decision 'v1', but a reward is a finite number"),
        (lambda c: c.reward_many("x", {"v1": float("nan")}), "reward: got nan for decision 'v1'"),
        (lambda c: c.buffer("x").add("v1", None), "reward: got None for decision 'v1'"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_it_is_sent(call: Any, message: str) -> None:
    with Client("http://127.0.0.1:1", patience=0) as client, pytest.raises(InputError, match=message):
        call(client)


@pytest.mark.parametrize("odd", ["..", ".", "a/b", "käse?", "50%", "~x y"[1:]])
def test_ids_labels_and_units_may_be_any_visible_text(client: Client, odd: str) -> None:
    name = f"odd-{abs(hash(odd)) % 10**6}"
    client.create(name, [*ACTIONS, odd], **SHOP)
    client.decide(name, np.zeros(3), id=odd, unit=odd, defer=True)
    assert client.decision(name, odd).id == odd
    assert client.activate(name, odd).status == "activated"
    assert [one.active for one in client.remove_action(name, odd).actions] == [True, True, True, False]
    assert client.forget(name, odd).decisions == 1
    assert not client.experiment(name).archived


def test_what_ends_something_may_be_sent_again(client: Client) -> None:
    client.create("again", ACTIONS, **SHOP)
    client.remove_action("again", "blue")
    ended = client.archive("again")
    before = ended.records
    assert client.archive("again").records == before
    client.create("again2", ACTIONS, **SHOP)
    once = client.remove_action("again2", "blue")
    assert client.remove_action("again2", "blue").records == once.records
    with pytest.raises(ServiceError) as unknown:
        client.remove_action("again2", "mauve")
    assert unknown.value.code == "unknown_action"


# ---- retries ------------------------------------------------------------------------------------------------


class Scripted(ThreadingHTTPServer):
    """An HTTP server that does what a script says for one request after the other: drop, or a status and a code."""

    def __init__(self, *script: Any) -> None:
        super().__init__(("127.0.0.1", 0), _ScriptedHandler)
        self.script, self.bodies = list(script), list[bytes]()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _ScriptedHandler(BaseHTTPRequestHandler):
    server: Scripted

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        step = self.server.script.pop(0) if self.server.script else "ok"
        if step == "drop":
            self.close_connection = True
            return
        answer: dict[str, Any] = {"id": "x", "action": "red", "propensity": 1.0, "probabilities": {}, "version": 0}
        status, content, wait = 200, {**answer, "decisions": [answer], "rows": 1}, None
        if step != "ok":
            status, code, wait = step
            content = {"error": {"code": code, "message": "a: got b, but c; d.", "remedy": "d", "where": None}}
        body = json.dumps(content).encode()
        self.send_response(status)
        if wait is not None:
            self.send_header("Retry-After", str(wait))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Stay silent."""


@pytest.mark.parametrize(
    "step",
    [
        "drop",
        (503, "overloaded", None),
        (503, "storage_unavailable", 0),
        (507, "storage_full", None),
        (503, "timed_out", 0),
    ],
)
def test_a_request_with_an_id_is_repeated_with_the_same_body(step: Any) -> None:
    scripted = Scripted(step, step, "ok")
    with Client(scripted.url) as client:
        client.decide("shop", [1.0])
    assert len(scripted.bodies) == 3 and len(set(scripted.bodies)) == 1
    assert json.loads(scripted.bodies[0])["id"]


def test_a_request_without_ids_is_repeated_only_if_it_was_not_taken() -> None:
    for step, sent in [
        ((429, "rate_limited", 0), 2),
        ((503, "overloaded", 0), 2),
        ("drop", 1),
        ((503, "timed_out", 0), 1),
    ]:
        scripted = Scripted(step, "ok")
        with Client(scripted.url) as client:
            if sent == 2:
                client.decide_many("shop", [[1.0]], numbered=True)
            else:
                with pytest.raises(ServiceError):
                    client.decide_many("shop", [[1.0]], numbered=True)
        assert len(scripted.bodies) == sent, step
        assert b'"id"' not in scripted.bodies[0]


def test_a_refusal_is_not_repeated_and_patience_ends() -> None:
    for step in [(400, "invalid", None), (503, "damaged", 0)]:
        scripted = Scripted(step, "ok")
        with Client(scripted.url) as client, pytest.raises(ServiceError):
            client.decide("shop", [1.0])
        assert len(scripted.bodies) == 1
    scripted = Scripted(*["drop"] * 100)
    with Client(scripted.url, patience=0.5) as client, pytest.raises(ServiceError) as end:
        client.decide("shop", [1.0])
    assert end.value.code == "unreachable"
    assert 2 <= len(scripted.bodies) < 10


def test_the_client_waits_as_long_as_the_service_asks() -> None:
    scripted = Scripted((429, "rate_limited", 1), "ok")
    start = time.monotonic()
    with Client(scripted.url) as client:
        client.decide("shop", [1.0])
    assert time.monotonic() - start >= 1.0


def test_an_answer_of_another_server_is_an_error() -> None:
    scripted = Scripted((404, "unknown_route", None))
    scripted.script = [(200, "nothing", None)]
    with Client(scripted.url) as client, pytest.raises(ServiceError) as wrong:
        client.reward("shop", "x", 1.0)
    assert wrong.value.code == "unexpected_answer"


def survive(made: ServerProcess, kills: int, threads: int, seed: int) -> None:
    """Let threads send decisions and rewards while the server is killed at random moments; compare with the log."""
    rng = random.Random(seed)
    acknowledged: dict[str, str] = {}
    stop = threading.Event()

    def shop(client: Client, worker: int) -> int:
        number = 0
        while not stop.is_set():
            one = client.decide("shop", [float(worker), float(number), 0.0])
            assert one.id not in acknowledged
            acknowledged[one.id] = str(one.action)
            assert client.reward("shop", one.id, 1.0).status in ("joined", "duplicate")
            number += 1
        return number

    with ended(made) as server, Client(server.url, patience=120, timeout=10) as client:
        client.create("shop", ACTIONS, **SHOP, aggregation="sum")
        with ThreadPoolExecutor(threads) as pool:
            shops = [pool.submit(shop, client, worker) for worker in range(threads)]
            try:
                for _ in range(kills):
                    before, until = len(acknowledged), time.monotonic() + 60
                    while len(acknowledged) < before + threads and time.monotonic() < until:
                        time.sleep(0.002)
                    time.sleep(rng.random() * 0.2)
                    server.kill()
                    server.start()
            finally:
                stop.set()
            sent = sum(done.result() for done in shops)
        client.wait_for("shop", client.close_episode("shop").version)
        rows, about = client.log("shop"), client.experiment("shop")
    print(f"{kills} kills, {2 * sent} acknowledged events, {2 * sent - len(rows) - about.counts['rewards']} lost")
    assert sent == len(acknowledged) >= kills * threads
    assert {row["decision_id"]: row["action"] for row in rows} == acknowledged
    assert len(rows) == len(acknowledged)
    assert {row["reward"] for row in rows} == {1.0}  # the sum of rewards: each was counted once
    assert (about.counts["decisions"], about.counts["rewards"]) == (sent, sent)


def test_retries_across_kills_lose_nothing_and_duplicate_nothing(tmp_path: Path) -> None:
    survive(ServerProcess(tmp_path), kills=3, threads=4, seed=1)


@pytest.mark.faults
def test_retries_across_kills_lose_nothing_in_a_thousand_kills(tmp_path: Path) -> None:
    survive(WarmServerProcess(tmp_path), kills=1_000, threads=16, seed=2)

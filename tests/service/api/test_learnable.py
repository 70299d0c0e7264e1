"""What is taken can be learned: a request that would keep its episode from being learned is refused."""

import json
from typing import Any

import pytest

from tests.service.api.servers import ACTIONS, CONTEXT, RunningServer, code, create_shop

LINES = {"Content-Type": "application/x-ndjson"}


def refused(server: RunningServer, name: str, method: str, address: str, **request: Any) -> tuple[int, str]:
    """Send what must be refused, and return the status and the code; nothing may be recorded."""
    before = server.records(name)
    with server.client() as client:
        answer = client.request(method, address, **request)
    assert server.records(name) == before
    return answer.status_code, code(answer)


@pytest.mark.parametrize("value", [1e101, -1e101, 1e308])
def test_numbers_that_cannot_be_squared_are_refused(open_server: RunningServer, value: float) -> None:
    one = "/v1/experiments/large"
    with open_server.client() as client:
        create_shop(client, "large")
        create_shop(client, "large-columns", context={"kind": "columns"})
        client.post(f"{one}/decisions", json={"id": "d", "context": CONTEXT})
    row = {"decision_id": "i", "context": [value, 1, 1], "action": "red", "reward": 1}
    for name, address, body in [
        ("large", f"{one}/decisions", {"context": [value, 0, 0]}),
        ("large", f"{one}/decisions", {"decisions": [{"context": CONTEXT}, {"context": [0, value, 0]}]}),
        ("large-columns", "/v1/experiments/large-columns/decisions", {"context": {"age": value}}),
        ("large", f"{one}/rewards", {"decision_id": "d", "reward": value}),
    ]:
        assert refused(open_server, name, "POST", address, json=body) == (422, "wrong_shape"), body
    lines = json.dumps(row).encode()
    assert refused(open_server, "large", "POST", f"{one}/log", content=lines, headers=LINES) == (422, "wrong_shape")
    assert refused(open_server, "large", "PATCH", one, json={"default_reward": value}) == (422, "wrong_shape")
    with open_server.client() as client:
        client.post(f"{one}/rewards", json={"decision_id": "d", "reward": 1e100})
        client.post(f"{one}/decisions", json={"context": [1e100, -1e100, 0]})
        assert client.post(f"{one}/episodes/close").json()["rows"] > 0
        assert client.get(f"{one}/versions").json()[-1]["refused"] is None


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"names": []}, "context.names"),
        ({"names": [""]}, "context.names"),
        ({"kinds": {"age": "years"}}, "context.kinds.age"),
        ({"kinds": {"age": "vector"}}, "context.kinds.age"),
        ({"kinds": {"age": "hash"}}, "context.kinds.age"),
        ({"kinds": {"age": "number"}, "names": ["city"]}, "context.kinds.age"),
        ({"max_levels": 0}, "context.max_levels"),
        ({"max_levels": 10**9}, "context.max_levels"),
        ({"hashing": -1}, "context.hashing"),
        ({"hashing": 10**9}, "context.hashing"),
    ],
)
def test_a_form_of_contexts_that_no_episode_has_is_refused(
    open_server: RunningServer, options: dict[str, Any], where: str
) -> None:
    body = {"name": "never", "actions": ACTIONS, "context": {"kind": "columns", **options}}
    with open_server.client() as client:
        answer = client.post("/v1/experiments", json=body)
        assert (answer.status_code, code(answer), answer.json()["error"]["where"]) == (400, "invalid", where)
        assert client.get("/v1/experiments/never").status_code == 404


@pytest.mark.parametrize("size", [0, -1, 10**9 + 1, 10**30])
def test_a_batch_size_that_no_log_reaches_is_refused(open_server: RunningServer, size: int) -> None:
    with open_server.client() as client:
        create_shop(client, "batches")
        answer = client.post("/v1/experiments", json={"name": "never", "actions": ACTIONS, "batch_size": size})
        assert (answer.status_code, answer.json()["error"]["where"]) == (400, "batch_size")
        added = client.post("/v1/experiments/batches/actions", json={"label": "white", "ramp_episodes": 10**30})
        assert (added.status_code, code(added)) == (422, "wrong_shape")


def test_a_column_of_texts_and_numbers_is_learned_as_levels(open_server: RunningServer) -> None:
    one = "/v1/experiments/mixed"
    with open_server.client() as client:
        create_shop(client, "mixed", context={"kind": "columns", "kinds": {"never sent": "number"}})
        for number, age in enumerate([31, "unknown", True, None, 58.5]):
            client.post(f"{one}/decisions", json={"id": f"d{number}", "context": {"age": age, "city": "Oslo"}})
            client.post(f"{one}/rewards", json={"decision_id": f"d{number}", "reward": 1})
        client.post(f"{one}/episodes/close")
        learned = client.get(f"{one}/versions").json()[-1]
        assert (learned["version"], learned["rows"], learned["refused"]) == (1, 5, None)
        assert client.post(f"{one}/decisions", json={"context": {"age": "new"}}).json()["version"] == 1


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("age", [31, 58.5, True, None], ["31", "old"]),
        ("vip", [True, False, 1, 0.0, None], [2, "yes", 0.5]),
        ("since", ["2026-01-31", "2026-01-31T09:30:00+02:00", None], ["yesterday", 20260131, True]),
    ],
)
def test_a_value_unlike_the_kind_that_was_named_is_refused_from_the_first_decision_on(
    open_server: RunningServer, name: str, good: list[Any], bad: list[Any]
) -> None:
    kinds, one = {"age": "number", "vip": "flag", "since": "time"}, f"/v1/experiments/kinds-{name}"
    with open_server.client() as client:
        create_shop(client, f"kinds-{name}", context={"kind": "columns", "kinds": kinds})
        for value in good:
            taken = client.post(f"{one}/decisions", json={"context": {name: value, "city": "Oslo"}})
            assert taken.status_code == 200, taken.text
    for value in bad:
        body: dict[str, Any] = {"context": {name: value, "city": "Oslo"}}
        assert refused(open_server, f"kinds-{name}", "POST", f"{one}/decisions", json=body) == (400, "invalid")
        line = json.dumps(body | {"decision_id": "i", "action": "red", "reward": 1}).encode()
        sent = {"content": line, "headers": LINES}
        assert refused(open_server, f"kinds-{name}", "POST", f"{one}/log", **sent) == (400, "invalid")
    with open_server.client() as client:
        client.post(f"{one}/episodes/close")
        learned = client.get(f"{one}/versions").json()[-1]
        assert (learned["rows"], learned["refused"]) == (len(good), None)


def test_what_was_taken_before_its_column_was_known_is_learned_as_missing(open_server: RunningServer) -> None:
    one = "/v1/experiments/early-text"
    with open_server.client() as client:
        create_shop(client, "early-text", context={"kind": "columns"})
        for age in (31, 42, 58):
            client.post(f"{one}/decisions", json={"context": {"age": age, "vip": age > 40}})
        client.post(f"{one}/episodes/close")
        client.post(f"{one}/versions/0/publish")  # the cold version has no encoder that refuses anything
        assert client.post(f"{one}/decisions", json={"context": {"age": "31", "vip": 7}}).status_code == 200
        client.post(f"{one}/decisions", json={"context": {"age": 33, "vip": False}})
        client.post(f"{one}/episodes/close")
        learned = client.get(f"{one}/versions").json()[-1]
        assert (learned["version"], learned["rows"], learned["refused"]) == (2, 2, None)
        client.post(f"{one}/versions/2/publish")
    line = json.dumps({"decision_id": "i", "context": {"age": "old", "vip": True}, "action": "red"}).encode()
    sent = {"content": line, "headers": LINES}
    assert refused(open_server, "early-text", "POST", f"{one}/log", **sent) == (400, "invalid")


def test_a_floor_that_the_actions_cannot_all_have_is_refused(open_server: RunningServer) -> None:
    one = "/v1/experiments/floor"
    with open_server.client() as client:
        create_shop(client, "floor", floor=0.3)
        again = client.post("/v1/experiments", json={"name": "floor2", "actions": ACTIONS, "floor": 0.4})
        assert (again.status_code, again.json()["error"]["where"]) == (400, "floor")
    assert refused(open_server, "floor", "PATCH", one, json={"floor": 0.9}) == (400, "invalid")
    assert refused(open_server, "floor", "PATCH", one, json={"floor": None, "parameters": {"floor": 0.9}})[0] == 400
    assert refused(open_server, "floor", "POST", f"{one}/actions", json={"label": "white"}) == (400, "invalid")
    with open_server.client() as client:
        assert client.patch(one, json={"floor": 0.25}).status_code == 200
        assert client.post(f"{one}/actions", json={"label": "white"}).status_code == 201
        assert client.post(f"{one}/decisions", json={"context": CONTEXT}).status_code == 200


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"eligible": []}, "eligible"),
        ({"eligible": ["green"]}, "eligible"),
        ({"eligible": ["red", "red"]}, "eligible"),
        ({"eligible": ["red", "mauve"]}, "mauve"),
        ({"action": "mauve"}, "mauve"),
        ({"unit_id": ""}, "unit_id"),
        ({"unit_id": "x" * 300}, "unit_id"),
        ({"context": []}, "context"),
        ({"context": [1, 2]}, "context"),
        ({"reward": "one"}, "reward"),
    ],
)
def test_an_import_is_checked_as_decisions_are_and_its_line_is_named(
    open_server: RunningServer, change: dict[str, Any], word: str
) -> None:
    with open_server.client() as client:
        create_shop(client, "imports")
    good = {"decision_id": "good", "context": CONTEXT, "action": "red", "reward": 1}
    lines = [json.dumps(good), "", json.dumps({**good, "decision_id": "bad", **change})]
    before = open_server.records("imports")
    with open_server.client() as client:
        answer = client.post("/v1/experiments/imports/log", content="\n".join(lines).encode(), headers=LINES)
    assert 400 <= answer.status_code < 500
    error = answer.json()["error"]
    assert error["where"].startswith("line 3") and word in error["message"], error
    assert open_server.records("imports") == before


def test_what_was_forgotten_takes_nothing_more(open_server: RunningServer) -> None:
    one = "/v1/experiments/gone"
    with open_server.client() as client:
        create_shop(client, "gone")
        client.post(f"{one}/decisions", json={"id": "d", "context": CONTEXT, "unit": "ann", "defer": True})
        assert client.delete(f"{one}/units/ann").status_code == 200
        several = client.post(f"{one}/rewards", json={"rewards": [{"decision_id": "d", "reward": 1}]})
        assert several.json()["rewards"][0]["status"] == "forgotten"
    assert refused(open_server, "gone", "POST", f"{one}/decisions/d/activate") == (410, "forgotten")
    reward = {"decision_id": "d", "reward": 1}
    assert refused(open_server, "gone", "POST", f"{one}/rewards", json=reward) == (410, "forgotten")

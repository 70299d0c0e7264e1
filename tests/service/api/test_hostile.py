"""Hostile and careless bodies: a 4xx with a stable code, never a 5xx, and nothing in the log."""

import gzip
import json

import httpx
import pytest

from tests.service.api.servers import CONTEXT, RunningServer, code, create_shop

DEEP = 100_000
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def shop(open_server: RunningServer) -> RunningServer:
    """A server with an experiment on numbers, one on columns, and one decision in each."""
    with open_server.client() as client:
        create_shop(client)
        create_shop(client, "columns", context={"kind": "columns"})
        assert client.post("/v1/experiments/shop/decisions", json={"id": "d0", "context": CONTEXT}).status_code == 200
        row = {"id": "d0", "context": {"age": 31, "city": "Oslo"}}
        assert client.post("/v1/experiments/columns/decisions", json=row).status_code == 200
    return open_server


def refused(server: RunningServer, address: str, body: bytes, headers: dict[str, str] = JSON) -> httpx.Response:
    """Send a body that must be refused, and return the answer."""
    before = {name: server.records(name) for name in ("shop", "columns")}
    with server.client() as client:
        answer = client.post(address, content=body, headers=headers)
    assert 400 <= answer.status_code < 500, answer.text
    assert {name: server.records(name) for name in ("shop", "columns")} == before
    return answer


MALFORMED = {
    "NaN": b'{"context": [NaN, 1, 2]}',
    "Infinity": b'{"context": [Infinity, 1, 2]}',
    "-Infinity": b'{"context": [-Infinity, 1, 2]}',
    "a key twice": b'{"context": [1, 2, 3], "context": [3, 2, 1]}',
    "a key twice, once escaped": b'{"context": [1, 2, 3], "\\u0063ontext": [3, 2, 1]}',
    "a lone surrogate": b'{"context": [1, 2, 3], "id": "\\ud800"}',
    "a raw surrogate": b'{"context": [1, 2, 3], "id": "\xed\xa0\x80"}',
    "not UTF-8": b'{"context": [1, 2, 3], "id": "\xff"}',
    "UTF-16": '{"context": [1, 2, 3]}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"context": [1, 2, 3]}',
    "two values": b'{"context": [1, 2, 3]} {}',
    "half a value": b'{"context": [1, 2',
    "nothing": b"",
    "blanks": b"   ",
    "a zero byte": b'{"context": [1, 2, 3]}\x00',
    "a comment": b'{"context": [1, 2, 3] /* */}',
    "a trailing comma": b'{"context": [1, 2, 3,]}',
    "single quotes": b"{'context': [1, 2, 3]}",
    "a leading zero": b'{"context": [01, 2, 3]}',
    "a control character": b'{"context": [1, 2, 3], "id": "a\nb"}',
    "XML": b"<context/>",
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
def test_what_is_not_json_is_refused(shop: RunningServer, body: bytes) -> None:
    answer = refused(shop, "/v1/experiments/shop/decisions", body)
    assert (answer.status_code, code(answer)) == (400, "malformed")


WRONG_SHAPE = {
    "too large a number": b'{"context": [1e999, 1, 2]}',
    "too small a number": b'{"context": [-1e999, 1, 2]}',
    "an endless integer": b'{"context": [' + b"9" * 10_000 + b", 1, 2]}",
    "a text for a number": b'{"context": ["NaN", 1, 2]}',
    "null for a number": b'{"context": [null, 1, 2]}',
    "true for a number": b'{"context": [true, 1, 2]}',
    "deep arrays": b'{"context": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "deep objects": b'{"context": ' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}",
    "a rather deep column": b'{"context": {"a": ' + b"[" * 40 + b"]" * 40 + b"}}",
    "no context": b"{}",
    "null": b"null",
    "an array": b"[]",
    "a text": b'"context"',
    "a number": b"1",
    "an unknown field": b'{"context": [1, 2, 3], "propensity": 1}',
    "an id that is a number": b'{"context": [1, 2, 3], "id": 7}',
    "eligible that is a text": b'{"context": [1, 2, 3], "eligible": "red"}',
    "defer that is a number": b'{"context": [1, 2, 3], "defer": 1}',
    "rows that are no array": b'{"decisions": {"context": [1, 2, 3]}}',
    "a row that is a number": b'{"decisions": [1]}',
    "rows and a row": b'{"decisions": [], "context": [1, 2, 3]}',
}


@pytest.mark.parametrize("body", WRONG_SHAPE.values(), ids=WRONG_SHAPE)
def test_json_of_another_shape_is_refused(shop: RunningServer, body: bytes) -> None:
    answer = refused(shop, "/v1/experiments/shop/decisions", body)
    assert (answer.status_code, code(answer)) == (422, "wrong_shape")


@pytest.mark.parametrize(
    ("body", "where", "got"),
    [
        ({"context": CONTEXT, "id": 12}, "id", "12"),
        ({"context": CONTEXT, "id": 10**40}, "id", "1"),
        ({"context": CONTEXT, "id": ["x" * 100]}, "id", '["xxxx'),
        ({"decisions": [{"context": CONTEXT}, {"context": [1, "a", 3]}]}, "decisions[1].context[1]", '"a"'),
        ({"context": [1, 2, 1e200]}, "context[2]", "1e200"),
        ({"context": {"age": 31, "tags": ["a", "b"]}}, "context['tags']", '["a","b"]'),
        ({"context": {"age": 31, "pay": 1e200}}, "context[...]", "another value"),
        ({"context": CONTEXT, "eligible": [1.5]}, "eligible[0]", "1.5"),
    ],
)
def test_a_wrong_shape_is_shown_with_its_place(shop: RunningServer, body: dict, where: str, got: str) -> None:
    error = refused(shop, "/v1/experiments/shop/decisions", json.dumps(body).encode()).json()["error"]
    assert error["where"] == where
    assert f"{where}: got {got}" in error["message"] and len(error["message"]) < 250


RULES = {
    "too few numbers": {"context": [1, 2]},
    "too many numbers": {"context": [1, 2, 3, 4]},
    "no numbers": {"context": []},
    "columns instead of numbers": {"context": {"age": 1}},
    "an unknown action": {"context": CONTEXT, "eligible": ["mauve"]},
    "no eligible action": {"context": CONTEXT, "eligible": []},
    "an eligible action twice": {"context": CONTEXT, "eligible": ["red", "red"]},
    "an empty id": {"context": CONTEXT, "id": ""},
    "a long id": {"context": CONTEXT, "id": "x" * 257},
    "an invisible id": {"context": CONTEXT, "id": "a\u0000b"},
    "an id twice": {"decisions": [{"context": CONTEXT, "id": "t"}, {"context": CONTEXT[::-1], "id": "t"}]},
    "one bad row among good ones": {"decisions": [{"context": CONTEXT}, {"context": [1]}]},
}


@pytest.mark.parametrize("row", RULES.values(), ids=RULES)
def test_what_breaks_a_rule_is_refused(shop: RunningServer, row: dict) -> None:
    answer = refused(shop, "/v1/experiments/shop/decisions", json.dumps(row).encode())
    assert answer.status_code in (400, 404, 409, 422)
    assert code(answer) in ("invalid", "unknown_action", "conflict")


COLUMNS = {
    "numbers instead of columns": {"context": [1, 2, 3]},
    "a nested column": {"context": {"age": {"years": 3}}},
    "a list in a column": {"context": {"age": [1, 2]}},
    "an empty name": {"context": {"": 1}},
}


@pytest.mark.parametrize("row", COLUMNS.values(), ids=COLUMNS)
def test_columns_that_break_a_rule_are_refused(shop: RunningServer, row: dict) -> None:
    answer = refused(shop, "/v1/experiments/columns/decisions", json.dumps(row).encode())
    assert code(answer) in ("invalid", "wrong_shape")


def test_a_column_twice_is_refused(shop: RunningServer) -> None:
    answer = refused(shop, "/v1/experiments/columns/decisions", b'{"context": {"age": 1, "age": 2}}')
    assert (answer.status_code, code(answer)) == (400, "malformed")


@pytest.mark.parametrize("value", ["12:30", "a [b] {c}", 'say "hi": you', "[[[[[[[[[[[[[[[[[[[[[["])
def test_texts_that_look_like_json_are_taken_as_texts(shop: RunningServer, value: str) -> None:
    with shop.client() as client:
        answer = client.post("/v1/experiments/columns/decisions", json={"context": {"age": 2, "city": value}})
        assert answer.status_code == 200, answer.text


def test_a_column_called_decisions_is_a_column(shop: RunningServer) -> None:
    with shop.client() as client:
        answer = client.post("/v1/experiments/columns/decisions", json={"context": {"decisions": 2}})
        assert answer.status_code == 200
        assert "action" in answer.json()


REWARDS = {
    "NaN": (b'{"decision_id": "d0", "reward": NaN}', "malformed"),
    "too large": (b'{"decision_id": "d0", "reward": 1e999}', "wrong_shape"),
    "a text": (b'{"decision_id": "d0", "reward": "1"}', "wrong_shape"),
    "null": (b'{"decision_id": "d0", "reward": null}', "wrong_shape"),
    "true": (b'{"decision_id": "d0", "reward": true}', "wrong_shape"),
    "missing": (b'{"decision_id": "d0"}', "wrong_shape"),
    "twice": (b'{"decision_id": "d0", "reward": 1, "reward": 2}', "malformed"),
    "a wrong time": (b'{"decision_id": "d0", "reward": 1, "time": "soon"}', "invalid"),
    "an empty decision": (b'{"decision_id": "", "reward": 1}', "invalid"),
    "one of several is NaN": (b'{"rewards": [{"decision_id": "d0", "reward": NaN}]}', "malformed"),
}


@pytest.mark.parametrize(("body", "expected"), REWARDS.values(), ids=REWARDS)
def test_a_bad_reward_is_refused(shop: RunningServer, body: bytes, expected: str) -> None:
    answer = refused(shop, "/v1/experiments/shop/rewards", body)
    assert code(answer) == expected


EXPERIMENTS = {
    "no actions": {"name": "bad", "actions": []},
    "too many actions": {"name": "bad", "actions": 10_001},
    "an action twice": {"name": "bad", "actions": ["a", "a"]},
    "a name that leaves its folder": {"name": "../etc", "actions": 2},
    "an empty name": {"name": "", "actions": 2},
    "a long name": {"name": "x" * 64, "actions": 2},
    "capital letters": {"name": "Shop", "actions": 2},
    "an unknown policy": {"name": "bad", "actions": 2, "policy": "oracle"},
    "an unknown parameter": {"name": "bad", "actions": 2, "parameters": {"magic": 1}},
    "a wrong window": {"name": "bad", "actions": 2, "window": "soon"},
    "a wrong aggregation": {"name": "bad", "actions": 2, "aggregation": "product"},
    "a floor above 1": {"name": "bad", "actions": 2, "floor": 1.5},
    "no dimension": {"name": "bad", "actions": 2, "context": {"kind": "numbers", "dimension": 0}},
    "an unknown setting": {"name": "bad", "actions": 2, "colour": "red"},
    "a fractional batch": {"name": "bad", "actions": 2, "batch_size": 1.5},
    "a negative seed": {"name": "bad", "actions": 2, "seed": -1},
}


@pytest.mark.parametrize("body", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_a_bad_experiment_is_refused(shop: RunningServer, body: dict) -> None:
    answer = refused(shop, "/v1/experiments", json.dumps(body).encode())
    assert code(answer) in ("invalid", "wrong_shape")
    assert {one.name for one in shop.service.engine.experiments()} == {"shop", "columns"}


TYPES = {
    "none": {},
    "text": {"Content-Type": "text/plain"},
    "a form": {"Content-Type": "application/x-www-form-urlencoded"},
    "almost": {"Content-Type": "application/jsonp"},
    "gzip": {**JSON, "Content-Encoding": "gzip"},
    "brotli": {**JSON, "Content-Encoding": "br"},
}


@pytest.mark.parametrize("headers", TYPES.values(), ids=TYPES)
def test_other_kinds_of_bodies_are_refused(shop: RunningServer, headers: dict[str, str]) -> None:
    body = gzip.compress(b" " * 10_000_000) if "Content-Encoding" in headers else b'{"context": [1, 2, 3]}'
    answer = refused(shop, "/v1/experiments/shop/decisions", body, headers)
    assert (answer.status_code, code(answer)) == (415, "unsupported_media")


def test_the_usual_spellings_of_the_type_are_taken(shop: RunningServer) -> None:
    with shop.client() as client:
        for kind in ("application/json; charset=utf-8", "Application/JSON", "application/json;"):
            answer = client.post(
                "/v1/experiments/shop/decisions", content=b'{"context": [1, 2, -0.0]}', headers={"Content-Type": kind}
            )
            assert answer.status_code == 200


@pytest.mark.parametrize("name", ["..", "%2e%2e", "shop%2f..", "SHOP", "%00", "%ff", "x" * 300, "%25", "shop;x"])
def test_names_that_are_no_names_are_unknown(shop: RunningServer, name: str) -> None:
    with shop.connect() as connection:
        connection.sendall(
            f"GET /v1/experiments/{name} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        )
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 404 "), answer


@pytest.mark.parametrize("given", ["a/b", "a b", "a%b", "käse", "a?b#c", "日本", "..", "activate"])
def test_ids_may_hold_any_visible_character(shop: RunningServer, given: str) -> None:
    from urllib.parse import quote

    with shop.client() as client:
        body = {"id": given, "context": CONTEXT, "defer": True}
        assert client.post("/v1/experiments/shop/decisions", json=body).status_code == 200
        # A client may not shorten dots, so the address is written out.
        address = f"/v1/experiments/shop/decisions/{quote(given, safe='').replace('.', '%2E')}"
        assert client.get(address).json()["id"] == given
        assert client.post(f"{address}/activate").json() == {"decision_id": given, "status": "activated"}

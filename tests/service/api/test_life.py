"""The life of an experiment over HTTP: every route does what it says, with the engine and a store behind it."""

import json
import logging
import re
import sys
import threading
import time

import numpy as np
import pytest
from pyarrow import parquet

from spuir.bandit import from_bytes
from spuir.service.api import log_routes
from spuir.service.json_logs import JsonFormatter
from tests.service.api.servers import ACTIONS, CONTEXT, RunningServer, code, create_shop, running_server

LINES = {"Content-Type": "application/x-ndjson"}


def test_an_experiment_from_its_creation_to_its_end(open_server: RunningServer) -> None:
    with open_server.client() as client:
        made = create_shop(client, "life")
        one = "/v1/experiments/life"
        assert (made["version"], made["newest"], [action["label"] for action in made["actions"]]) == (0, 0, ACTIONS)
        rows = [{"id": f"d{at}", "context": [at / 10, 1, -at / 10], "unit": f"u{at % 2}"} for at in range(20)]
        answers = client.post(f"{one}/decisions", json={"decisions": rows}).json()["decisions"]
        assert [answer["id"] for answer in answers] == [row["id"] for row in rows]
        for answer in answers:
            assert answer["probabilities"][answer["action"]] == answer["propensity"]
            assert sum(answer["probabilities"].values()) == pytest.approx(1)
        deferred = client.post(f"{one}/decisions", json={"id": "later", "context": CONTEXT, "defer": True}).json()
        assert client.post(f"{one}/decisions/{deferred['id']}/activate").json()["status"] == "activated"
        rewards = [{"decision_id": row["id"], "reward": at % 3} for at, row in enumerate(rows)]
        assert client.post(f"{one}/rewards", json={"rewards": rewards}).status_code == 200
        assert client.post(f"{one}/episodes/close").json() == {"rows": 21, "version": 1}

        versions = client.get(f"{one}/versions").json()
        assert [(version["version"], version["published"]) for version in versions] == [(0, False), (1, True)]
        assert client.post(f"{one}/versions/0/publish").json() == {"version": 0, "previous": 1}
        assert client.post(f"{one}/decisions", json={"context": CONTEXT}).json()["version"] == 0
        answer = client.post(f"{one}/versions/9/publish")
        assert (answer.status_code, code(answer)) == (404, "unknown_version")
        assert code(client.post(f"{one}/versions/x/publish")) == "unknown_version"

        added = client.post(f"{one}/actions", json={"label": "white"})
        assert added.status_code == 201
        assert [action["label"] for action in added.json()["actions"]] == [*ACTIONS, "white"]
        assert client.delete(f"{one}/actions/red").status_code == 200
        assert code(client.delete(f"{one}/actions/mauve")) == "unknown_action"
        chosen = client.post(f"{one}/decisions", json={"context": CONTEXT}).json()["probabilities"]
        assert chosen.get("red", 0) == 0

        changed = client.patch(one, json={"floor": 0.1, "default_reward": 0.5}).json()["settings"]
        assert (changed["floor"], changed["default_reward"], changed["aggregation"]) == (0.1, 0.5, "earliest")
        fixed = client.patch(one, json={"seed": 1})
        assert code(fixed) == "wrong_shape" and "the field 'seed', but it is not taken here" in fixed.text

        assert client.delete(f"{one}/units/u1").json() == {"decisions": 10, "rewards": 10}
        assert code(client.delete(f"{one}/units/nobody")) == "unknown_unit"

        assert client.delete(one).json()["archived"] is True
        answer = client.post(f"{one}/decisions", json={"context": CONTEXT})
        assert (answer.status_code, code(answer)) == (409, "archived")
        assert client.get(one).json()["archived"] is True


def test_labels_that_are_numbers_can_stand_in_addresses(open_server: RunningServer) -> None:
    with open_server.client() as client:
        client.post("/v1/experiments", json={"name": "numbered", "actions": 3})
        gone = client.delete("/v1/experiments/numbered/actions/1").json()
        assert [action["active"] for action in gone["actions"]] == [True, False, True]


@pytest.fixture(scope="module")
def learned(open_server: RunningServer) -> RunningServer:
    """A server with an experiment that has learned once."""
    with open_server.client() as client:
        create_shop(client, "learned")
        rows = [{"id": f"d{at}", "context": [at / 7, 1, -at]} for at in range(12)]
        client.post("/v1/experiments/learned/decisions", json={"decisions": rows})
        rewards = [{"decision_id": row["id"], "reward": at % 4} for at, row in enumerate(rows)]
        client.post("/v1/experiments/learned/rewards", json={"rewards": rewards})
        client.post("/v1/experiments/learned/episodes/close")
        client.post("/v1/experiments/learned/decisions", json={"id": "open", "context": CONTEXT})
    return open_server


def test_the_log_can_be_downloaded_and_opened(learned: RunningServer, tmp_path) -> None:
    with learned.client() as client:
        answer = client.get("/v1/experiments/learned/log")
        assert answer.headers["Content-Type"] == "application/x-ndjson"
        rows = [json.loads(line) for line in answer.text.splitlines()]
        assert [row["decision_id"] for row in rows] == [*(f"d{at}" for at in range(12)), "open"]
        assert [row["reward"] for row in rows[:12]] == [at % 4 for at in range(12)]
        settled = client.get("/v1/experiments/learned/log", params={"settled": "true"}).text.splitlines()
        assert len(settled) == 12
        table = client.get("/v1/experiments/learned/log", params={"format": "parquet", "settled": "true"})
        assert table.headers["Content-Type"] == "application/vnd.apache.parquet"
        (tmp_path / "log.parquet").write_bytes(table.content)
        answer = client.get("/v1/experiments/learned/log", params={"format": "csv"})
        assert (answer.status_code, code(answer)) == (422, "wrong_shape")
    import pyarrow.parquet as pq

    read = pq.read_table(tmp_path / "log.parquet")
    assert read["decision_id"].to_pylist() == [f"d{at}" for at in range(12)]
    assert {"x0", "x1", "x2", "action", "propensity", "reward"} <= set(read.column_names)


def test_a_log_without_rows_is_an_empty_file(open_server: RunningServer) -> None:
    with open_server.client() as client:
        create_shop(client, "empty")
        assert client.get("/v1/experiments/empty/log").content == b""
        table = client.get("/v1/experiments/empty/log", params={"format": "parquet"})
        assert (table.status_code, table.content[:4]) == (200, b"PAR1")


def test_a_column_of_several_types_has_one_in_a_parquet_file(open_server: RunningServer, tmp_path) -> None:
    contexts = [{"age": 31, "vip": True}, {"age": "old", "vip": 0}, {"age": True, "vip": 1}, {"age": 2.5}]
    with open_server.client() as client:
        create_shop(client, "mixed", context={"kind": "columns"}, actions=["red", 7])
        rows = [{"context": context, "eligible": ["red", 7] if at else [7]} for at, context in enumerate(contexts)]
        assert client.post("/v1/experiments/mixed/decisions", json={"decisions": rows}).status_code == 200
        assert len(client.get("/v1/experiments/mixed/log").text.splitlines()) == 4
        client.post("/v1/experiments/mixed/episodes/close")
        answer = client.get("/v1/experiments/mixed/log", params={"format": "parquet"})
        assert answer.status_code == 200, answer.text
        (tmp_path / "log.parquet").write_bytes(answer.content)
        encoder = from_bytes(client.get("/v1/experiments/mixed/model").content, "the model").encoder
    table = parquet.read_table(tmp_path / "log.parquet")
    assert table["age"].to_pylist() == ["31", "old", "true", "2.5"]
    assert table["vip"].to_pylist() == [1.0, 0.0, 1.0, None]
    assert table["eligible"].to_pylist()[:2] == [["7"], ["red", "7"]] and table["action"][0].as_py() == "7"
    # It is what the service has learned.
    raw = {name: table[name].to_pylist() for name in ("age", "vip")}
    sent = {name: [context.get(name) for context in contexts] for name in ("age", "vip")}
    assert encoder is not None
    assert (encoder.transform(raw) == encoder.transform(sent)).all()


def test_labels_have_one_type_in_a_parquet_file_whichever_were_chosen(open_server: RunningServer, tmp_path) -> None:
    with open_server.client() as client:
        create_shop(client, "chosen", context={"kind": "columns"}, actions=["red", 7])
        line = {"action": 7, "eligible": ["red", 7], "propensity": 0.5, "reward": 1.0, "context": {"age": 31}}
        rows = "".join(json.dumps({"decision_id": f"d{at}", **line}) + "\n" for at in range(3))
        answer = client.post("/v1/experiments/chosen/log", content=rows, headers={"content-type": "application/jsonl"})
        assert answer.status_code == 200, answer.text
        table = client.get("/v1/experiments/chosen/log", params={"format": "parquet"})
        (tmp_path / "log.parquet").write_bytes(table.content)
    found = parquet.read_table(tmp_path / "log.parquet").to_pylist()
    assert [(row["action"], row["eligible"]) for row in found] == [("7", ["red", "7"])] * 3


def test_a_downloaded_log_can_be_imported_into_another_experiment(learned: RunningServer) -> None:
    with learned.client() as client:
        create_shop(client, "copy")
        content = client.get("/v1/experiments/learned/log", params={"settled": "true"}).content
        assert client.post("/v1/experiments/copy/log", content=content, headers=LINES).json()["recorded"] == 12
        again = client.post("/v1/experiments/copy/log", content=content, headers=LINES).json()
        assert again == {"recorded": 0, "duplicates": 12}
        assert client.post("/v1/experiments/copy/episodes/close").json() == {"rows": 12, "version": 1}
        copied = client.get("/v1/experiments/copy/log", params={"settled": "true"}).text.splitlines()
    for mine, theirs in zip(map(json.loads, copied), map(json.loads, content.splitlines()), strict=True):
        names = ("decision_id", "action", "reward", "propensity", "x0", "x1", "x2")
        assert {name: mine[name] for name in names} == {name: theirs[name] for name in names}


def test_a_bad_line_of_an_import_is_named(learned: RunningServer) -> None:
    with learned.client() as client:
        create_shop(client, "lines")
        before = learned.records("lines")
        good = '{"decision_id": "a", "context": [1, 2, 3], "action": "red", "reward": 1}'
        for bad, place in [("{", "line 2"), ('{"context": [1, 2, 3]}', None), ('{"context": {"a": []}}', None)]:
            body = f"{good}\n{bad}\n".encode()
            answer = client.post("/v1/experiments/lines/log", content=body, headers=LINES)
            assert answer.status_code in (400, 422)
            assert place is None or answer.json()["error"]["where"] == place
        assert learned.records("lines") == before


def test_a_refused_part_of_a_long_import_says_what_is_recorded(learned: RunningServer, monkeypatch) -> None:
    monkeypatch.setattr(log_routes, "PART", 2)
    with learned.client() as client:
        create_shop(client, "parts")
        before = learned.records("parts")
        actions = ["red", "red", "blue", "mauve"]
        rows = [{"decision_id": f"i{at}", "context": CONTEXT, "action": one} for at, one in enumerate(actions)]
        content = "\n".join(map(json.dumps, rows)).encode()
        answer = client.post("/v1/experiments/parts/log", content=content, headers=LINES)
        assert code(answer) == "invalid"
        assert answer.json()["error"]["where"] == "line 4"
        assert "the first 2 rows are recorded" in answer.json()["error"]["remedy"]
        assert learned.records("parts") == before + 2
        good = content.replace(b"mauve", b"green")
        answer = client.post("/v1/experiments/parts/log", content=good, headers=LINES)
        assert answer.json() == {"recorded": 2, "duplicates": 2}


def test_a_model_can_be_downloaded_and_imported(learned: RunningServer) -> None:
    with learned.client() as client:
        content = client.get("/v1/experiments/learned/model").content
        first = client.get("/v1/experiments/learned/model", params={"version": 0}).content
        assert first != content
        made = from_bytes(content, "the download").decide(np.array([CONTEXT]))
        assert str(made.actions[0]) in ACTIONS
        create_shop(client, "imported")
        kind = {"Content-Type": "application/octet-stream"}
        made = client.post("/v1/experiments/imported/model", content=content, headers=kind)
        assert made.status_code == 200, made.text
        assert client.get("/v1/experiments/imported/versions").json()[-1]["version"] == made.json()["version"]
        before = learned.records("imported")
        for bad in (b"", b"PK\x03\x04", b"\x80\x04\x95", content[:-1], content[:60] + b"\xff" * 50 + content[110:]):
            answer = client.post("/v1/experiments/imported/model", content=bad, headers=kind)
            assert answer.status_code == 400, bad[:20]
        assert learned.records("imported") == before
        answer = client.get("/v1/experiments/learned/model", params={"version": 77})
        assert (answer.status_code, code(answer)) == (404, "unknown_version")


def test_metrics_count_what_happened(tmp_path) -> None:
    with running_server(tmp_path) as server, server.client() as client:
        create_shop(client)
        rows = [{"id": f"d{at}", "context": CONTEXT} for at in range(3)]
        for _ in range(2):
            client.post("/v1/experiments/shop/decisions", json={"decisions": rows})
        client.post("/v1/experiments/shop/decisions", json={"context": CONTEXT})
        client.post("/v1/experiments/shop/rewards", json={"decision_id": "d0", "reward": 1})
        client.post("/v1/experiments/shop/rewards", json={"decision_id": "d0", "reward": "1"})
        answer = client.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    text = answer.text
    assert 'spuir_decisions_total{experiment="shop",outcome="recorded"} 4' in text
    assert 'spuir_decisions_total{experiment="shop",outcome="replayed"} 3' in text
    assert 'spuir_rewards_total{experiment="shop",outcome="joined"} 1' in text
    assert 'spuir_requests_total{method="POST",route="/v1/experiments/{name}/rewards",status="422"} 1' in text
    assert "spuir_ready 1" in text
    assert "spuir_elected 1" in text
    assert "spuir_problems 0" in text
    for line in text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) \w+ .+|\w+({(\w+=\"[^\"]*\",?)+})? -?[\d.e+-]+", line), line
    counts = [
        int(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith("spuir_commit_seconds_bucket")
    ]
    assert counts == sorted(counts)


def test_requests_carry_their_ids_and_traces_into_the_log(tmp_path, caplog) -> None:
    caplog.set_level(logging.INFO, "spuir.service")
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    with running_server(tmp_path, access_log=True) as server, server.client() as client:
        answer = client.get("/v1/experiments", headers={"X-Request-Id": "abc-1", "traceparent": trace})
        assert (answer.headers["X-Request-Id"], answer.headers["traceparent"]) == ("abc-1", trace)
        made = client.get("/v1/experiments", headers={"X-Request-Id": "not an id!", "traceparent": "nonsense"})
        assert made.headers["X-Request-Id"] not in ("", "not an id!")
        assert "traceparent" not in made.headers
        assert client.get("/v1/experiments").headers["X-Request-Id"] != made.headers["X-Request-Id"]
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records if record.message == "request"]
    first = next(line for line in lines if line.get("request_id") == "abc-1")
    assert first["trace_id"] == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert (first["method"], first["route"], first["status"]) == ("GET", "/v1/experiments", 200)


def test_a_failure_is_logged_as_one_line_of_json() -> None:
    try:
        raise ValueError("broken\nin two lines")
    except ValueError:
        record = logging.LogRecord("spuir.service", logging.ERROR, "", 0, "it %s", ("failed",), sys.exc_info())
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line)["message"] == "it failed"
    assert "ValueError" in json.loads(line)["traceback"]


def test_the_probes_say_whether_decisions_can_be_recorded(tmp_path) -> None:
    with running_server(tmp_path) as server, server.client() as client:
        assert client.get("/health").json() == {"status": "ok"}
        assert client.get("/ready").json() == {"status": "ok"}


def test_stopping_finishes_open_requests(tmp_path) -> None:
    """Requests that were accepted before the end are answered, and what they were answered is in the log."""
    answered: list[str] = []
    with running_server(tmp_path) as server:
        with server.client() as client:
            create_shop(client)

        def send(number: int) -> None:
            with server.client() as client:
                try:
                    for at in range(500):
                        body = {"id": f"{number}-{at}", "context": CONTEXT}
                        answer = client.post("/v1/experiments/shop/decisions", json=body)
                        if answer.status_code != 200:
                            return
                        answered.append(answer.json()["id"])
                except Exception:  # the server has closed the connection between two requests
                    return

        senders = [threading.Thread(target=send, args=(number,)) for number in range(8)]
        for sender in senders:
            sender.start()
        until = time.monotonic() + 30
        while len(answered) < 50 and time.monotonic() < until:
            time.sleep(0.001)
    for sender in senders:
        sender.join()
    with running_server(tmp_path) as server, server.client() as client:
        assert server.records() >= len(answered)
        for one in answered[-20:]:
            assert client.get(f"/v1/experiments/shop/decisions/{one}").status_code == 200


def test_a_column_that_comes_late_in_a_long_log_has_its_type(tmp_path) -> None:
    one = "/v1/experiments/shop"
    padding = "x" * 1_000
    with running_server(tmp_path, max_body=1 << 24) as server, server.client() as client:
        create_shop(client, context={"kind": "columns"})
        for number in range(6):  # more than the beginning of a file, in which types are looked for
            rows: list[dict] = [{"context": {"age": at, "city": None, "text": padding}} for at in range(1_000)]
            if number == 5:
                last = {"age": 0.5, "city": "Oslo", "new": True, "text": "2026-11-18"}
                rows.append({"id": "last", "context": last, "unit": "ann"})
                rows.pop(0)
            assert client.post(f"{one}/decisions", json={"decisions": rows}).status_code == 200
        (tmp_path / "log.parquet").write_bytes(client.get(f"{one}/log?format=parquet").content)
        client.post(f"{one}/decisions", json={"context": {"age": "old", "city": "Rome"}})
        (tmp_path / "mixed.parquet").write_bytes(client.get(f"{one}/log?format=parquet").content)
    assert parquet.read_table(tmp_path / "mixed.parquet")["age"].to_pylist()[-2:] == ["0.5", "old"]
    table = parquet.read_table(tmp_path / "log.parquet")
    assert table.num_rows == 6_000
    (found,) = (row for row in table.to_pylist() if row["decision_id"] == "last")
    expected = {"age": 0.5, "city": "Oslo", "new": True, "text": "2026-11-18", "unit_id": "ann"}
    assert {name: found[name] for name in expected} == expected

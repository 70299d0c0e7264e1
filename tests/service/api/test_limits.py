"""Size and slowness: large, slow and idle clients are refused or closed, and do not stop the others."""

import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spuir.service.api.connections import LARGEST_HEAD
from tests.service.api.servers import ACTIONS, CONTEXT, RunningServer, code, create_shop, running_server

HEAD = b"POST /v1/experiments/shop/decisions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
ROW = b'{"context": [1, 2, 3]}'


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A server with small limits and little patience."""
    limits = {"max_body": 20_000, "max_import": 30_000, "max_rows": 10, "header_seconds": 1.0, "idle_seconds": 2.0}
    with running_server(tmp_path_factory.mktemp("small"), **limits) as server:
        with server.client() as client:
            create_shop(client)
        yield server


def answer_to(connection: socket.socket) -> bytes:
    """Return everything that a server sends before it closes the connection."""
    parts: list[bytes] = []
    try:
        while piece := connection.recv(65536):
            parts.append(piece)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def test_a_body_above_the_limit_is_refused_before_it_is_read(small: RunningServer) -> None:
    with small.connect() as connection:
        connection.sendall(HEAD + b"Content-Length: 10000000000\r\n\r\n")  # and not one byte of it
        answer = answer_to(connection)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"code":"too_large"' in answer


def test_a_body_of_unknown_length_is_refused_when_it_passes_the_limit(small: RunningServer) -> None:
    with small.connect() as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(3):
            connection.sendall(b"2000\r\n" + b" " * 0x2000 + b"\r\n")
        answer = answer_to(connection)
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_body_at_the_limit_is_read(small: RunningServer) -> None:
    with small.client() as client:
        kind = {"Content-Type": "application/json"}
        body = ROW + b" " * (20_000 - len(ROW))
        assert client.post("/v1/experiments/shop/decisions", content=body, headers=kind).status_code == 200
        answer = client.post("/v1/experiments/shop/decisions", content=body + b" ", headers=kind)
        assert (answer.status_code, code(answer)) == (413, "too_large")


def test_too_many_rows_are_refused(small: RunningServer) -> None:
    with small.client() as client:
        before = small.records()
        rows = [{"context": CONTEXT}] * 11
        answer = client.post("/v1/experiments/shop/decisions", json={"decisions": rows})
        assert (answer.status_code, code(answer)) == (413, "too_large")
        assert answer.json()["error"]["where"] == "decisions"
        rewards = [{"decision_id": "d", "reward": 1}] * 11
        assert client.post("/v1/experiments/shop/rewards", json={"rewards": rewards}).status_code == 413
        assert small.records() == before
        assert client.post("/v1/experiments/shop/decisions", json={"decisions": rows[:10]}).status_code == 200


def test_an_import_has_a_limit_of_its_own(small: RunningServer) -> None:
    with small.client() as client:
        row = b'{"context": [1, 2, 3], "action": "red", "reward": 1, "decision_id": "i%d"}\n'
        body = b"".join(row % number for number in range(250))
        assert 15_000 < len(body) < 30_000
        kind = {"Content-Type": "application/x-ndjson"}
        answer = client.post("/v1/experiments/shop/log", content=body, headers=kind)
        assert answer.json() == {"recorded": 250, "duplicates": 0}
        assert client.post("/v1/experiments/shop/log", content=body, headers=kind).json()["duplicates"] == 250
        assert client.post("/v1/experiments/shop/log", content=body * 2, headers=kind).status_code == 413


def test_heads_without_end_are_refused(small: RunningServer) -> None:
    with small.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n")
        sent = 0
        try:
            while sent < 100 * LARGEST_HEAD:
                sent += connection.send(b"X-Header: " + b"x" * 200 + b"\r\n")
        except OSError:
            pass  # the server has closed the connection
    assert sent < 100 * LARGEST_HEAD


SLOW = {
    "says nothing": b"",
    "half a head": b"GET /health HT",
    "no end of the head": HEAD,
    "no body": HEAD + b"Content-Length: 20\r\n\r\n",
    "half a body": HEAD + b"Content-Length: 20\r\n\r\n{",
    "chunks that do not come": HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
}


@pytest.mark.parametrize("sent", SLOW.values(), ids=SLOW)
def test_a_client_that_stops_is_closed(small: RunningServer, sent: bytes) -> None:
    before = small.records()
    with small.connect() as connection:
        connection.sendall(sent)
        assert not answer_to(connection).startswith(b"HTTP/1.1 2")  # recv would wait 30 s if it stayed open
    assert small.records() == before


def test_a_client_that_drips_is_closed(small: RunningServer) -> None:
    """One byte every tenth of a second is activity, and still too slow."""
    with small.connect() as connection:
        connection.sendall(HEAD + b"Content-Length: 10000\r\n\r\n")
        closed = False
        for _ in range(300):
            try:
                connection.sendall(b" ")
            except OSError:
                closed = True
                break
            time.sleep(0.1)
    assert closed


def test_an_idle_connection_is_closed_and_a_used_one_is_not(small: RunningServer) -> None:
    with small.connect() as connection:
        for _ in range(10):  # shorter pauses than a busy machine could draw out to the limit
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while b'"ok"' not in answer:  # which may come in pieces
                answer += (piece := connection.recv(65536))
                assert piece
            time.sleep(0.3)
        assert answer_to(connection) == b""


def test_what_is_not_http_gets_the_same_shape_of_error(small: RunningServer) -> None:
    with small.connect() as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
        answer = answer_to(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"malformed"' in answer


IDLE = """
import resource, socket, sys
port, number = map(int, sys.argv[1:])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(number)]
print(len(held), flush=True)
sys.stdin.read()
"""
"""A program that opens connections, says nothing, and holds them until its input ends."""


def decide_beside_idle_connections(folder: Path, number: int) -> None:
    """Open connections that say nothing, from another process, and decide beside them."""
    with running_server(folder, header_seconds=300.0) as server, server.client() as client:
        create_shop(client)
        command = [sys.executable, "-c", IDLE, str(server.port), str(number)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as idle:
            assert idle.stdout is not None
            assert idle.stdout.readline() == b"%d\n" % number
            for _ in range(20):
                assert client.post("/v1/experiments/shop/decisions", json={"context": CONTEXT}).status_code == 200
            idle.communicate()


def test_idle_connections_do_not_stop_the_service(tmp_path: Path) -> None:
    decide_beside_idle_connections(tmp_path, 200)


@pytest.mark.faults
def test_ten_thousand_idle_connections_do_not_stop_the_service(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 10_500:
        pytest.skip(f"the system allows a process {hard} open files, and 10,000 connections need more")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        decide_beside_idle_connections(tmp_path, 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_actions_have_a_limit(small: RunningServer) -> None:
    with small.client() as client:
        answer = client.post("/v1/experiments", json={"name": "many", "actions": ACTIONS * 10_000})
        assert (answer.status_code, code(answer)) == (413, "too_large")

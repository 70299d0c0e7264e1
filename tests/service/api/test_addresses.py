"""Addresses: answers have request ids, nothing is redirected, misspelt parameters and foreign pages are refused."""

import socket
import time

import pytest

from spuir.service.api import sending
from tests.service.api.servers import CONTEXT, RunningServer, code, create_shop


@pytest.mark.parametrize(
    ("method", "address", "status"),
    [("GET", "/nowhere", 404), ("PUT", "/health", 405), ("OPTIONS", "/v1/experiments", 405), ("GET", "/health", 200)],
)
def test_every_answer_has_a_request_id_and_is_counted(
    open_server: RunningServer, method: str, address: str, status: int
) -> None:
    with open_server.client() as client:
        answer = client.request(method, address, headers={"X-Request-Id": "mine"})
        assert (answer.status_code, answer.headers["X-Request-Id"]) == (status, "mine")
        assert client.request(method, address).headers["X-Request-Id"]
        counted = [line for line in client.get("/metrics").text.splitlines() if "spuir_requests_total{" in line]
    assert any(f'status="{status}"' in line for line in counted)


def test_an_address_with_a_slash_at_its_end_is_another_one(open_server: RunningServer) -> None:
    with open_server.client() as client:
        create_shop(client, "slash")
        for method in ("GET", "DELETE"):
            answer = client.request(method, "/v1/experiments/slash/")
            assert (answer.status_code, code(answer)) == (404, "unknown_route")
        assert not client.get("/v1/experiments/slash").json()["archived"]


@pytest.mark.parametrize("query", ["fromat=parquet", "format=jsonl&format=parquet", "format=jsonl&x="])
def test_a_parameter_that_would_be_ignored_is_refused(open_server: RunningServer, query: str) -> None:
    with open_server.client() as client:
        create_shop(client, "query")
        answer = client.get(f"/v1/experiments/query/log?{query}")
    assert (answer.status_code, code(answer)) == (422, "wrong_shape")


def test_without_keys_a_page_of_another_site_can_do_nothing(open_server: RunningServer) -> None:
    with open_server.client() as client:
        create_shop(client, "pages")
        client.post("/v1/experiments/pages/decisions", json={"context": CONTEXT})
        close = "/v1/experiments/pages/episodes/close"
        for origin in ("http://shop.example", "null", "http://localhost.example", "http://127.0.0.1.example:8000"):
            # A browser sends such a request without asking, since it has no body; the header says whose page it is.
            answer = client.post(close, headers={"Origin": origin})
            assert (answer.status_code, code(answer)) == (403, "forbidden")
        assert client.get("/v1/experiments/pages").json()["counts"].get("episodes", 0) == 0
        assert client.post(close, headers={"Origin": open_server.url}).json()["rows"] == 1


def test_ids_of_single_decisions_do_not_crowd_out_busy_addresses(open_server: RunningServer) -> None:
    with open_server.client() as client:
        create_shop(client, "busy")
        for number in range(20):
            client.get(f"/v1/experiments/busy/decisions/{number}")
        client.get("/v1/experiments/busy")
    assert "/v1/experiments/busy" in open_server.service.routed
    assert not any("/decisions/" in address for address in open_server.service.routed)


def test_a_download_ends_when_its_client_is_gone(open_server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    send_stream = sending._send_stream

    async def watched(*arguments: object) -> int:
        sent.append(await send_stream(*arguments))  # type: ignore[arg-type]
        return sent[-1]

    monkeypatch.setattr(sending, "_send_stream", watched)
    with open_server.client() as client:
        create_shop(client, "download")
        rows = [{"context": CONTEXT} for _ in range(1_000)]
        for _ in range(12):
            assert client.post("/v1/experiments/download/decisions", json={"decisions": rows}).status_code == 200
    with open_server.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(b"GET /v1/experiments/download/log HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
    until = time.monotonic() + 20
    while not sent and time.monotonic() < until:
        time.sleep(0.02)
    assert sent == [sending.GONE]

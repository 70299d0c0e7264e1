"""Who may do what: every route is closed without a key, and each key does what its roles and experiments allow."""

import re
import time

import httpx
import pytest

from spuir.service.api.app import OPERATIONS
from spuir.service.api.operations import Operation
from spuir.service.keys import ROLES
from tests.service.api.servers import ACTIONS, CONTEXT, RunningServer, code, create_shop, running_server

PROBES = {"/health", "/ready"}
"""Addresses that answer without a key, for the machine that restarts the service. They say nothing else."""


def filled(path: str, name: str = "shop") -> str:
    """Return an address with something in the place of each parameter."""
    values = {"name": name, "version": "0", "label": "red", "id": "d1", "unit": "u1"}
    return re.sub(r"{(\w+)}", lambda part: values[part[1]], path)


def addresses(server: RunningServer) -> set[tuple[str, str]]:
    """Return every method and address that the router of a server knows."""
    return {
        (method, route.path)  # type: ignore[attr-defined]
        for route in server.service.router.routes
        for method in route.app.operations  # type: ignore[attr-defined]
    }


def test_only_the_probes_answer_without_a_key(closed_server: RunningServer) -> None:
    found = addresses(closed_server)
    assert len(found) == len(OPERATIONS) >= 24
    with closed_server.client() as client:
        for method, path in sorted(found):
            answer = client.request(method, filled(path))
            if path in PROBES:
                assert answer.status_code == 200, path
                assert answer.json() == {"status": "ok"}
            else:
                assert (answer.status_code, code(answer)) == (401, "unauthorized"), path
                assert answer.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer spuir_000000000000_" + "a" * 43,
        "Basic dXNlcjpwYXNz",
        "Bearer \u00e9",
        "Bearer " + "x" * 5000,
    ],
)
def test_a_wrong_key_is_no_key(closed_server: RunningServer, header: str) -> None:
    with closed_server.client() as client:
        answer = client.get("/v1/experiments", headers=[(b"Authorization", header.encode("latin-1"))])
        assert (answer.status_code, code(answer)) == (401, "unauthorized")


def test_the_secret_of_another_key_does_not_open(closed_server: RunningServer) -> None:
    one, other = closed_server.key("read"), closed_server.key("read")
    mixed = other[:18] + "_" + one[19:]
    assert mixed != other
    with closed_server.client(mixed) as client:
        assert client.get("/v1/experiments").status_code == 401
    with closed_server.client(other) as client:
        assert client.get("/v1/experiments").status_code == 200


@pytest.mark.parametrize("role", ROLES)
def test_each_role_opens_its_routes_and_no_others(closed_server: RunningServer, role: str) -> None:
    with closed_server.client(closed_server.key(role)) as client:
        for operation in OPERATIONS:
            # The experiment does not exist, so that what is allowed changes nothing.
            answer = client.request(operation.method, filled(operation.path, "nowhere"))
            allowed = operation.role in (None, "any", role) or role == "admin"
            assert (answer.status_code == 403) != allowed, (role, operation.method, operation.path)
            if not allowed:
                assert code(answer) == "forbidden"


EXPECTED = {
    "decide": {"POST /decisions", "POST /decisions/{id}/activate"},
    "reward": {"POST /rewards"},
    "read": {"GET ", "GET /decisions/{id}", "GET /versions", "GET /log", "GET /model"},
}


def test_the_table_of_roles_is_the_documented_one() -> None:
    table: dict[str, set[str]] = {}
    for one in OPERATIONS:
        if one.role not in (None, "any") and "{name}" in one.path:
            table.setdefault(str(one.role), set()).add(f"{one.method} {one.path.partition('{name}')[2]}")
    assert {role: table[role] for role in EXPECTED} == EXPECTED
    assert all(one.startswith(("POST", "PUT", "PATCH", "DELETE")) for one in table["admin"])


def limited(operation: Operation) -> bool:
    return "{name}" in operation.path


def test_a_limited_key_sees_nothing_of_other_experiments(closed_server: RunningServer) -> None:
    with closed_server.client(closed_server.key("admin")) as admin:
        create_shop(admin, "mine")
        create_shop(admin, "theirs")
        body = {"id": "d1", "context": CONTEXT}
        assert admin.post("/v1/experiments/theirs/decisions", json=body).status_code == 200
        assert admin.post("/v1/experiments/mine/decisions", json=body).status_code == 200
    with closed_server.client(closed_server.key("admin", experiments=["mine"])) as client:
        for operation in filter(limited, OPERATIONS):
            answer = client.request(operation.method, filled(operation.path, "theirs"))
            assert (answer.status_code, code(answer)) == (404, "unknown_experiment"), operation.path
        assert [one["name"] for one in client.get("/v1/experiments").json()] == ["mine"]
        assert client.get("/v1/experiments/mine/decisions/d1").status_code == 200
        answer = client.post("/v1/experiments", json={"name": "another", "actions": ACTIONS})
        assert (answer.status_code, code(answer)) == (403, "forbidden")
        shown = client.get("/metrics").text
        assert 'experiment="mine"' in shown
        assert "theirs" not in shown


def test_a_revoked_key_stops_working_without_a_restart(closed_server: RunningServer) -> None:
    from spuir.service.keys import revoke_key

    token = closed_server.key("read")
    with closed_server.client(token) as client:
        assert client.get("/v1/experiments").status_code == 200
        assert closed_server.service.keys is not None
        revoke_key(closed_server.service.keys.path, token.split("_")[1])
        until = time.monotonic() + 10
        while client.get("/v1/experiments").status_code == 200 and time.monotonic() < until:
            time.sleep(0.05)
        assert client.get("/v1/experiments").status_code == 401


def test_a_key_above_its_rate_is_asked_to_wait(closed_server: RunningServer) -> None:
    with closed_server.client(closed_server.key("read", rate=2.0)) as client:
        answers = [client.get("/v1/experiments") for _ in range(20)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert {answer.status_code for answer in answers} == {200, 429}
    assert all(code(answer) == "rate_limited" and int(answer.headers["Retry-After"]) >= 1 for answer in refused)
    with closed_server.client(closed_server.key("read")) as other:
        assert other.get("/v1/experiments").status_code == 200


def test_the_server_can_limit_every_key(tmp_path) -> None:
    with running_server(tmp_path, rate=1.0) as server, server.client() as client:
        statuses = [client.get("/v1/experiments").status_code for _ in range(5)]
        assert statuses[0] == 200
        assert statuses[-1] == 429
        assert client.get("/health").status_code == 200


def test_without_keys_a_foreign_host_name_is_refused(open_server: RunningServer) -> None:
    """A web page must not reach the service by pointing a name of its own at this machine."""
    with open_server.client() as client:
        answer = client.get("/v1/experiments", headers={"Host": "evil.example:80"})
        assert (answer.status_code, code(answer)) == (403, "forbidden")
        assert client.get("/v1/experiments", headers={"Host": "localhost:1"}).status_code == 200


def test_unknown_addresses_and_methods(open_server: RunningServer) -> None:
    with open_server.client() as client:
        answer = client.get("/v1/nothing")
        assert (answer.status_code, code(answer)) == (404, "unknown_route")
        answer = client.delete("/v1/experiments")
        assert (answer.status_code, code(answer)) == (405, "method_not_allowed")
        assert answer.headers["Allow"] == "POST, GET"


def test_keys_never_reach_the_log(tmp_path, caplog) -> None:
    caplog.set_level("DEBUG")
    with running_server(tmp_path, keys=True, access_log=True) as server:
        token = server.key("read")
        with server.client(token) as client:
            client.get("/v1/experiments")
            client.get("/v1/nothing")
            client.get(f"/v1/experiments/{'x' * 99}", headers={"Authorization": f"Bearer {token[:-1]}"})
    assert any("request" in message for message in caplog.messages)
    assert token[19:30] not in caplog.text
    assert token[19:30] not in (tmp_path / "keys.json").read_text()


def test_an_error_has_one_shape(open_server: RunningServer) -> None:
    with open_server.client() as client:
        answer: httpx.Response = client.get("/v1/experiments/none")
    assert answer.status_code == 404
    assert code(answer) == "unknown_experiment"


def test_the_log_says_whose_requests_are_refused(tmp_path, caplog) -> None:
    caplog.set_level("INFO", "spuir.service")
    with running_server(tmp_path, keys=True, access_log=True) as server:
        with server.client(server.key("read", rate=1.0)) as client:
            assert client.post("/v1/experiments", json={}).status_code == 403
            assert {client.get("/v1/experiments").status_code for _ in range(5)} == {200, 429}
    requests = [record for record in caplog.records if record.message == "request"]
    assert len({record.key for record in requests}) == 1 and requests[0].key is not None  # type: ignore[attr-defined]

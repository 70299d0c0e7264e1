"""The OpenAPI description is the service: the same routes, only documented statuses, answers of the stated shape."""

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from spuir.service.api.app import OPERATIONS, by_path
from spuir.service.api.openapi import describe
from spuir.service.api.refusals import ALL_CODES, STATUSES
from spuir.service.checking import check_store
from spuir.service.config import ServerConfig
from spuir.service.stores import open_store
from tests.service.api.servers import RunningServer, create_shop, running_server

SPEC = describe(OPERATIONS, ServerConfig())


def test_the_description_has_the_routes_and_nothing_else(open_server: RunningServer) -> None:
    routes = {
        (route.path, method.lower())  # type: ignore[attr-defined]
        for route in open_server.service.router.routes
        for method in route.app.operations  # type: ignore[attr-defined]
    }
    described = {(path, method) for path, methods in SPEC["paths"].items() for method in methods}
    assert routes == described
    assert {(path, method.lower()) for path, methods in by_path(OPERATIONS).items() for method in methods} == routes


def test_the_routes_are_those_that_were_promised() -> None:
    one = "/v1/experiments/{name}"
    promised = {
        "/v1/experiments": {"get", "post"},
        one: {"get", "patch", "delete"},
        f"{one}/decisions": {"post"},
        f"{one}/decisions/{{id}}": {"get"},
        f"{one}/decisions/{{id}}/activate": {"post"},
        f"{one}/rewards": {"post"},
        f"{one}/episodes/close": {"post"},
        f"{one}/versions": {"get"},
        f"{one}/versions/{{version}}/publish": {"post"},
        f"{one}/actions": {"post"},
        f"{one}/actions/{{label}}": {"put", "delete"},
        f"{one}/log": {"get", "post"},
        f"{one}/model": {"get", "post"},
        f"{one}/units/{{unit}}": {"delete"},
        "/health": {"get"},
        "/ready": {"get"},
        "/metrics": {"get"},
        "/openapi.json": {"get"},
    }
    assert {path: set(methods) for path, methods in SPEC["paths"].items()} == promised


def test_every_operation_is_complete() -> None:
    names = set()
    for path, methods in SPEC["paths"].items():
        for method, about in methods.items():
            names.add(about["operationId"])
            assert about["summary"]
            expected = set()
            if path not in ("/health", "/ready"):
                assert about["security"] == [{"key": []}]
                expected |= {"401", "403", "429"}
            if "{" in path:
                expected.add("404")
                assert [one["name"] for one in about["parameters"] if one["in"] == "path"] == re.findall(
                    r"{(\w+)}", path
                )
            if "requestBody" in about:
                expected |= {"400", "413", "415", "422"}
            if method != "get":
                expected |= {"503", "507"}
            assert expected <= set(about["responses"]), path
            for status, answer in about["responses"].items():
                assert answer["description"]
                assert answer["content"]
                if status in ("429", "503", "507"):
                    assert answer["headers"]["Retry-After"]["required"]
    assert len(names) == len(OPERATIONS)


def test_every_reference_leads_somewhere() -> None:
    text = json.dumps(SPEC)
    for name in re.findall(r"#/components/schemas/(\w+)", text):
        assert name in SPEC["components"]["schemas"]
    msgspec.json.decode(text)


def test_every_code_has_its_status_and_meaning() -> None:
    for code, (status, meaning) in ALL_CODES.items():
        assert 400 <= status < 600
        assert f"`{code}`: {meaning}" in STATUSES[status]


def test_the_served_description_has_the_limits_of_the_server(tmp_path: Path) -> None:
    with running_server(tmp_path, max_rows=17) as server, server.client() as client:
        served = client.get("/openapi.json").json()
    assert served["openapi"].startswith("3.1")
    assert served["components"]["schemas"]["DecisionsBody"]["properties"]["decisions"]["maxItems"] == 17


HOOKS = Path(__file__).with_name("fuzz_hooks.py")


def fuzz(server: RunningServer, examples: int, phases: str, seed: int = 1) -> None:
    """Send requests made from the description, good and bad, and check every answer against it."""
    token = server.key("admin")
    with server.client(token) as client:
        for number in range(4):
            create_shop(client, f"shop{number or ''}")
        create_shop(client, "columns", context=None)
    command = [
        *(str(Path(sys.executable).with_name("schemathesis")), "run", f"{server.url}/openapi.json"),
        *("--header", f"Authorization: Bearer {token}"),
        *("--max-examples", str(examples), "--phases", phases, "--seed", str(seed)),
        # Whether a valid body is accepted depends on the experiment: its actions, its columns, its policy. What is
        # deleted is archived, and can still be read.
        *("--exclude-checks", "positive_data_acceptance,use_after_free"),
        *("--continue-on-failure", "--no-color", "--suppress-health-check", "all"),
    ]
    # A request with too many rows is answered with 413, which schemathesis does not take for a refusal by default.
    refusals = ["400", "401", "403", "404", "405", "409", "413", "415", "422", "429"]
    (server.folder / "schemathesis.toml").write_text(
        f"[checks.negative_data_rejection]\nexpected-statuses = {refusals}\n"
    )
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": str(HOOKS)}
    done = subprocess.run(command, cwd=server.folder, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "spuir_failures_total" not in server.service.metrics.text().decode()


def test_requests_made_from_the_description_never_break_the_service(tmp_path: Path) -> None:
    with running_server(tmp_path, keys=True) as server:
        fuzz(server, 8, "examples,coverage,fuzzing")


def fuzz_rounds(folder: Path, requests: int) -> int:
    """Send so many requests in rounds, each to a server of its own, and check the logs; return the rounds.

    A server that was sent thousands of requests has hundreds of experiments, and lists of them take long to verify.
    """
    sent = 0
    for seed in itertools.count(1):
        place = folder / str(seed)
        place.mkdir()
        with running_server(place, keys=True) as server:
            fuzz(server, 100, "examples,coverage,fuzzing,stateful", seed)
            sent += sum(server.service.metrics.requests.values.values())
        store = open_store(str(place / "log.db"), read_only=True)
        assert not check_store(store).problems
        store.close()
        if sent >= requests:
            return seed
    raise AssertionError


@pytest.mark.faults
def test_fifty_thousand_requests_made_from_the_description(tmp_path: Path) -> None:
    assert fuzz_rounds(tmp_path, 50_000) > 5

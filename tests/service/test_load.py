"""The load generator sends what it was asked for, counts what was recorded, and stays on this machine by default."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from spuir.cli import main
from spuir.errors import ParameterError
from spuir.service.checking import check_store
from spuir.service.clients.client import Client
from spuir.service.clients.load import put_load
from spuir.service.clients.load_plan import LoadPlan, LoadReport
from spuir.service.stores import open_store
from tests.service.api.servers import running_server
from tests.service.processes import server_process

SMALL: dict[str, Any] = {"columns": 4, "actions": 3, "connections": 8}


def test_its_counts_are_those_of_the_log(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        engine = server.service.engine
        single = LoadPlan(url=server.url, requests=150, repeats=0.3, rewards=0.5, **SMALL)
        first = asyncio.run(put_load(single))
        several = LoadPlan(url=server.url, requests=20, batch=25, rewards=0.1, **SMALL)
        second = asyncio.run(put_load(several))
        about = engine.experiment("load-test")
        rows = [row for block in engine.log("load-test") for row in block]
    assert first.decisions == 150 and second.decisions == 500
    assert first.statuses["replayed"] > 20
    assert not first.failures and not second.failures
    assert about.counts["decisions"] == len(rows) == first.decisions + second.decisions
    assert about.counts["rewards"] == first.rewards + second.rewards
    requests = first.to_dict()["requests"]["decisions"]
    assert requests["answered"] == 150 + first.statuses["replayed"]
    assert 0 < requests["p50"] <= requests["p90"] <= requests["p99"] <= requests["max"]


def test_no_decision_fails_or_mixes_versions_while_the_service_learns(tmp_path: Path) -> None:
    with server_process(tmp_path) as server:
        with Client(server.url) as client:
            context = {"kind": "numbers", "dimension": SMALL["columns"]}
            client.create("load-test", SMALL["actions"], context=context, batch_size=150, window=0.1, seed=1)
            plan = LoadPlan(url=server.url, requests=1_200, seconds=20, rate=400, **SMALL)
            decisions, versions = 0, set[str]()
            for _ in range(10):  # on a busy machine the learner, which stands back, takes longer than one load
                report = asyncio.run(put_load(plan))
                assert not report.failures and report.decisions > 400
                decisions += report.decisions
                versions = {row["policy_version"] for row in client.log("load-test")}
                if len(versions) > 1:
                    break
        server.stop()
    assert len(versions) > 1
    # Each probability is computed again from the version that its record names, and each version from the log.
    checked = check_store(open_store(str(tmp_path / "log.db"), read_only=True))
    assert (checked.decisions, checked.problems) == (decisions, [])


def test_it_ends_after_its_seconds_and_keeps_its_rate(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        report = asyncio.run(put_load(LoadPlan(url=server.url, seconds=1, rate=40, rewards=0, **SMALL)))
    # Requests 0 to 39 are due within the second; on a busy machine some of the last are left out.
    assert 10 <= report.decisions <= 40
    assert report.seconds >= 0.9


def test_failures_are_counted_by_their_codes(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        asyncio.run(put_load(LoadPlan(url=server.url, requests=1, **SMALL)))
        wider = LoadPlan(url=server.url, requests=5, **{**SMALL, "columns": 9})
        report = asyncio.run(put_load(wider))
    assert report.failures == {"invalid": 5} and report.decisions == 0
    assert "5 invalid" in str(report)


def test_another_machine_has_to_be_allowed() -> None:
    with pytest.raises(ParameterError, match="--remote"):
        LoadPlan(url="http://shop.example")
    assert LoadPlan(url="http://shop.example", remote=True)
    with pytest.raises(ParameterError, match="rewards"):
        LoadPlan(rewards=1.5)


def test_the_command_prints_a_table_or_json(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        arguments = ["load-test", "--url", server.url, "--requests", "20", "--columns", "4"]
        table = CliRunner().invoke(main, arguments)
        summary = CliRunner().invoke(main, [*arguments, "--json"])
    assert table.output.startswith("20 decisions and ") and "p99 ms" in table.output
    assert json.loads(summary.output)["decisions"] == 20


def test_an_empty_report_can_be_printed() -> None:
    assert "status: none" in str(LoadReport())

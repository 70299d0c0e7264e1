"""The demonstration learns, prints commands that work, and ends when it is asked to."""

import shlex
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from spuir.cli import main
from spuir.service.demo import COUPONS, NAME, drive, ideas
from tests.service.api.servers import running_server


def test_the_shop_earns_more_in_the_last_third_than_in_the_first(tmp_path: Path) -> None:
    lines: list[str] = []
    with running_server(tmp_path) as server:
        means = drive(server.url, lines.append, episodes=12, seconds=0)
        about = server.service.engine.experiment(NAME)
        printed = ideas(server.url)
        for command in curl_lines(printed):
            done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
            assert done.stdout and '"error"' not in done.stdout, command
    # Reward per visitor goes from about 0.24 to about 0.44; a mean of 800 visitors has a deviation of 0.02.
    assert sum(means[-4:]) / 4 > sum(means[:4]) / 4 + 0.05
    assert about.counts["decisions"] == about.counts["learned"] == 12 * 200
    assert sum(line.startswith("episode") for line in lines) == 12
    assert [one.label for one in about.actions] == list(COUPONS)


def curl_lines(text: str) -> list[str]:
    """Return the commands among the ideas."""
    commands = [line.strip() for line in text.splitlines() if line.strip().startswith("curl")]
    assert len(commands) >= 7
    return commands


def test_the_shop_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    stop = threading.Event()
    with running_server(tmp_path) as server:
        means = drive(server.url, lambda line: stop.set() if "episode  2" in line else None, stop=stop)
    assert len(means) == 2


@pytest.mark.parametrize("place", [["--port", "0"], ["--host", "::1", "--port", "0"]])
def test_the_command_serves_a_shop_and_ends_when_it_is_stopped(tmp_path: Path, place: list[str]) -> None:
    if "::1" in place and not ipv6():
        pytest.skip("this machine has no IPv6")
    command = [sys.executable, "-m", "spuir", "serve", "--demo", *place]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("episode  2"):
                break
        address = shlex.split(next(line for line in lines if "/metrics" in line))[2]
        text = httpx.get(address).text
        process.terminate()
        process.wait(timeout=60)
    assert 'spuir_decisions_total{experiment="coupons",outcome="recorded"} ' in text
    assert not list(tmp_path.iterdir())  # its log was somewhere else, and is gone


def ipv6() -> bool:
    """Return whether this machine has IPv6."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_the_demonstration_does_not_drive_another_service(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        outcome = CliRunner().invoke(main, ["serve", "--demo", "--port", str(server.port)])
        assert server.service.engine.experiments() == []
    assert outcome.exit_code == 2
    assert outcome.output == (
        f"Error: --port: got {server.port}, but another program listens there; choose another port.\n"
    )

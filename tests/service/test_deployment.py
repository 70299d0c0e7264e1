"""The files in deploy/ fit the service: their settings exist, their user has no rights, and their probes work."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from ctypes.util import find_library
from dataclasses import fields
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from spuir.cli import main
from spuir.service import Client
from spuir.service.config import PREFIX, ServerConfig
from tests.service.api.servers import running_server
from tests.service.processes import server_process

DEPLOY = Path(__file__).parents[2] / "deploy"
MOST_EXPOSED = 2.0
"""systemd rates units from 0, fully enclosed, to 10, fully exposed."""


def instructions() -> dict[str, list[str]]:
    """Return the arguments of each kind of instruction of the Dockerfile."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    found: dict[str, list[str]] = {}
    for line in text.replace("\\\n", " ").splitlines():
        name, _, rest = line.partition(" ")
        found.setdefault(name, []).append(rest.strip())
    return found


def test_the_image_runs_as_a_user_without_rights_and_keeps_its_data_in_a_volume() -> None:
    file = instructions()
    assert file["USER"] == ["spuir"] and file["VOLUME"] == ["/data"]
    assert "--system" in file["RUN"][-1] and "--no-create-home" in file["RUN"][-1]
    assert json.loads(file["ENTRYPOINT"][0]) == ["spuir"] and json.loads(file["CMD"][0]) == ["serve"]
    for source in [word for line in file["COPY"] for word in line.split()[:-1] if not word.startswith("--")]:
        assert source.startswith("/opt") or (DEPLOY.parent / source).exists(), source


def test_the_environment_of_the_image_is_a_configuration() -> None:
    pairs = dict(pair.split("=", 1) for line in instructions()["ENV"] for pair in shlex.split(line))
    given = {name.removeprefix(f"{PREFIX}_").lower(): value for name, value in pairs.items() if name.startswith(PREFIX)}
    assert set(given) <= {item.name for item in fields(ServerConfig)}
    outcome = CliRunner().invoke(main, ["serve", "--show-config"], env=pairs)
    shown = json.loads(outcome.output)
    assert {name: str(shown[name]) for name in given} == given
    assert shown["key_file"] is not None  # so that it may listen on all addresses


def test_the_health_check_of_the_image_works(tmp_path: Path) -> None:
    (line,) = instructions()["HEALTHCHECK"]
    command = json.loads(line.partition("CMD")[2])
    with running_server(tmp_path) as server:
        environment = {**os.environ, "SPUIR_PORT": str(server.port)}
        subprocess.run([sys.executable, *command[1:]], env=environment, check=True, timeout=30)
    gone = subprocess.run([sys.executable, *command[1:]], env=environment, capture_output=True, timeout=30, check=False)
    assert gone.returncode != 0


def test_the_configuration_file_of_the_unit_is_one() -> None:
    outcome = CliRunner().invoke(main, ["serve", "--config", str(DEPLOY / "serve.toml"), "--show-config"])
    assert json.loads(outcome.output)["store"] == "/var/lib/spuir/spuir.db"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze, which comes with systemd")
def test_systemd_takes_the_unit_and_rates_it_as_enclosed(tmp_path: Path) -> None:
    text = (DEPLOY / "spuir.service").read_text(encoding="utf-8")
    unit = tmp_path / "spuir.service"
    unit.write_text(text.replace("/opt/spuir/bin/spuir", sys.executable), encoding="utf-8")
    verified = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", str(unit)], capture_output=True, text=True, check=True
    )
    (level,) = re.findall(r"exposure level for spuir\.service: ([\d.]+)", rated.stdout)
    assert float(level) <= MOST_EXPOSED


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None or find_library("seccomp") is None, reason="needs systemd and libseccomp"
)
def test_the_service_serves_learns_and_exports_in_the_enclosure_of_the_unit(tmp_path: Path) -> None:
    enclosed = (sys.executable, str(Path(__file__).with_name("enclosure.py")), str(DEPLOY / "spuir.service"))
    with server_process(tmp_path, python=enclosed) as server, Client(server.url, patience=5) as client:
        client.create("shop", ["mail", "call"], window=None)
        offers = client.decide_many("shop", [{"age": age, "city": "Oslo"} for age in range(20, 60)])
        client.reward_many("shop", [(offer.id, float(offer.action == "mail")) for offer in offers])
        assert client.wait_for("shop", client.close_episode("shop").version, seconds=20).version == 1
        exported = httpx.get(f"{server.url}/v1/experiments/shop/log?format=parquet", timeout=30)
        assert exported.content.startswith(b"PAR1")
        assert "spuir_learner_failures 0" in httpx.get(f"{server.url}/metrics").text
        assert server.stop() in (0, -signal.SIGTERM)


def test_nothing_in_deploy_names_an_address_elsewhere() -> None:
    for file in DEPLOY.iterdir():
        assert set(re.findall(r"https?://([\w.-]+)", file.read_text(encoding="utf-8"))) <= {"127.0.0.1"}, file.name

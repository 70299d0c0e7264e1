"""``spuir serve``: its configuration, its keys, and what it refuses before it listens."""

import json
from dataclasses import fields
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from spuir.cli import main
from spuir.errors import ParameterError
from spuir.service.config import ServerConfig, is_loopback
from spuir.service.keys import KeyRing


def call(*arguments: object, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, ["serve", *map(str, arguments)], env=env)


def test_the_command_line_wins_over_the_environment_over_the_file_over_the_default(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text('port = 1001\nmax-body = 1002\nmax_rows = 1003\nhost = "127.0.0.2"\naccess-log = true\n')
    env = {"SPUIR_PORT": "2001", "SPUIR_MAX_BODY": "2002", "SPUIR_RATE": "5.5"}
    done = call("--config", file, "--port", 3001, "--show-config", env=env)
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert found["port"] == 3001
    assert (found["max_body"], found["rate"]) == (2002, 5.5)
    assert (found["max_rows"], found["host"], found["access_log"]) == (1003, "127.0.0.2", True)
    assert found["max_waiting"] == ServerConfig().max_waiting
    assert json.loads(call("--show-config", env={"SPUIR_CONFIG": str(file)}).output)["port"] == 1001


def test_every_field_of_the_configuration_is_an_option_with_help_and_a_variable() -> None:
    command = main.get_command(click.Context(main), "serve")
    assert command is not None
    options = {item.name: item for item in command.params if isinstance(item, click.Option)}
    for item in fields(ServerConfig):
        option = options[item.name]
        assert option.help
        assert option.envvar == f"SPUIR_{item.name.upper()}"
        assert item.default is None or option.default == item.default


def test_every_option_of_every_command_has_a_help_text() -> None:
    def check(command: click.Command, path: str) -> None:
        assert command.help, path
        for item in command.params:
            assert not isinstance(item, click.Option) or item.help, f"{path} {item.name}"
        if isinstance(command, click.Group):
            for name, one in command.commands.items():
                check(one, f"{path} {name}")

    command = main.get_command(click.Context(main), "serve")
    assert command is not None
    check(command, "spuir serve")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
def test_other_machines_are_refused_without_keys(tmp_path: Path, host: str) -> None:
    done = call("--host", host, "--store", tmp_path / "log.db")
    assert done.exit_code == 2
    assert "without a key" in done.output
    assert not list(tmp_path.iterdir())
    ServerConfig(host=host, key_file="keys.json")


def test_an_empty_file_of_keys_is_no_key(tmp_path: Path) -> None:
    done = call("--host", "0.0.0.0", "--key-file", tmp_path / "keys.json", "--store", tmp_path / "log.db")
    assert done.exit_code == 2
    assert "run spuir serve keys create" in done.output


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "::1", "[::1]"])
def test_this_machine_needs_no_keys(host: str) -> None:
    assert is_loopback(host)
    ServerConfig(host=host)


@pytest.mark.parametrize(
    "wrong",
    [{"port": -1}, {"port": 70_000}, {"max_body": 0}, {"rate": 0}, {"log_level": "loud"}, {"tls_key": "key.pem"}],
)
def test_values_that_break_a_rule_are_refused(wrong: dict) -> None:
    with pytest.raises(ParameterError):
        ServerConfig(**wrong)


def test_an_unknown_line_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "serve.toml").write_text("prot = 9000\n")
    done = call("--config", tmp_path / "serve.toml", "--show-config")
    assert done.exit_code == 2
    assert "did you mean 'port'?" in done.output


def test_a_password_of_the_store_is_not_shown() -> None:
    shown = call("--store", "postgresql://me:secret@db/spuir", "--show-config").output
    assert "secret" not in shown
    assert "postgresql://me:***@db/spuir" in shown
    shown = call("--store", "postgresql://me:a@b:c@db/spuir?password=secret&sslmode=require", "--show-config").output
    assert "postgresql://me:***@db/spuir?password=***&sslmode=require" in shown


def test_keys_are_created_listed_and_revoked(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    token = call("keys", "create", "--key-file", file, "--role", "decide", "--label", "web").output.strip()
    made = json.loads(
        call(
            "keys", "create", "--key-file", file, "--role", "read", "--experiment", "shop", "--rate", 3, "--json"
        ).output
    )
    assert KeyRing(file).find(f"Bearer {token}".encode()) is not None
    listed = call("keys", "list", "--key-file", file).output
    assert "decide  all experiments" in listed
    assert "read  shop  3/s" in listed
    assert token.split("_", 2)[2] not in listed
    as_json = json.loads(call("keys", "list", "--key-file", file, "--json").output)
    assert [one["roles"] for one in as_json] == [["decide"], ["read"]]
    assert all("hash" not in one for one in as_json)
    assert call("keys", "revoke", "--key-file", file, made["id"]).output == f"revoked {made['id']}\n"
    assert len(KeyRing(file)) == 1
    assert call("keys", "revoke", "--key-file", file, made["id"]).exit_code == 2
    assert call("keys", "create", "--key-file", file, "--role", "boss").exit_code == 2


def test_a_repair_needs_a_check(tmp_path: Path) -> None:
    done = call("--repair", "--store", tmp_path / "log.db")
    assert done.exit_code == 2
    assert "add --check" in done.output


def test_a_store_is_copied_and_checked(tmp_path: Path) -> None:
    from spuir.service.commands import CreateExperiment, Decide, DecisionRow
    from spuir.service.engine import Engine
    from spuir.service.settings import ExperimentSettings
    from spuir.service.stores import open_store

    engine = Engine(open_store(str(tmp_path / "log.db")))
    engine.execute([CreateExperiment(experiment="shop", settings=ExperimentSettings(actions=3, seed=1))])
    engine.execute([Decide(experiment="shop", row=DecisionRow(context=[1.0, 2.0]))] * 5)
    copied = call("--store", tmp_path / "log.db", "--backup", tmp_path / "copy.db")
    assert copied.exit_code == 0, copied.output
    engine.close()
    done = call("--store", tmp_path / "copy.db", "--check")
    assert done.exit_code == 0, done.output
    assert "5 decisions: all is well" in done.output
    content = (tmp_path / "copy.db").read_bytes()
    assert content.count(b'"context":[1.0,2.0]') == 5
    (tmp_path / "copy.db").write_bytes(content.replace(b'"context":[1.0,2.0]', b'"context":[1.0,3.0]', 1))
    damaged = call("--store", tmp_path / "copy.db", "--check")
    assert damaged.exit_code == 1
    assert "decisions: 1 problem\n" in damaged.output
    repaired = call("--store", tmp_path / "copy.db", "--check", "--repair")
    assert "given up" in repaired.output
    assert repaired.exit_code == 0, repaired.output
    assert call("--store", tmp_path / "log.db", "--backup", tmp_path / "copy.db").exit_code == 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--check", "--demo"], "--check: got with --demo, but each of them is all that is done; drop one"),
        (["--backup", "b.db", "--show-config"], "--backup: got with --show-config"),
        (["--check"], "--store: got 'absent.db', but there is no such file; name the store of a service"),
        (["--backup", "b.db"], "--store: got 'absent.db', but there is no such file"),
        (["--demo", "--tls-certificate", "c.pem", "--tls-key", "k.pem"], "--demo: got with --tls-certificate"),
        (["--tls-certificate", "c.pem", "--tls-key", "k.pem"], "they cannot be used ([Errno 2]"),
        (["--tls-certificate", "no.pem", "--tls-key", "no.pem"], "name a certificate and its private key"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(tmp_path, monkeypatch, options, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "no.pem").write_text("this is no certificate")
    outcome = CliRunner().invoke(main, ["serve", "--store", "absent.db", *options])
    assert outcome.exit_code == 2
    assert sentence in outcome.output and outcome.output.count("\n") == 1
    assert [one.name for one in tmp_path.iterdir()] == ["no.pem"]

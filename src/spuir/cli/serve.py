"""``spuir serve``: run the decision service, check its log, and manage its API keys."""

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from spuir.base.counting import counted
from spuir.cli import options
from spuir.cli.output import print_json
from spuir.errors import MissingExtraError, ParameterError
from spuir.service.config import PREFIX, ServerConfig

KEY_FILE = click.option(
    "--key-file",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    envvar=f"{PREFIX}_KEY_FILE",
    help="File of API keys.",
)


def _with_config(command: Callable[..., Any]) -> Callable[..., Any]:
    return options.config(command, envvar=f"{PREFIX}_CONFIG")


@click.group("serve", invoke_without_command=True)
@_with_config
@options.from_fields(ServerConfig, PREFIX)
@click.option("--check", is_flag=True, help="Verify the log and everything that follows from it, then exit.")
@click.option("--repair", is_flag=True, help="With --check: give up damaged decisions and rewards, then verify.")
@click.option(
    "--backup",
    type=click.Path(dir_okay=False),
    help="Copy the log to this new file, also while the service runs, then exit.  [default: none]",
)
@click.option("--show-config", is_flag=True, help="Print the configuration as JSON, then exit.")
@click.option("--demo", is_flag=True, help="Serve an experiment that drives itself, to see it learn within a minute.")
@click.pass_context
def serve(
    context: click.Context,
    *,
    check: bool,
    repair: bool,
    backup: str | None,
    show_config: bool,
    demo: bool,
    **given: Any,
) -> None:
    """Serve decisions over HTTP.

    Every decision and reward is on the disk before it is acknowledged, and everything that the service learns follows
    from that log. Only this machine can connect unless API keys are configured. Each option is taken from the command
    line, or else from the environment (--max-body from SPUIR_MAX_BODY), or else from the file named by --config.
    """
    if context.invoked_subcommand is not None:
        return
    config = ServerConfig(**given)
    asked = {"--check": check, "--backup": backup is not None, "--show-config": show_config, "--demo": demo}
    chosen = [name for name, wanted in asked.items() if wanted]
    if len(chosen) > 1:
        raise ParameterError(chosen[0], f"with {chosen[1]}", "each of them is all that is done", "drop one")
    if show_config:
        shown = asdict(config) | {"store": config.shown_store}
        print_json(shown)
        return
    _require_extra()
    if repair and not check:
        raise ParameterError("--repair", "alone", "a repair is followed by a check", "add --check")
    if check:
        context.exit(_check(config, repair))
    if backup is not None:
        store = _opened(config)
        store.backup(backup)
        store.close()
        click.echo(f"copied {config.shown_store} to {backup}")
    elif demo:
        _demo(config)
    else:
        _run(config)


def _run(config: ServerConfig) -> None:
    """Serve until the process is asked to stop."""
    from spuir.service.engine import Engine
    from spuir.service.server import serve as serve_engine
    from spuir.service.stores import open_store
    from spuir.service.versions.learner_process import ChildProcess

    _check_tls(config)
    serve_engine(Engine(open_store(config.store), learner=ChildProcess()), config)


def _check_tls(config: ServerConfig) -> None:
    """Refuse a certificate that cannot be used, before the store is opened."""
    if config.tls_certificate is not None:
        import ssl

        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(config.tls_certificate, config.tls_key)
        except OSError as failure:  # those of TLS among them
            got, rule = f"{config.tls_certificate} and {config.tls_key}", f"they cannot be used ({failure})"
            raise ParameterError("TLS", got, rule, "name a certificate and its private key, as PEM files") from None


def _opened(config: ServerConfig, **how: Any) -> Any:
    """Return the store, which has to be there, for reading unless it is said otherwise."""
    from spuir.service.stores import open_store

    if not config.store.startswith("postgres") and not Path(config.store).is_file():
        raise ParameterError("--store", repr(config.store), "there is no such file", "name the store of a service")
    return open_store(config.store, **{"read_only": True, **how})


def _demo(config: ServerConfig) -> None:
    """Serve a log that is thrown away at the end, and drive it."""
    from spuir.service.demo import drive, ideas

    for option in ("key_file", "tls_certificate"):
        if getattr(config, option) is not None:
            rule = "the demonstration drives itself without keys and TLS"
            raise ParameterError("--demo", f"with --{option.replace('_', '-')}", rule, "drop one")
    if config.port == 0:
        config = replace(config, port=_free_port(config.host))
    with suppress(OSError), socket.create_connection((config.host, config.port), timeout=1):
        # The shop would drive whatever listens there.
        raise ParameterError("--port", config.port, "another program listens there", "choose another port")
    host = f"[{config.host}]" if ":" in config.host else config.host
    address, stop = f"http://{host}:{config.port}", threading.Event()

    def shop() -> None:
        while not stop.wait(0.1):
            with suppress(OSError), socket.create_connection((config.host, config.port), timeout=1):
                break
        if not stop.is_set():
            click.echo(ideas(address))
            drive(address, click.echo, stop=stop)

    with TemporaryDirectory(prefix="spuir-demo-") as folder:
        visitors = threading.Thread(target=shop, daemon=True)
        visitors.start()
        try:
            _run(replace(config, store=str(Path(folder) / "demo.db"), log_level="error"))
        finally:
            stop.set()


def _free_port(host: str) -> int:
    """Return a port of this machine on which nothing listens."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


def _require_extra() -> None:
    """Refuse to start without the libraries of the service."""
    try:
        import httptools  # noqa: F401
        import msgspec  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as missing:
        rule = "the service needs it"
        raise MissingExtraError("service", f"no {missing.name}", rule, "pip install 'spuir[service]'") from None


def _check(config: ServerConfig, repair: bool) -> int:
    """Verify a store, after giving up what is damaged if asked to; print what was found and return the exit code."""
    from spuir.service.checking import check_store, repair_store

    # Damage is to be listed here, not to end the opening.
    how: dict[str, Any] = {} if config.store.startswith("postgres") else {"verify": False}
    store = _opened(config, read_only=not repair, **how)
    if repair:
        for line in repair_store(store):
            click.echo(line)
    found = check_store(store)
    store.close()
    for line in [*found.notes, *found.problems]:
        click.echo(line)
    counts = {"record": found.records, "version": found.versions, "decision": found.decisions}
    checked = f"checked {', '.join(counted(count, noun) for noun, count in counts.items())}"
    outcome = counted(len(found.problems), "problem") if found.problems else "all is well"
    click.echo(f"{checked}: {outcome}")
    return 1 if found.problems else 0


@serve.group("keys")
def keys() -> None:
    """Create, list and revoke API keys; a running service notices within a second."""
    _require_extra()


@keys.command("create")
@KEY_FILE
@click.option(
    "--role",
    "roles",
    multiple=True,
    required=True,
    help="What the key may do: decide, reward, read or admin, which may do everything; repeatable.",
)
@click.option(
    "--experiment", "experiments", multiple=True, help="Experiment to limit the key to; repeatable.  [default: all]"
)
@click.option("--rate", type=float, help="Requests per second.  [default: as the server is configured]")
@click.option("--label", default="", help="Text that says what the key is for.  [default: none]")
@options.JSON
def create(key_file: Path, roles: tuple[str, ...], experiments: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Create an API key and print it. It is shown this once; the file keeps a hash of it only."""
    from spuir.service.keys import create_key

    key, token = create_key(key_file, roles, experiments=experiments or None, **given)
    click.echo(json.dumps({"id": key.id, "key": token}) if as_json else token)


@keys.command("list")
@KEY_FILE
@options.JSON
def list_keys(key_file: Path, as_json: bool) -> None:
    """List the API keys with their rights."""
    from spuir.service.keys import read_keys

    rows = [
        {
            "id": key.id,
            "roles": list(key.roles),
            "experiments": None if key.experiments is None else list(key.experiments),
            "rate": key.rate,
            "created": key.created,
            "label": key.label,
        }
        for key in read_keys(key_file)
    ]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        scope = "all experiments" if row["experiments"] is None else ", ".join(row["experiments"])
        rate = "" if row["rate"] is None else f"  {row['rate']:g}/s"
        click.echo(f"{row['id']}  {','.join(row['roles'])}  {scope}{rate}  {row['created']}  {row['label']}".rstrip())


@keys.command("revoke")
@KEY_FILE
@click.argument("number", metavar="ID")
def revoke(key_file: Path, number: str) -> None:
    """Revoke the API key with this id."""
    from spuir.service.keys import revoke_key

    gone = revoke_key(key_file, number)
    click.echo(f"revoked {gone.id}")

"""The configuration of a server: where it listens, where the log is, and its limits.

Each value comes from the command line, the environment (``SPUIR_PORT``), a TOML file or its default, in this order of
precedence. The command line is made from the fields of :class:`ServerConfig`.
"""

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from spuir.errors import ParameterError

PREFIX = "SPUIR"
"""Environment variables begin with this."""
LEVELS = ("debug", "info", "warning", "error")


class _Allowed(NamedTuple):
    """What a value may be. The rules of parameters would load the numerics, which a help text does without."""

    clause: str
    test: Callable[[Any], bool]


_TEXT = _Allowed("a text", lambda value: isinstance(value, str))
_FLAG = _Allowed("true or false", lambda value: isinstance(value, bool))
_COUNT = _Allowed("an integer ≥ 1", lambda value: type(value) is int and value >= 1)
_PORT = _Allowed("a port from 0 to 65535", lambda value: type(value) is int and 0 <= value <= 65535)
_POSITIVE = _Allowed("a finite number > 0", lambda value: type(value) in (int, float) and 0 < value < float("inf"))
_LEVEL = _Allowed(f"one of {', '.join(LEVELS)}", lambda value: value in LEVELS)


def _option(default: Any, doc: str, allowed: _Allowed) -> Any:
    return field(default=default, metadata={"doc": doc, "allowed": allowed})


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """Everything that can be configured.

    Raises
    ------
    ParameterError
        A value breaks its rule, or the server would be reachable from other machines without keys.
    """

    host: str = _option("127.0.0.1", "Address to listen on.", _TEXT)
    port: int = _option(8000, "Port to listen on; 0 takes a free one.", _PORT)
    store: str = _option("spuir.db", "Where the log is: a file for SQLite, or postgresql://… for a server.", _TEXT)
    key_file: str | None = _option(
        None, "File of API keys, made by spuir serve keys; required if other machines can connect.", _TEXT
    )
    max_body: int = _option(1 << 20, "Largest body of a request in bytes.", _COUNT)
    max_import: int = _option(1 << 28, "Largest body of an imported log or model in bytes.", _COUNT)
    max_rows: int = _option(1000, "Most decisions or rewards of one request.", _COUNT)
    max_waiting: int = _option(10_000, "Most rows that wait to be recorded; more are refused with status 503.", _COUNT)
    rate: float | None = _option(
        None, "Requests per second that one API key may send, unless the key has its own rate.", _POSITIVE
    )
    request_seconds: float = _option(30.0, "Longest time to record what a request asks for, in seconds.", _POSITIVE)
    header_seconds: float = _option(10.0, "Longest time to receive the head of a request, in seconds.", _POSITIVE)
    idle_seconds: float = _option(75.0, "Time after which an idle connection is closed, in seconds.", _POSITIVE)
    shutdown_seconds: float = _option(30.0, "Longest time to finish open requests at the end, in seconds.", _POSITIVE)
    tls_certificate: str | None = _option(None, "File with the TLS certificate, for HTTPS.", _TEXT)
    tls_key: str | None = _option(None, "File with the private key of the TLS certificate.", _TEXT)
    log_level: str = _option("info", "Least important messages to log: debug, info, warning or error.", _LEVEL)
    access_log: bool = _option(False, "Log every request.", _FLAG)

    @property
    def shown_store(self) -> str:
        """The address of the store without its password."""
        hidden = re.sub(r"(://[^:/?]*):.*@", r"\1:***@", self.store)
        return re.sub(r"(password=)[^&]*", r"\1***", hidden)

    def __post_init__(self) -> None:
        for item in fields(self):
            value, allowed = getattr(self, item.name), item.metadata["allowed"]
            if not (value is None and item.default is None) and not allowed.test(value):
                rule, remedy = f"it must be {allowed.clause}", f"the default is {item.default!r}"
                raise ParameterError(item.name, repr(value), rule, remedy)
        if self.key_file is None and not is_loopback(self.host):
            rule = "other machines could connect without a key"
            remedy = (
                "create keys with spuir serve keys create and name their file with --key-file, or use --host 127.0.0.1"
            )
            raise ParameterError("host", repr(self.host), rule, remedy)
        if (self.tls_certificate is None) != (self.tls_key is None):
            rule = "a certificate and its key go together"
            raise ParameterError("TLS", "only one of two files", rule, "give --tls-certificate and --tls-key")


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can connect to an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False

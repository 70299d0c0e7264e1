"""The configuration of a server: where it listens, where the log is, and its limits.

Each value comes from the command line, the environment (``SPUIR_PORT``), a TOML file or its default, in this order of
precedence. The command line is made from the fields of :class:`ServerConfig`.
"""

import ipaddress
import re
from dataclasses import dataclass

from spuir.base.parameters import COUNT, FLAG, POSITIVE, TEXT, Rule, check, one_of, optional, parameter
from spuir.errors import ParameterError

PREFIX = "SPUIR"
"""Environment variables begin with this."""
_PORT = Rule("a port from 0 to 65535", lambda value: type(value) is int and 0 <= value <= 65535)
_LEVEL = one_of("debug", "info", "warning", "error")


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """Everything that can be configured.

    Raises
    ------
    ParameterError
        A value breaks its rule, or the server would be reachable from other machines without keys.
    """

    host: str = parameter("127.0.0.1", "Address to listen on.", TEXT)
    port: int = parameter(8000, "Port to listen on; 0 takes a free one.", _PORT)
    store: str = parameter("spuir.db", "Where the log is: a file for SQLite, or postgresql://… for a server.", TEXT)
    key_file: str | None = parameter(
        None, "File of API keys, made by spuir serve keys; required if other machines can connect.", optional(TEXT)
    )
    max_body: int = parameter(1 << 20, "Largest body of a request in bytes.", COUNT)
    max_import: int = parameter(1 << 28, "Largest body of an imported log or model in bytes.", COUNT)
    max_rows: int = parameter(1000, "Most decisions or rewards of one request.", COUNT)
    max_waiting: int = parameter(10_000, "Most rows that wait to be recorded; more are refused with status 503.", COUNT)
    rate: float | None = parameter(
        None, "Requests per second that one API key may send, unless the key has its own rate.", optional(POSITIVE)
    )
    request_seconds: float = parameter(30.0, "Longest time to record what a request asks for, in seconds.", POSITIVE)
    header_seconds: float = parameter(10.0, "Longest time to receive the head of a request, in seconds.", POSITIVE)
    idle_seconds: float = parameter(75.0, "Time after which an idle connection is closed, in seconds.", POSITIVE)
    shutdown_seconds: float = parameter(30.0, "Longest time to finish open requests at the end, in seconds.", POSITIVE)
    tls_certificate: str | None = parameter(None, "File with the TLS certificate, for HTTPS.", optional(TEXT))
    tls_key: str | None = parameter(None, "File with the private key of the TLS certificate.", optional(TEXT))
    log_level: str = parameter("info", "Least important messages to log: debug, info, warning or error.", _LEVEL)
    access_log: bool = parameter(False, "Log every request.", FLAG)

    @property
    def shown_store(self) -> str:
        """The address of the store without its password."""
        hidden = re.sub(r"(://[^:/?]*):.*@", r"\1:***@", self.store)
        return re.sub(r"(password=)[^&]*", r"\1***", hidden)

    def __post_init__(self) -> None:
        check(self, "server")
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

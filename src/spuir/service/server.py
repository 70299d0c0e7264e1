"""The server: an engine on a store, behind HTTP, until it is asked to stop."""

import asyncio
import gc
import logging
import math
import sys
from contextlib import suppress

import uvicorn

from spuir.base.process_settings import one_blas_thread
from spuir.errors import ParameterError
from spuir.service.api.app import Service
from spuir.service.api.connections import GuardedProtocol, close_overdue
from spuir.service.config import ServerConfig, is_loopback
from spuir.service.engine import Engine
from spuir.service.json_logs import set_up_logs

log = logging.getLogger("spuir.service")

SWEEP = 10
"""Slow clients are looked for every so many turns of the server, of a tenth of a second each."""
SWITCH = 0.001
"""Seconds after which a busy thread lets others run, such as one that reads a new model while requests come."""
GARBAGE = 20_000
"""New objects after which those that only refer to each other are looked for."""


class GuardedServer(uvicorn.Server):
    """The HTTP server, which closes connections of clients that take too long."""

    def __init__(self, config: uvicorn.Config, limits: ServerConfig) -> None:
        super().__init__(config)
        self.limits = limits

    async def on_tick(self, counter: int) -> bool:
        """Look for slow clients now and then."""
        if counter % SWEEP == 0:
            now = asyncio.get_running_loop().time()
            close_overdue(self.server_state.connections, now, self.limits.header_seconds, self.limits.idle_seconds)
        return await super().on_tick(counter)


def make_server(service: Service) -> GuardedServer:
    """Return the HTTP server of a service, ready to run."""
    config = service.config
    return GuardedServer(
        uvicorn.Config(
            service,
            host=config.host,
            port=config.port,
            http=GuardedProtocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=4096,
            timeout_keep_alive=math.ceil(config.idle_seconds),
            timeout_graceful_shutdown=math.ceil(config.shutdown_seconds),
            ssl_certfile=config.tls_certificate,
            ssl_keyfile=config.tls_key,
        ),
        config,
    )


def serve(engine: Engine, config: ServerConfig) -> None:
    """Serve an engine until the process is asked to stop (SIGTERM, SIGINT); what was accepted is finished.

    Raises
    ------
    ParameterError
        Other machines could connect, and there are no keys.
    """
    set_up_logs(config.log_level)
    _allow_many_connections()
    service = Service(engine, config)
    if service.keys is None:
        log.warning("no keys are configured: every program on this machine may call the service")
    elif not len(service.keys):
        if not is_loopback(config.host):
            rule = "a service that other machines can reach needs at least one"
            raise ParameterError("keys", f"none in {config.key_file}", rule, "run spuir serve keys create")
        log.warning("the file of keys is empty: every request will be refused")
    sys.setswitchinterval(SWITCH)
    # What there is now stays, and what requests leave behind holds no cycles: looking for some is rarely worth it.
    gc.freeze()
    gc.set_threshold(GARBAGE)
    with one_blas_thread:  # a group of requests is too small for several threads of linear algebra
        make_server(service).run()


def _allow_many_connections() -> None:
    """Raise the limit on open files to what the system allows."""
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        log.debug("open files: %d, at most %d", soft, hard)

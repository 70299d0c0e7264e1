"""The decision service: what was acknowledged is durable, and the learned state is a function of the log."""

from typing import TYPE_CHECKING, Any

from spuir.errors import MissingExtraError

if TYPE_CHECKING:
    from spuir.service.clients.client import AsyncClient, Client
    from spuir.service.engine import Engine

_PUBLIC = {"AsyncClient": "clients.client", "Client": "clients.client", "Engine": "engine"}

__all__ = ["AsyncClient", "Client", "Engine"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the base install has none of the libraries that they need."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'spuir.service' has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(f"spuir.service.{_PUBLIC[name]}"), name)
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("spuir"):
            raise
        remedy = 'run pip install "spuir[service]"'
        raise MissingExtraError("service", f"no {missing.name}", "the service needs it", remedy) from None

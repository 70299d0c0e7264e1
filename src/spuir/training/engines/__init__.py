"""Engines by name: where the parts of a log are worked on. To add one: its file, and one line here."""

from typing import Any

from spuir.base.registry import Registry
from spuir.training.engines.base import Engine

ENGINES = Registry(
    "engine",
    {
        "local": "spuir.training.engines.local:Local",
        "dask": "spuir.training.engines.dask:Dask",
        "spark": "spuir.training.engines.spark:Spark",
    },
)


def make_engine(name: str, **options: Any) -> Engine:
    """Return the engine called ``name``; a wrong name is answered with the nearest."""
    return ENGINES.get(name)(**options)

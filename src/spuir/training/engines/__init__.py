"""Engines by name: where training works on the parts of a log. To add one: its file, and one line here."""

from typing import Any

from spuir.base.registry import Registry
from spuir.training.engines.base import WorkEngine

ENGINES = Registry(
    "engine",
    {
        "local": "spuir.training.engines.local:Local",
        "dask": "spuir.training.engines.dask:Dask",
        "spark": "spuir.training.engines.spark:Spark",
    },
)


def make_engine(name: str, **options: Any) -> WorkEngine:
    """Return the engine called ``name``; an unknown name raises with the nearest one."""
    return ENGINES.get(name)(**options)

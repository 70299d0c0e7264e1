"""Context maps by name: columns in, columns out. To add one: its file, and one line here.

A map is drawn once by ``init``, fixed once by the first batch where it has something to choose, and saved with
the policy; from then on the same context always gives the same columns.
"""

from dataclasses import fields
from typing import Any

from spuir.base.parameters import check_names
from spuir.base.registry import Registry
from spuir.features.base import FeatureMap, FeatureRows, MapState, enough_rows

__all__ = ["FEATURES", "FeatureMap", "FeatureRows", "MapState", "enough_rows", "list_features", "make_features"]

FEATURES = Registry(
    "feature map",
    {
        "identity": "spuir.features.identity:Identity",
        "intercept": "spuir.features.identity:Intercept",
        "fourier": "spuir.features.fourier:Fourier",
        "nystroem": "spuir.features.nystroem:Nystroem",
    },
)


def list_features() -> list[str]:
    """Return the names of the registered feature maps."""
    return FEATURES.names()


def make_features(name: str, **parameters: Any) -> FeatureMap:
    """Build the feature map called ``name``; a wrong name or parameter is answered with the nearest right one."""
    target: type[FeatureMap] = FEATURES.get(name)
    check_names(parameters, [item.name for item in fields(target)], "feature map", name)
    return target(**parameters)

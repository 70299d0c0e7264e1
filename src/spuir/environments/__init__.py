"""Environments by name. To add one: its file, and one line here."""

from typing import Any

from spuir.base.parameters import check_names, parameter_names
from spuir.base.registry import Registry
from spuir.environments.base import Environment

ENVIRONMENTS = Registry(
    "environment",
    {
        "synthetic": "spuir.environments.synthetic:Synthetic",
        "heterogeneous": "spuir.environments.heterogeneous:Heterogeneous",
        "nonlinear": "spuir.environments.nonlinear:Nonlinear",
        "linear": "spuir.environments.linear:Linear",
        "coupon": "spuir.environments.coupon:Coupon",
        "classification": "spuir.environments.classification:Classification",
        "uci-coupon": "spuir.environments.uci_coupon:UciCoupon",
        "criteo-recent": "spuir.environments.criteo:CriteoRecent",
        "criteo-all": "spuir.environments.criteo:CriteoAll",
    },
)


def list_environments() -> list[str]:
    """Return the names of the registered environments."""
    return ENVIRONMENTS.names()


def make_environment(name: str, **parameters: Any) -> Environment:
    """Build the environment called ``name``.

    Parameters
    ----------
    name
        A registered name.
    **parameters
        ``n_actions``, ``dim``, ``seed`` (of its true parameters) and its other parameters.
    """
    target: type[Environment] = ENVIRONMENTS.get(name)
    check_names(parameters, parameter_names(target), "environment", name)
    return target(**parameters)

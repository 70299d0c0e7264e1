"""Experiments by name: the paper's figures and tables, and our own. To add one, write its file and add a line here."""

from spuir.base.registry import Registry
from spuir.reproduction.base import Experiment

EXPERIMENTS = Registry(
    "experiment",
    {
        "figure1": "spuir.reproduction.experiments.figure1:EXPERIMENT",
        "table1": "spuir.reproduction.experiments.table1:EXPERIMENT",
        "table2": "spuir.reproduction.experiments.table2:EXPERIMENT",
        "figure3a": "spuir.reproduction.experiments.figure3a:EXPERIMENT",
        "figure3b": "spuir.reproduction.experiments.figure3b:EXPERIMENT",
        "figure3c": "spuir.reproduction.experiments.figure3c:EXPERIMENT",
        "figure3d": "spuir.reproduction.experiments.figure3d:EXPERIMENT",
        "figure3e": "spuir.reproduction.experiments.figure3e:EXPERIMENT",
        "figure3f": "spuir.reproduction.experiments.figure3f:EXPERIMENT",
        "theorem1": "spuir.reproduction.experiments.theorem1:EXPERIMENT",
        "theorem2": "spuir.reproduction.experiments.theorem2:EXPERIMENT",
        "theorem3": "spuir.reproduction.experiments.theorem3:EXPERIMENT",
        "regret": "spuir.reproduction.experiments.regret:EXPERIMENT",
        "rate": "spuir.reproduction.experiments.rate:EXPERIMENT",
        "fairness": "spuir.reproduction.experiments.fairness:EXPERIMENT",
        "sketches": "spuir.reproduction.experiments.sketches:EXPERIMENT",
        "many-actions": "spuir.reproduction.experiments.many_actions:EXPERIMENT",
        "real": "spuir.reproduction.experiments.real:EXPERIMENT",
        "catalogue": "spuir.reproduction.experiments.catalogue:EXPERIMENT",
        "default": "spuir.reproduction.experiments.default:EXPERIMENT",
    },
)


def list_experiments() -> list[str]:
    """Return the names of the registered experiments."""
    return EXPERIMENTS.names()


def get_experiment(name: str) -> Experiment:
    """Return the experiment called ``name``; an unknown name is refused with the nearest known one."""
    return EXPERIMENTS.get(name)

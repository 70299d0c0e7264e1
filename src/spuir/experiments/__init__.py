"""Experiments by name: the paper's figures and tables, and ours beyond. To add one: its file, and one line here."""

from spuir.experiments.base import Experiment
from spuir.registry import Registry

EXPERIMENTS = Registry(
    "experiment",
    {
        "figure1": "spuir.experiments.figure1:EXPERIMENT",
        "table1": "spuir.experiments.table1:EXPERIMENT",
        "table2": "spuir.experiments.table2:EXPERIMENT",
        "figure3a": "spuir.experiments.figure3a:EXPERIMENT",
        "figure3b": "spuir.experiments.figure3b:EXPERIMENT",
        "figure3c": "spuir.experiments.figure3c:EXPERIMENT",
        "figure3d": "spuir.experiments.figure3d:EXPERIMENT",
        "figure3e": "spuir.experiments.figure3e:EXPERIMENT",
        "figure3f": "spuir.experiments.figure3f:EXPERIMENT",
        "theorem1": "spuir.experiments.theorem1:EXPERIMENT",
        "theorem2": "spuir.experiments.theorem2:EXPERIMENT",
        "theorem3": "spuir.experiments.theorem3:EXPERIMENT",
        "regret": "spuir.experiments.regret:EXPERIMENT",
        "rate": "spuir.experiments.rate:EXPERIMENT",
        "fairness": "spuir.experiments.fairness:EXPERIMENT",
        "sketches": "spuir.experiments.sketches:EXPERIMENT",
        "many-actions": "spuir.experiments.many_actions:EXPERIMENT",
        "real": "spuir.experiments.real:EXPERIMENT",
    },
)


def list_experiments() -> list[str]:
    """Return the names of the registered experiments."""
    return EXPERIMENTS.names()


def get_experiment(name: str) -> Experiment:
    """Return the experiment called ``name``; a wrong name is answered with the nearest."""
    return EXPERIMENTS.get(name)

"""Experiments by name: the paper's figures and tables, and our own. To add one, write its file and add a line here."""

from spuir.base.registry import Registry

_NAMES = (
    "overview ablation figure1 table1 table2 figure3a figure3b figure3c figure3d figure3e figure3f theorem1 theorem2 "
    "theorem3 regret sketches many-actions real catalogue default"
).split()
EXPERIMENTS = Registry(
    "experiment",
    {name: f"spuir.reproduction.experiments.{name.replace('-', '_')}:EXPERIMENT" for name in _NAMES},
)


def list_experiments() -> list[str]:
    """Return the names of the registered experiments."""
    return EXPERIMENTS.names()

"""Contextual batched bandits: policies that act unchanged through an episode and learn once from its batch."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "Bandit": "spuir.bandit",
    "load": "spuir.bandit",
    "Batch": "spuir.base.records",
    "Decision": "spuir.base.records",
    "Encoder": "spuir.tables.encoder",
    "Episode": "spuir.logs.episode",
    "evaluate": "spuir.evaluation.evaluate",
    "run": "spuir.loop",
    "tune": "spuir.evaluation.tune",
    "History": "spuir.results.history",
    "make_policy": "spuir.policies",
    "list_policies": "spuir.policies",
    "make_environment": "spuir.environments",
    "list_environments": "spuir.environments",
    "list_experiments": "spuir.reproduction",
    "errors": "spuir.errors",
}
_MODULES = ("errors", "evaluation", "logs", "service", "training")
"""Modules of the package that ``import spuir`` makes known, and imports when they are first used."""

__all__ = ["Bandit", "Batch", "Decision", "Encoder", "Episode", "History", "__version__", "errors", "evaluate"]
__all__ += ["list_environments", "list_experiments", "list_policies", "load", "make_environment", "make_policy", "run"]
__all__ += ["tune"]

if TYPE_CHECKING:
    from spuir import errors
    from spuir.bandit import Bandit, load
    from spuir.base.records import Batch, Decision
    from spuir.environments import list_environments, make_environment
    from spuir.evaluation.evaluate import evaluate
    from spuir.evaluation.tune import tune
    from spuir.logs.episode import Episode
    from spuir.loop import run
    from spuir.policies import list_policies, make_policy
    from spuir.reproduction import list_experiments
    from spuir.results.history import History
    from spuir.tables.encoder import Encoder


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that the command line starts fast."""
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"spuir.{name}")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'spuir' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    """Return the public names: the others are modules and helpers."""
    return sorted(__all__)

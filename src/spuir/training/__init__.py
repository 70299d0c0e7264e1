"""Logs → sums by (episode, action) → a policy: on this machine or on a cluster, in bounded memory."""

from spuir.training.engines import ENGINES, make_engine
from spuir.training.pipeline import Training, train

__all__ = ["ENGINES", "Training", "make_engine", "train"]

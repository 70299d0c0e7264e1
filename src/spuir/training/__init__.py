"""From a log of any size to a policy, in bounded memory: scan, collect, fold, on this machine or on a cluster."""

from spuir.training.engines import ENGINES, make_engine
from spuir.training.pipeline import Training, policy_for_logs, train

__all__ = ["ENGINES", "Training", "make_engine", "policy_for_logs", "train"]

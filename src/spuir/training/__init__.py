"""From a log of any size to a policy, in bounded memory: scan, collect, fold, on this machine or on a cluster."""

from spuir.training.engines import ENGINES, make_engine
from spuir.training.pipeline import train
from spuir.training.record import Training
from spuir.training.start import policy_for_logs

__all__ = ["ENGINES", "Training", "make_engine", "policy_for_logs", "train"]

"""Off-policy evaluation: what a policy would earn, estimated from a log, and whether the log can tell.

How the pieces fit together:

- :class:`LoggedRows` is a block of log rows (contexts, codes of actions, rewards, propensities, weights, eligibility,
  units, episodes); :class:`EvaluationLog` yields a log as such blocks, any number of times, in bounded memory.
- A :class:`Target` is a policy to evaluate; ``probabilities(rows)`` gives (n, M). ``make_target`` makes one from a
  bandit, a path, a table, a rule or a name such as "uniform".
- A :class:`ValueEstimator` turns :class:`TargetRows` (the probabilities of the executed actions, propensities,
  predicted rewards) into :class:`Terms`; :class:`TermSums` adds these up per block.
- An :class:`Estimate` is a value or, after ``minus``, a paired difference; :func:`interval` gives its interval.
- :func:`evaluate` does all of it and returns an :class:`EvaluationReport`.
- :class:`EncodedRows` are log rows in memory, for what learns from them many times: :func:`replay` and :func:`simulate`
  let a policy learn from scratch, and :func:`tune` chooses one.

To follow an evaluation, read ``evaluate.py``, then ``fit_pass.py`` and ``estimate_pass.py``, which read the log once
each, then ``evaluation_report.py`` and ``evaluation_page.py``. To follow a tuning, read ``tune.py``, then
``candidates.py`` (what is compared on held-out rows), ``exploration.py`` (what is compared while learning) and
``tuning_result.py``.
"""

from spuir.evaluation.block_sums import Blocks, Estimate, TermSums
from spuir.evaluation.encoded_rows import EncodedRows
from spuir.evaluation.estimators import TargetRows, Terms, ValueEstimator, make_estimators
from spuir.evaluation.evaluate import action_dist, evaluate
from spuir.evaluation.evaluation_report import EvaluationReport
from spuir.evaluation.intervals import ValueInterval, interval
from spuir.evaluation.logged_rows import EvaluationLog, LoggedRows
from spuir.evaluation.replay import Replay, replay
from spuir.evaluation.reward_models import RewardModel, make_reward_model
from spuir.evaluation.simulation import FittedWorld, fit_world, simulate
from spuir.evaluation.support import Support
from spuir.evaluation.targets import Target, make_target
from spuir.evaluation.tune import tune
from spuir.evaluation.tuning_result import Tuning

__all__ = ["Blocks", "Estimate", "EvaluationLog", "EvaluationReport", "LoggedRows", "ValueEstimator", "ValueInterval"]
__all__ += ["RewardModel", "Support", "Target", "TargetRows", "TermSums", "Terms"]
__all__ += ["action_dist", "evaluate", "interval", "make_estimators", "make_reward_model", "make_target"]
__all__ += ["EncodedRows", "FittedWorld", "Replay", "Tuning", "fit_world", "replay", "simulate", "tune"]

"""The record of one run: one value per episode for everything that is compared."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spuir.base.data_frame import data_frame
from spuir.base.parameters import parameters_of
from spuir.base.records import Batch, Floats
from spuir.environments.base import Environment
from spuir.policies.base import Policy
from spuir.results import figures


def json_parameters(owner: Any) -> dict[str, Any]:
    """Return the parameters of a policy or an environment, with the ``repr`` of values that JSON cannot hold."""
    return {
        name: value if isinstance(value, (bool, int, float, str, NoneType)) else repr(value)
        for name, value in parameters_of(owner).items()
    }


@dataclass(frozen=True, kw_only=True, eq=False)
class History:
    """The episodes 1…N of one run. Episode 0 is decided at random; the policy learns from it, but it is not counted.

    Parameters
    ----------
    policy, environment
        Names, for tables and labels.
    seed, batch_size
        The seed of the run and the number of decisions B in each episode.
    rewards
        (N,) mean reward of each episode.
    regret
        (N,) cumulative regret in expected reward against the best action *for each context*.
    fixed_regret
        (N,) the paper's Reg(n, B): cumulative regret in expected reward against the best *fixed* action in
        hindsight of the first n episodes. It may be negative if the best action depends on the context.
    counts
        (N, M) how often each action was executed.
    decide_seconds, learn_seconds
        (N,) time spent in deciding episode n, and in learning the policy that acted in it. Everything else
        here is the same, bit for bit, whenever the run is repeated.
    clicks, conversions
        (N,) numbers of each in the episode; None where the environment has no clicks.
    parameters
        The policy's parameters.
    """

    policy: str
    environment: str
    seed: int
    batch_size: int
    rewards: Floats
    regret: Floats
    fixed_regret: Floats
    counts: NDArray[np.int64]
    decide_seconds: Floats
    learn_seconds: Floats
    clicks: Floats | None = None
    conversions: Floats | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    def __len__(self) -> int:
        """Return N, the number of episodes."""
        return len(self.rewards)

    @property
    def average_reward(self) -> Floats:
        """Running mean of the rewards up to and including each episode (N,)."""
        return np.cumsum(self.rewards) / np.arange(1, len(self) + 1)

    @property
    def cvr(self) -> Floats | None:
        """Conversions per click of each episode (N,), NaN without a click; None without clicks at all."""
        if self.clicks is None or self.conversions is None:
            return None
        return np.divide(self.conversions, self.clicks, out=np.full(len(self), np.nan), where=self.clicks > 0)

    @property
    def ctcvr(self) -> Floats | None:
        """Conversions per decision of each episode (N,); None where the environment has no clicks."""
        return None if self.conversions is None else self.conversions / self.batch_size

    def summary(self) -> dict[str, float]:
        """Return one number per measure: reward, regret, seconds and, with clicks, conversion rates."""
        steps = len(self) * self.batch_size
        numbers = {
            "average_reward": float(self.rewards.mean()),
            "regret_per_step": float(self.regret[-1]) / steps,
            "fixed_regret_per_step": float(self.fixed_regret[-1]) / steps,
            "decide_seconds": float(self.decide_seconds.mean()),
            "learn_seconds": float(self.learn_seconds.mean()),
        }
        if self.clicks is not None and self.conversions is not None:
            clicks, conversions = float(self.clicks.sum()), float(self.conversions.sum())
            numbers |= {"cvr": conversions / clicks if clicks else float("nan"), "ctcvr": conversions / steps}
        return numbers

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the episode columns by name, each (N,)."""
        named: dict[str, NDArray[Any] | None] = {
            "reward": self.rewards,
            "average_reward": self.average_reward,
            "regret": self.regret,
            "fixed_regret": self.fixed_regret,
            "decide_seconds": self.decide_seconds,
            "learn_seconds": self.learn_seconds,
            "cvr": self.cvr,
            "ctcvr": self.ctcvr,
        }
        named |= {f"count_{j}": self.counts[:, j] for j in range(self.counts.shape[1])}
        return {name: values for name, values in named.items() if values is not None}

    def rows(self) -> list[dict[str, Any]]:
        """Return one flat record per episode: a tidy table."""
        head = {"policy": self.policy, "environment": self.environment, "seed": self.seed}
        columns = {name: values.tolist() for name, values in self.columns().items()}
        return [
            head | {"episode": n + 1} | {name: values[n] for name, values in columns.items()} for n in range(len(self))
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready data: names, parameters, summary and columns."""
        head = {
            "policy": self.policy,
            "environment": self.environment,
            "seed": self.seed,
            "batch_size": self.batch_size,
        }
        columns = {
            name: [None if np.isnan(v) else v for v in values.tolist()] for name, values in self.columns().items()
        }
        return head | {
            "episodes": len(self),
            "parameters": dict(self.parameters),
            "summary": self.summary(),
            "columns": columns,
        }

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per episode."""
        return data_frame(self.rows(), "to_frame")

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw the running average reward; save it as PNG and SVG beside ``path`` if one is given."""
        figure = figures.average_reward([self])
        if path is not None:
            figures.save(figure, path)
        return figure


class Recorder:
    """Collects a run, episode by episode, into a :class:`History`."""

    def __init__(self, policy: Policy, environment: Environment, batch_size: int, seed: int) -> None:
        self._policy, self._environment, self._batch_size, self._seed = policy, environment, batch_size, seed
        self._columns: dict[str, list[Any]] = {}
        self._seconds: dict[str, float] = {}

    def _put(self, name: str, value: Any) -> None:
        self._columns.setdefault(name, []).append(value)

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Record the seconds that the body takes as ``{step}_seconds`` of the next episode that is added."""
        start = perf_counter()
        yield
        self._seconds[step] = perf_counter() - start

    def add(self, expected: Floats, batch: Batch) -> None:
        """Record an episode: the expected rewards (B, M) of its contexts, and what was done and earned."""
        for step, seconds in self._seconds.items():
            self._put(f"{step}_seconds", seconds)
        self._put("rewards", batch.rewards.mean())
        self._put("counts", np.bincount(batch.actions, minlength=expected.shape[1]))
        chosen = expected[np.arange(len(batch)), batch.actions]
        self._put("lost", (expected.max(axis=1) - chosen).sum())
        self._put("ahead", (expected - chosen[:, None]).sum(axis=0))
        if batch.click is not None and batch.conversion is not None:
            self._put("clicks", batch.click.sum())
            self._put("conversions", batch.conversion.sum())

    def history(self) -> History:
        """Return the history of the episodes so far."""
        columns = {name: np.asarray(values, dtype=np.float64) for name, values in self._columns.items()}
        lost, ahead = columns.pop("lost"), columns.pop("ahead")
        counts = columns.pop("counts").astype(np.int64)
        return History(
            policy=self._policy.name or type(self._policy).__name__,
            environment=getattr(self._environment, "name", type(self._environment).__name__),
            seed=self._seed,
            batch_size=self._batch_size,
            counts=counts,
            regret=np.cumsum(lost),
            fixed_regret=np.cumsum(ahead, axis=0).max(axis=1),
            parameters=json_parameters(self._policy),
            **columns,
        )

"""Shares of episodes → a learnt bandit: shares are added in the order of the parts, episodes learnt in their order."""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from spuir.bandit import Bandit
from spuir.training.collect import Harvest, Rows, Share
from spuir.training.engines.local import Local
from spuir.training.scan import Layout

SHARD_ROWS = 65_536
"""Rows of a shard where one episode is summed in parallel; fixed, so that sums do not depend on the workers."""


@dataclass(frozen=True, kw_only=True)
class Learnt:
    """One line of the table that training ends with.

    ``episode`` its number and ``key`` what cut it; ``rows`` logged, ``silent`` of them without a reward, and the mean
    of the other rewards; ``code`` the result of the solve (0 fine), ``seconds`` spent on learning it.
    """

    episode: int
    key: Any
    rows: int
    silent: int
    mean_reward: float | None
    code: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the line as JSON-ready data."""
        return asdict(self)


class Fold:
    """Learns episodes in order, each as soon as its last part has come."""

    def __init__(self, bandit: Bandit, layout: Layout, workers: int, done: int) -> None:
        self.bandit, self.layout, self.next = bandit, layout, done
        self._open: dict[int, Share] = {}
        self._shards = Local(workers)
        self._whole = np.maximum.accumulate(layout.last)

    def take(self, at: int, harvest: Harvest, stop: int) -> Iterator[Learnt]:
        """Add what part ``at`` gave, and learn every episode before number ``stop`` that can be learnt now."""
        for episode, share in harvest.shares.items():
            self._open[episode] = self._open.get(episode, Share()).plus(share)
        while self.next < stop and self._whole[self.next] <= at:
            yield self._learn(self.next, self._open.pop(self.next, Share()))
            self.next += 1

    def _learn(self, episode: int, share: Share) -> Learnt:
        begin = time.perf_counter()
        given, tally = share
        if isinstance(given, Rows):
            self._learn_rows(given.joined())
        elif given is not None:
            # An episode without a single reward is none: later ones move up.
            self.bandit.absorb(replace(given, episode=self.bandit.n_episodes_))
        told = tally.rows - tally.silent
        return Learnt(
            episode=episode,
            key=self.layout.keys[episode],
            rows=tally.rows,
            silent=tally.silent,
            mean_reward=tally.rewards / told if told else None,
            code=self.bandit.last_info_.code if given is not None and self.bandit.last_info_ else 0,
            seconds=time.perf_counter() - begin,
        )

    def _learn_rows(self, given: dict[str, Any]) -> None:
        """Learn an episode from its rows: in shards side by side where sums add up, else in one go."""
        bandit, rows = self.bandit, len(given["rewards"])
        if rows <= SHARD_ROWS or not bandit.n_episodes_ or "additive" not in bandit.policy_.traits:
            bandit.partial_fit(**given)
            return
        cuts = [slice(start, start + SHARD_ROWS) for start in range(0, rows, SHARD_ROWS)]

        def collect(cut: slice) -> Any:
            return bandit.collect(**{name: column[cut] for name, column in given.items()})

        bandit.absorb(reduce(add, self._shards.map(collect, cuts)))

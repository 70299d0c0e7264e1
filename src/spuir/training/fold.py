"""Fold: from the shards of all parts to a bandit that has learned the episodes in their order."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from spuir.bandit import Bandit
from spuir.training.coefficient_moves import Recorded, record
from spuir.training.collect import EpisodeShard, PartShards
from spuir.training.engines.local import Local
from spuir.training.scan import LogScan

SHARD_ROWS = 65_536
"""Rows per shard when one episode is summed in parallel; fixed, so that sums do not depend on the workers."""


@dataclass(frozen=True, kw_only=True)
class EpisodeSummary:
    """What was learned from one episode.

    ``episode`` is its number and ``key`` what cut it; ``rows`` counts its rows, ``silent`` those without a reward, and
    ``mean_reward`` is the mean of the others; ``lowest_propensity`` is that of the rows learned from, None if the log
    has none; ``code`` is the result of the solve (0 = fine), ``seconds`` the time that learning took.
    ``coefficients`` are those after it, where they are recorded.
    """

    episode: int
    key: Any
    rows: int
    silent: int
    mean_reward: float | None
    lowest_propensity: float | None
    code: int
    seconds: float
    coefficients: Recorded | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as JSON-ready data, without coefficients."""
        return {name: value for name, value in asdict(self).items() if name != "coefficients"}


def fold(
    bandit: Bandit,
    parts: Iterable[tuple[int, PartShards]],
    scan: LogScan,
    episodes: range,
    workers: int,
    allow_repeat: bool = True,
) -> Iterator[EpisodeSummary]:
    """Add shards in the order of the parts, and let the bandit learn each episode as soon as its last part is there.

    Parameters
    ----------
    bandit
        Learns in place.
    parts
        The number of each part with its shards, in order.
    scan
        Where the episodes lie in the log, and how they were cut.
    episodes
        The numbers of the episodes to learn.
    workers
        Threads for the sums of one large episode.
    allow_repeat
        Whether to learn an episode that the bandit has learned before.
    """
    complete = np.maximum.accumulate(scan.last)
    open_shards: dict[int, EpisodeShard] = {}
    coming = episodes.start
    for at, part in parts:
        for number, shard in part.shards.items():
            open_shards[number] = open_shards.get(number, EpisodeShard()) + shard
        while coming < episodes.stop and complete[coming] <= at:
            begin = time.perf_counter()
            shard = open_shards.pop(coming, EpisodeShard())
            code = learn_episode(bandit, shard, workers, allow_repeat)
            known = shard.rows - shard.silent
            yield EpisodeSummary(
                episode=coming,
                key=scan.cut.named(scan.keys[coming]),
                rows=shard.rows,
                silent=shard.silent,
                mean_reward=shard.rewards / known if known else None,
                lowest_propensity=shard.lowest if shard.lowest < np.inf else None,
                code=code,
                seconds=time.perf_counter() - begin,
                coefficients=record(bandit, coming, len(scan.keys)),
            )
            coming += 1


def learn_episode(bandit: Bandit, shard: EpisodeShard, workers: int, allow_repeat: bool) -> int:
    """Let the bandit learn one episode; return the code of its solve."""
    if shard.sums is not None:
        # An episode without any reward is not learned and has no number: later ones move up.
        bandit.absorb(replace(shard.sums, episode=bandit.n_episodes_), allow_repeat)
    elif shard.kept:
        _learn_rows(bandit, shard.arguments(), workers, allow_repeat)
    else:
        return 0
    return bandit.last_info_.code if bandit.last_info_ else 0


def _learn_rows(bandit: Bandit, given: dict[str, Any], workers: int, allow_repeat: bool) -> None:
    """Learn an episode from its rows: in parallel shards where sums add up, else in one step."""
    total = len(given["rewards"])
    if total <= SHARD_ROWS or not bandit.n_episodes_ or "additive" not in bandit.policy_.traits:
        bandit.partial_fit(**given, allow_repeat=allow_repeat)
        return
    slices = [slice(start, start + SHARD_ROWS) for start in range(0, total, SHARD_ROWS)]

    def collect(rows: slice) -> Any:
        numbered = np.arange(rows.start, min(rows.stop, total))
        return bandit.collect(**{name: column[rows] for name, column in given.items()}, row_ids=numbered)

    with Local(workers) as threads:
        bandit.absorb(reduce(add, threads.map(collect, slices)), allow_repeat)

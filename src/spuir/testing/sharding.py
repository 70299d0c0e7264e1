"""Laws of shards: the shards of an episode add up to the episode, and shards that do not match are refused."""

import copy
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from spuir.bandit import Bandit
from spuir.base import streams
from spuir.base.records import Batch
from spuir.errors import ShardError
from spuir.policies import Policy
from spuir.storage.shards import Shard
from spuir.testing.trial import (
    DIM,
    N_ACTIONS,
    SIZES,
    TrialRows,
    contexts,
    enriched,
    episode,
    fresh,
    frozen,
    law,
    require,
    require_alike,
    require_close,
    require_equal_states,
    trained,
)


def collected(bandit: Bandit, rows: TrialRows, cuts: list[int]) -> Shard:
    """Return the sum of the shards between the cuts, all collected at the current state."""
    edges = [0, *cuts, len(rows)]
    shards = [bandit.collect(**rows.take(slice(*piece)).columns()) for piece in pairwise(edges)]
    return sum(shards[1:], start=shards[0])


def shards_add_up(policy: Policy) -> None:
    """Check that one, two or five uneven shards, some of them empty, give the same result as the whole episode."""
    whole = trained(policy, SIZES[:1])
    parts = {cuts: trained(policy, SIZES[:1]) for cuts in ((), (0.3,), (0.05, 0.05, 0.5, 0.9))}
    episodes = [episode(policy, 1, 200), enriched(episode(policy, 2, 170)), enriched(episode(policy, 3, 40))]
    for rows in episodes:
        whole.partial_fit(**rows.columns())
        for cuts, bandit in parts.items():
            before = frozen(bandit)
            shard = collected(bandit, rows, [int(cut * len(rows)) for cut in cuts])
            require(frozen(bandit) == before, "collecting changed the state")
            twin = copy.deepcopy(bandit)
            bandit.absorb(shard)
            what = f"{len(rows)} rows in {len(cuts) + 1} shards"
            require_alike(bandit, whole, what)
            require_equal_states(bandit, whole, what)
            twin.absorb(shard)
            require(frozen(twin) == frozen(bandit), "a shard was changed by absorbing it")


def mixed_shards_add_up(policy: Policy) -> None:
    """Check that shards with and without optional columns add up: a missing column means its default."""
    rows = episode(policy, 1, 200)
    rich = enriched(rows)
    late = np.arange(200) >= 90
    full = replace(
        rich,
        sample_weight=np.where(late, rich.sample_weight, 1.0),
        eligible=rich.eligible | ~late[:, None],
        revealed=rich.revealed & late[:, None],
    )
    whole, parts = trained(policy, SIZES[:1]), trained(policy, SIZES[:1])
    whole.partial_fit(**full.columns())
    first, second = rows.take(slice(0, 90)), rich.take(slice(90, 200))
    parts.absorb(parts.collect(**first.columns()) + parts.collect(**second.columns()))
    require_alike(parts, whole, "a plain and a rich shard")
    require_equal_states(parts, whole, "a plain and a rich shard")


def shards_of_nothing_are_no_episode(policy: Policy) -> None:
    """Check that absorbing empty shards alone changes nothing."""
    bandit = trained(policy, SIZES[:1])
    before = frozen(bandit)
    empty = bandit.collect(**episode(policy, 1, 0).columns())
    bandit.absorb(empty + empty)
    require(frozen(bandit) == before, "an empty shard changed the state")


def foreign_shards_are_refused(policy: Policy) -> None:
    """Check that shards of another episode, seed, number of actions, parameter or acting state are refused."""
    bandit, rows = trained(policy, SIZES[:1]), episode(policy, 1, 50)
    own = bandit.collect(**rows.columns())
    grown = trained(policy, SIZES[:1]).add_action("new")
    others = {
        "another episode": trained(policy, SIZES[:2]),
        "another number of actions": grown,
        "another parameter": trained(replace(policy, floor=0.01), SIZES[:1]),
    }
    if "sketched" in policy.traits:
        others["another seed"] = trained(policy, SIZES[:1], seed=8)
    if "foldable" not in policy.traits:
        moved = fresh(policy)
        n = SIZES[0]
        moved.partial_fit(**replace(episode(policy, 0, n), rewards=np.linspace(0.0, 1.0, n)).columns())
        others["another acting state"] = moved
    before = frozen(bandit)
    for what, other in others.items():
        shard = other.collect(**rows.columns())
        _refused(lambda shard=shard: bandit.absorb(shard), what)
        _refused(lambda shard=shard: own + shard, what)
    _refused(lambda: bandit.absorb(own.sums), "something that is no shard")
    require(frozen(bandit) == before, "a refused shard changed the state")
    bandit.absorb(own)
    _refused(lambda: bandit.absorb(own), "a shard absorbed before")


def a_history_folds(policy: Policy) -> None:
    """Check that collecting all episodes, then absorbing them in order, is the same as learning one by one."""
    start = trained(policy, SIZES[:1]).state_
    batches = [
        Batch(contexts=rows.X, actions=rows.actions, rewards=rows.rewards, propensities=rows.propensities)
        for rows in (episode(policy, number, size) for number, size in ((1, 200), (2, 40), (3, 170)))
    ]
    streamed = [(batch, streams.generator(number, "fold")) for number, batch in enumerate(batches)]
    folded, learned = start, start
    for sums in [policy.collect(start, batch, rng) for batch, rng in streamed]:
        folded, _ = policy.absorb(folded, sums)
    for number, batch in enumerate(batches):
        learned, _ = policy.learn(learned, batch, streams.generator(number, "fold"))
    X, everything = contexts(40), np.ones((40, N_ACTIONS), np.bool_)
    found, expected = (policy.table(state, X, everything) for state in (folded, learned))
    for name in ("means", "widths", "scores", "probabilities"):
        require_close(getattr(found, name), getattr(expected, name), f"{name} of a folded history")


def sketched_shards_need_ids(policy: Policy) -> None:
    """Check that a shard of a sketched policy needs one unique id per row, since rows are hashed by their ids."""
    bandit, columns = trained(policy, SIZES[:1]), episode(policy, 1, 50).columns()
    for ids in (None, np.zeros(50, np.int64)):
        _refused(lambda ids=ids: bandit.collect(**{**columns, "row_ids": ids}), f"ids {ids}")


def collect_needs_an_additive_policy(policy: Policy) -> None:
    """Check that a policy that is not additive refuses to collect."""
    bandit = trained(policy, SIZES[:1])
    _refused(lambda: bandit.collect(**episode(policy, 1, 50).columns()), "a policy that is not additive")


def collect_needs_a_fixed_feature_map(policy: Policy) -> None:
    """Check that shards of the first batch are refused if it determines the feature map, and accepted otherwise."""
    bandit, rows = fresh(policy), episode(policy, 0, 60)
    if not policy.fixed(policy.init(N_ACTIONS, DIM, streams.generator(0, "trial", "init"))):
        _refused(lambda: bandit.collect(**rows.columns()), "a feature map not fixed yet")
        return
    bandit.absorb(collected(bandit, rows, [20]))
    require_alike(bandit, fresh(policy).partial_fit(**rows.columns()), "the first episode in shards")
    require(bandit.n_features_in_ == DIM, "the first episode in shards: columns")


def _refused(call: Callable[[], Any], what: str) -> None:
    try:
        call()
    except ShardError as error:
        require(error.rule and error.remedy, f"{what}: no rule or no remedy")
        return
    raise AssertionError(f"{what}: not refused")


LAWS = (
    law(shards_add_up, needs={"additive"}),
    law(mixed_shards_add_up, needs={"additive"}),
    law(shards_of_nothing_are_no_episode, needs={"additive"}),
    law(foreign_shards_are_refused, needs={"additive"}),
    law(a_history_folds, needs={"additive", "foldable"}),
    law(sketched_shards_need_ids, needs={"additive", "sketched"}),
    law(collect_needs_an_additive_policy, unless={"additive"}),
    law(collect_needs_a_fixed_feature_map, needs={"additive"}),
)

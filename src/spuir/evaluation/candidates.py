"""What tuning chooses from, and the contest of candidates: policies with the parameters that bear on what they learn.

Parameters that only matter while a policy learns (α, the floor, the batch size) are not among them: on a log that does
not change, exploring always looks like a loss. The contest is successive halving: many candidates learn from few
episodes, and the best third of them from more.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, product, zip_longest
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from spuir.base.hashing import digest
from spuir.base.streams import generator
from spuir.core import ties
from spuir.errors import ParameterError
from spuir.evaluation.encoded_rows import EncodedRows
from spuir.evaluation.held_out import HeldOut
from spuir.policies import POLICIES, Policy, make_policy
from spuir.storage.atomic import write_atomically
from spuir.training.checkpoint import folder_of
from spuir.training.engines import WorkEngine

BASELINE = "sbucb"
"""The policy that every tuning reports beside the winner."""

ROUNDS = (0.25, 0.5, 1.0)
"""Share of the earlier episodes, the latest of them, that candidates learn from in each round."""
KEPT, LEAST = 3, 4
"""One of how many candidates reaches the next round, and how many do at least."""
BASELINES = 2
"""Settings of the baseline that reach the next round, however they compare."""
SAVE_SECONDS = 2.0

Choice = Mapping[str, Any]
AXES: Mapping[str, tuple[Choice, ...]] = {
    "features": ({}, {"features": "fourier", "raw": True}),
    "ridge": tuple({"ridge": value} for value in (1.0, 0.1, 10.0, 100.0)),
    "imputation_rate": tuple({"imputation_rate": value} for value in (0.1, 0.03, 0.3, 1.0)),
    "discount": tuple({"discount": value} for value in (0.9, 0.1, 0.5)),
    "sketch_size": tuple({"sketch_size": value} for value in (150, 50, 500)),
}
"""The parameters that are chosen, and their values: feature map, λ, γ, η and c."""
NEEDS = {"imputation_rate": "imputing", "discount": "imputing", "sketch_size": "sketched"}
"""Traits without which a parameter changes nothing."""


@dataclass(frozen=True)
class Candidate:
    """A policy by name, and the parameters that differ from its defaults."""

    policy: str
    parameters: tuple[tuple[str, Any], ...] = ()

    def make(self, **further: Any) -> Policy:
        """Return the policy, with further parameters."""
        return make_policy(self.policy, **{**dict(self.parameters), **further})

    def __str__(self) -> str:
        """Return the candidate as a table shows it."""
        shown = ", ".join(f"{name}={value}" for name, value in self.parameters)
        return f"{self.policy} ({shown})" if shown else self.policy


def candidates(policies: Sequence[str], budget: int, seed: int) -> list[Candidate]:
    """Return up to ``budget`` candidates: defaults first, then drawn settings, one of each policy in turn."""
    if not policies:
        raise ParameterError("policies", "none", "tuning chooses among at least one", "name one")
    in_turn = chain.from_iterable(zip_longest(*(_drawn(name, seed) for name in policies)))
    return list(islice((one for one in in_turn if one is not None), budget))


def _drawn(name: str, seed: int) -> Iterator[Candidate]:
    """Yield the candidates of one policy: its defaults, then all others in random order."""
    policy = make_policy(name)
    if "ridge" not in policy.traits:
        rule = "tuning compares policies by the rewards that they estimate"
        raise ParameterError("policies", repr(name), rule, "name policies with the trait 'ridge', such as puir")
    known = POLICIES.get(name).parameters()
    used = [axis for axis in AXES if axis in known and NEEDS.get(axis, "ridge") in policy.traits]
    if getattr(policy, "features", "identity") != "identity":
        used = [axis for axis in used if axis != "features"]
    every = [Candidate(name, tuple(pair for choice in combination for pair in choice.items())) for combination in
             product(*(AXES[axis] for axis in used))]  # fmt: skip
    yield Candidate(name)
    default = Candidate(name).make()
    for at in generator(seed, "evaluation", "candidates", name).permutation(len(every)):
        if every[at].make() != default:
            yield every[at]


Numbers = Mapping[str, float]


class Results:
    """What is already known, by the digest of the task; kept beside the model, so that a tuning can be resumed.

    Parameters
    ----------
    out
        Where the model will be saved; None keeps results in memory only.
    mark
        Digest of everything that the results depend on; those of other settings are ignored.
    """

    def __init__(self, out: Path | None, mark: str) -> None:
        self._path = None if out is None else folder_of(out) / "tuning.json"
        self._mark, self._known, self._saved = mark, dict[str, Numbers](), monotonic()
        try:
            state = json.loads(self._path.read_text(encoding="utf-8")) if self._path else {}
            if state.get("mark") == mark:
                self._known = dict(state["known"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass  # no results, or none that can be read: they are computed again
        self.resumed = len(self._known)

    def fill(
        self, engine: WorkEngine, work: Callable[[Any], Numbers], tasks: Sequence[Any], done: Callable[[int], object]
    ) -> list[Numbers]:
        """Return ``work(task)`` for every task, computed on the engine where it is not known yet."""
        keys = [digest(repr(task)) for task in tasks]
        missing = [(key, task) for key, task in zip(keys, tasks, strict=True) if key not in self._known]
        done(len(tasks) - len(missing))
        try:
            for (key, _), found in zip(missing, engine.map(work, (task for _, task in missing)), strict=True):
                self._known[key] = found
                done(1)
                if monotonic() - self._saved > SAVE_SECONDS:
                    self.save()
        finally:
            self.save()
        return [self._known[key] for key in keys]

    def save(self) -> None:
        """Write what is known to the disk; with a full disk the tuning continues, but cannot be resumed."""
        self._saved = monotonic()
        if self._path is not None:
            try:
                write_atomically(self._path, json.dumps({"mark": self._mark, "known": self._known}).encode())
            except OSError:
                self._path = None


class Scored(NamedTuple):
    """A candidate, the share of the earlier episodes that it learned from, its value and its standard error."""

    candidate: Candidate
    share: float
    value: float
    standard_error: float


class Contest:
    """Candidates learn from earlier rows and are compared on held-out ones, each by what its estimates prefer.

    Every candidate acts greedily here, whatever its α and floor: on a log that does not change, the value says what
    was learned and nothing about exploring.
    """

    def __init__(self, earlier: EncodedRows, later: EncodedRows, seed: int) -> None:
        self._earlier, self._seed = earlier, seed
        self.held_out = HeldOut.after(earlier, later, seed)
        self._mask = ties.eligible_mask(later.eligible, len(later), len(later.labels))

    def score(self, task: tuple[Candidate, float]) -> Numbers:
        """Return the value of a candidate that learned from a share of the earlier episodes."""
        candidate, share = task
        episodes = list(self._earlier.by_episode())
        first = episodes[len(episodes) - max(1, round(share * len(episodes)))].start
        bandit = self._earlier.at(slice(first, None)).taught(candidate.make(), self._seed)
        means = self.held_out.rows.predicted_by(bandit)
        estimate = self.held_out.estimate(ties.argmax_probabilities(means, self._mask))
        return {"value": estimate.value, "standard_error": estimate.standard_error}

    def run(
        self, chosen: Sequence[Candidate], results: Results, engine: WorkEngine, done: Callable[[int], object]
    ) -> list[Scored]:
        """Return the scores of all rounds, the last round best first."""
        scores, left = list[Scored](), list(chosen)
        for share in ROUNDS:
            found = results.fill(engine, self.score, [(one, share) for one in left], done)
            pairs = zip(left, found, strict=True)
            round_ = sorted((Scored(one, share, **numbers) for one, numbers in pairs), key=lambda one: -one.value)
            scores = round_ + scores
            left = [one.candidate for one in survivors(round_)]
        return scores


def survivors(ranked: Sequence[Scored]) -> list[Scored]:
    """Return the scores that reach the next round: the best third, and the best settings of the baseline."""
    count = max(LEAST, int(np.ceil(len(ranked) / KEPT)))
    of_baseline = [one for one in ranked if one.candidate.policy == BASELINE][:BASELINES]
    return [one for at, one in enumerate(ranked) if at < count or one in of_baseline]


def rounds(count: int, baselines: int) -> int:
    """Return how many candidates learn in all rounds together, at most, for progress bars."""
    total, left = 0, count
    for _ in ROUNDS:
        total += left
        left = min(left, max(LEAST, -(-left // KEPT)) + min(BASELINES, baselines))
    return total


def finalists(scores: Iterable[Scored]) -> list[Scored]:
    """Return the scores of the last round, best first."""
    return [one for one in scores if one.share == ROUNDS[-1]]

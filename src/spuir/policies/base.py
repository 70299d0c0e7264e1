"""What every policy is: frozen parameters with ``init``, ``decide``, ``learn``.

A policy writes ``init``, ``table`` (its scores and probabilities for contexts × actions), ``collect`` (rows → sums) and
``absorb`` (sums → next state). ``decide`` and ``learn`` follow from these.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.random import Generator

from spuir.base.pairs import Pairs
from spuir.base.parameters import TEXT, UNIT, check, check_fields, check_names, optional, parameter
from spuir.base.records import Batch, Codes, Decision, Floats, Info, Mask, Scores, State
from spuir.base.streams import Draws
from spuir.core import ties
from spuir.core.statistics import per_action
from spuir.errors import ParameterError


class Sums(Protocol):
    """What one shard of an episode contributes; shards merge by addition."""

    @property
    def rows(self) -> int:
        """How many rows the shard had."""
        ...

    def __add__(self, other: Self, /) -> Self: ...


@dataclass(frozen=True, kw_only=True)
class Policy(ABC):
    """Frozen parameters of a decision rule; everything that changes is in its State."""

    name: str = parameter("", "registered name", TEXT)
    floor: float | None = parameter(
        0.0, "least probability of each eligible action; None = 0.02 in total, spread evenly", optional(UNIT)
    )

    state_type: ClassVar[type[State]] = State
    takes_features: ClassVar[bool] = False
    """Whether it uses features of actions; see :meth:`with_catalogue`."""

    def __post_init__(self) -> None:
        check(self, "policy", self.name)

    @property
    @abstractmethod
    def traits(self) -> frozenset[str]:
        """What the policy is.

        ``ridge`` (solves per-action ridge regressions), ``imputing``, ``sketched``, ``sampling`` (its
        probabilities are not those of an argmax), ``additive`` (shards of one episode merge by
        addition), ``foldable`` (its sums do not depend on the acting state, so that a history can be
        summed in parallel and folded in order), ``weighting`` (weighs rows by their propensities in learning),
        ``self-tuning`` (estimates its own ridges, and rewards relative to their mean).
        """

    @abstractmethod
    def init(self, n_actions: int, dim: int, rng: Generator) -> State:
        """Return the state of a policy that has seen nothing."""

    @abstractmethod
    def table(self, state: Any, contexts: Floats, eligible: Mask) -> Scores:
        """Return means, widths, scores and probabilities (n, M) for contexts (n, d); pure."""

    @abstractmethod
    def collect(self, state: Any, batch: Batch, rng: Generator) -> Sums:
        """Return what the rows of ``batch``, one shard of the coming episode, contribute."""

    @abstractmethod
    def absorb(self, state: Any, sums: Any) -> tuple[State, Info]:
        """Return the state after an episode with these sums, added over its shards; it may overwrite them."""

    @abstractmethod
    def grow(self, state: Any, like: int | None) -> State:
        """Return the state with one more action, which starts empty or with a copy of the sums of action ``like``."""

    def retire(self, state: Any, code: int) -> Any:
        """Return the state after an action was removed; most policies keep its sums."""
        return state

    def with_catalogue(self, state: Any, features: Floats, varying: int) -> Any:
        """Return a fresh state with the features (M, k) of its actions, and ``varying`` ones per decision."""
        rule = "it has no use for features of actions"
        raise ParameterError("actions", f"features for policy {self.name!r}", rule, "use policy='hierarchical'")

    def describe(self, state: Any, code: int, features: Floats) -> Any:
        """Return the state with the features (k,) of one action changed."""
        return self.with_catalogue(state, features[None], 0)

    @property
    def draws_to_learn(self) -> bool:
        """Whether learning draws random numbers; if not, its generator is never used."""
        return True

    def basis(self, state: Any) -> Any:
        """Return the record that collected sums depend on: the acting state, or None where histories fold."""
        return None if "foldable" in self.traits else state

    def check_state(self, state: Any) -> None:
        """Refuse a state that this policy, with these parameters, could not have made."""
        if type(state) is not self.state_type:
            got, rule = type(state).__name__, f"this policy needs {self.state_type.__name__}"
            raise ParameterError("policy", got, rule, "call fit to start again with another policy")

    def width(self, dim: int) -> int:
        """Return how many feature columns the policy makes of ``dim`` context columns."""
        return dim

    def fewer_numbers(self, n_actions: int, dim: int) -> int | None:
        """Return how many numbers the sums of actions have, if they are not the usual p² + p + 2 of each."""
        return None

    def fixed(self, state: Any) -> bool:
        """Return whether everything is fixed that the first batch decides; see :meth:`fix`."""
        return True

    def fix(self, state: Any, contexts: Any, weights: Floats | None = None) -> Any:
        """Return the state with everything fixed that a sample of contexts (n, d) decides (scales, say)."""
        return state

    def prepare(self, state: Any, batch: Batch) -> tuple[Any, tuple[Batch, ...]]:
        """Return the state as it learns from a batch, and the batches to learn now: this one, or none, or earlier ones.

        A policy that fixes something on its first rows may let episodes wait until there are enough of them.
        """
        return state, (batch,)

    def diagnosis(self, state: Any) -> dict[str, Any]:
        """Return what the policy estimated about itself, by name; nothing for most policies."""
        return {}

    def advice(self, batch: Batch) -> str | None:
        """Return what is wrong with learning from such a first batch by this policy, None if nothing is."""
        return None

    def learn(self, state: Any, batch: Batch, rng: Generator) -> tuple[Any, Info]:
        """Return the state after one episode: prepare, collect, absorb. An empty batch is not an episode."""
        info: Info | None = None
        if len(batch):
            state, batches = self.prepare(state, batch)
            for one in batches:
                state, info = self.absorb(state, self.collect(state, one, rng))
        if info is None:  # nothing was learned yet
            info = Info(rows=len(batch), counts=per_action(batch.actions, batch.given_weights, int(state.n_actions)))
        return state, info

    def acting(self, state: Any, contexts: Floats, eligible: Mask | Pairs, caps: Floats | None) -> Scores:
        """Return the table (n, M) with the probabilities that act: while new actions ramp up, held to ``caps`` (M,)."""
        eligible = ties.eligible_mask(eligible, len(contexts), state.n_actions)
        table = self.table(state, contexts, eligible)
        if caps is None:
            return table

        def among(rows: Codes, established: Mask) -> Floats:
            return self.table(state, contexts[rows], established).probabilities

        return replace(table, probabilities=ties.with_caps(table.probabilities, eligible, caps, among))

    def decide(
        self, state: Any, contexts: Floats, rng: Generator | Draws, eligible: Mask | Pairs | None = None
    ) -> Decision:
        """Draw one action for each context (n, d); ``eligible`` is (n, M), (M,), pairs or None for all."""
        return self.decide_by_table(state, contexts, rng, eligible, None)

    def decide_by_table(
        self, state: Any, contexts: Floats, rng: Generator | Draws, eligible: Mask | Pairs | None, caps: Floats | None
    ) -> Decision:
        """Draw one action for each context from the probabilities of :meth:`acting`, which are exact."""
        n = len(contexts)
        mask = self._allowed(state, contexts, eligible)
        uniforms = Draws.of(rng, n).uniforms
        actions, propensities = np.empty(n, np.intp), np.empty(n)
        table: Scores | None = None
        for rows in ties.row_blocks(n, state.n_actions):
            table = self.acting(state, contexts[rows], mask[rows], caps)
            actions[rows], propensities[rows] = ties.draw(table.probabilities, uniforms[rows])
        whole = table if table is not None and len(table.probabilities) == n else None  # one block was enough
        return Decision(actions, propensities, lambda: whole or self.acting(state, contexts, mask, caps))

    def predict(self, state: Any, contexts: Floats, eligible: Mask | Pairs | None = None) -> Codes:
        """Return the most probable action of each context (n,), the lowest code of equals; draws nothing."""
        mask = self._allowed(state, contexts, eligible)
        best = np.empty(len(contexts), np.intp)
        for rows in ties.row_blocks(len(contexts), state.n_actions):
            best[rows] = self.table(state, contexts[rows], mask[rows]).probabilities.argmax(axis=1)
        return best

    def _allowed(self, state: Any, contexts: Floats, eligible: Mask | Pairs | None) -> Mask:
        """Return eligibility (n, M), after refusing a floor that is too high and contexts that are not finite."""
        mask = ties.eligible_mask(eligible, len(contexts), state.n_actions)
        ties.check_floor(self.floor, mask[:1] if eligible is None else mask)
        ties.check_finite(contexts, contexts)
        return mask


@dataclass(frozen=True)
class Recipe:
    """A named policy as data: a class with its defaults, and the values in the authors' code."""

    target: type[Policy]
    defaults: Mapping[str, Any]
    paper: Mapping[str, Any]
    summary: str

    def parameters(self) -> list[str]:
        """Return the names of the parameters that can be set."""
        return [item.name for item in fields(self.target) if item.name != "name"]

    def make(self, name: str, preset: str | None, parameters: Mapping[str, Any]) -> Policy:
        """Build the policy; any preset is the authors'. An unknown parameter is answered with the nearest one."""
        check_names(parameters, self.parameters(), "policy", name)
        defaults = {**self.defaults, **({} if preset is None else self.paper)}
        check_fields(self.target, parameters, defaults, "policy", name)
        chosen = {**defaults, **parameters}
        return self.target(name=name, **chosen)

"""Actions with features: one shared model of what the features say, plus each action's own deviation.

The mathematics is in :mod:`spuir.core.hierarchy`. The sums are those of one regression per action, and the policy acts
as ``auto`` does: a randomised bonus in units of the estimated noise, with exact propensities and a floor. Actions come
and go: a new one starts from what its features say, a retired one is folded into the shared model and its sums dropped.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Any, cast, final

import numpy as np
from numpy.random import Generator

from spuir.base.pairs import Pairs
from spuir.base.parameters import (
    COUNT,
    FLAG,
    NON_NEGATIVE,
    POSITIVE,
    SEED,
    UNIT,
    Rule,
    either,
    one_of,
    optional,
    parameter,
)
from spuir.base.records import Codes, Decision, Floats, Mask, Scores
from spuir.base.streams import Draws
from spuir.core import choosing, hierarchy
from spuir.core.hierarchy import Columns, Folded, Ridges, SharedFit
from spuir.core.quiet import quietly
from spuir.errors import CatalogueWarning, InputError
from spuir.features import FeatureMap
from spuir.features.standardised import ActionMap, Standardised
from spuir.policies.base import Recipe
from spuir.policies.hierarchical_curved import CLEARLY, MOST_COLUMNS, SOLVING, CurvedModel
from spuir.policies.hierarchical_forms import CONSTANT_ALONE, form_of
from spuir.policies.hierarchical_learner import MAX_STEPS, HierarchicalLearner
from spuir.policies.hierarchical_state import HierarchicalState
from spuir.policies.optimistic import Optimism

SOLVING_CONSTANTS = 10
"""Memory while a model of constant deviations is solved, relative to that of its sums (measured)."""


@final
@dataclass(frozen=True, kw_only=True)
class Hierarchical(Optimism):
    """Choose by the largest upper confidence bound of a model that actions share through their features.

    It needs a catalogue: the features of each action. Without one it is one regression per action, with shared ridges.
    """

    floor: float | None = parameter(
        None, "least probability of each eligible action; None = 0.02 in total, spread evenly", optional(UNIT)
    )
    alpha: float = parameter(1.0, "mean weight of the width, in standard deviations of the estimate", NON_NEGATIVE)
    levels: int = parameter(
        16, "weights of the width among which each context draws, evenly spread around alpha", COUNT
    )
    tried_weight: float = parameter(
        0.8, "with a catalogue, weight of the width of actions tried often, relative to that of new ones", UNIT
    )
    components: int = parameter(16, "columns of actions beyond this number are reduced to principal directions", COUNT)
    kernel: int = parameter(0, "kernel columns of the action features, such as 24 where rewards are curved", SEED)
    products: bool | str = parameter(
        "auto",
        "also learn from products of two action features, which takes longer; auto = while rewards are clearly curved "
        "in the features",
        either(FLAG, Rule("'auto'", lambda v: isinstance(v, str) and v == "auto")),
    )
    deviations: str = parameter(
        "auto",
        "how actions deviate from what their features say: in all columns, in the constant, which takes little memory, "
        "or not; auto = in all columns if memory_limit allows it, else in the constant",
        one_of("auto", "all", "constant", "none"),
    )
    forgetting: float = parameter(1.0, "discount of observed sums per episode; 1 keeps everything", UNIT)
    memory_limit: float = parameter(8.0, "most memory for the sums and for solving them, in GiB", POSITIVE)

    state_type = HierarchicalState
    takes_features = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.learner  # made at once: the modules of its maps have the records that a saved state is read into

    def make_learner(self) -> HierarchicalLearner:
        """Build the learner from the parameters."""
        actions = ActionMap(components=self.components, kernel=self.kernel, products=self._with_products)
        return HierarchicalLearner(
            feature_map=Standardised(),
            forgetting=self.forgetting,
            action_map=actions,
            deviations=self.deviations,
            curved=CurvedModel(actions, self.memory_limit) if self.products == "auto" else None,
        )

    @property
    def _with_products(self) -> bool:
        """Whether products are columns in any case."""
        return self.products != "auto" and bool(self.products)

    @property
    def _own(self) -> HierarchicalLearner:
        return cast("HierarchicalLearner", self.learner)

    # ---- the catalogue --------------------------------------------------------------------------------------

    def init(self, n_actions: int, dim: int, rng: Generator) -> HierarchicalState:
        """Return zero sums; refuse more memory than the limit before it is taken."""
        if self.deviations == "all" or self._fits(n_actions, dim, 0):
            self._check_memory(n_actions, dim, 0, alone=False)
            return self._own.init(n_actions, dim, rng)
        return self._own.init(n_actions, dim, rng, CONSTANT_ALONE)  # whether it may stay is known with the catalogue

    def grow(self, state: HierarchicalState, like: int | None) -> HierarchicalState:
        """Return the state with one action more, whose features are those of ``like`` or all 0 until described."""
        k = 0 if state.catalogue is None else state.catalogue.shape[1]
        formed = self._formed(state, len(state.live) + 1, k)
        if state.constants is None and formed.constants is not None:
            self._warn(len(formed.live) + 1, state.dim, k)
        return self.learner.grow(formed, like)

    def with_catalogue(self, state: HierarchicalState, features: Floats, varying: int) -> HierarchicalState:
        """Return a state that has seen nothing with the features (M, k) of its actions.

        The last ``varying`` columns of contexts are features of the executed action that change from decision to
        decision.
        """
        catalogue = np.ascontiguousarray(features, dtype=np.float64) if features.shape[1] else None
        n_actions, k = features.shape
        formed = self._formed(replace(state, catalogue=catalogue, varying=varying), n_actions, k)
        if formed.constants is not None and self.deviations == "auto":
            self._warn(n_actions, state.dim, k)
        return formed

    def _formed(self, state: HierarchicalState, n_actions: int, k: int) -> HierarchicalState:
        """Return the state with sums in the form that was asked for and fits into memory; one without features has all.

        A form that is small stays, also when actions were removed since.
        """
        large = self.deviations == "auto" and not self._fits(n_actions, state.dim, k)
        alone = k > 0 and (large or self.deviations in ("constant", "none") or state.constants is not None)
        self._check_memory(n_actions, state.dim, k, alone=alone)
        if alone:
            return self._own.constant_alone(state)
        larger = self._own.curved
        if larger is not None and state.curved is not None and not larger.fits(n_actions, k, state.dim + 1):
            return replace(state, curved=None)
        return state

    def describe(self, state: HierarchicalState, code: int, features: Floats) -> HierarchicalState:
        """Return the state with the features (k,) of one action changed; its sums stay."""
        return self._own.describe(state, code, features)

    def retire(self, state: HierarchicalState, code: int) -> HierarchicalState:
        """Return the state with an action folded into the shared model, and without its sums."""
        return self._own.retire(state, code)

    def fix(self, state: Any, contexts: Any, weights: Floats | None = None) -> Any:
        """Fix the maps of contexts and of actions on a sample of contexts and on the catalogue."""
        return self._own.fixed_on(state, contexts, weights)

    def _needed(self, n_actions: int, dim: int, k: int, *, alone: bool) -> tuple[float, float]:
        """Return the bytes of sums, and those while a model is solved; ``alone`` if actions deviate by a constant."""
        width = dim + 1
        count = self._own.action_map.width(k) if k else 0
        each = width + 1 + k + count if alone else width * width + width + 2
        sums = 8.0 * (n_actions * each + (count * width) ** 2)
        return sums, sums * (SOLVING_CONSTANTS if alone else SOLVING)

    def fewer_numbers(self, n_actions: int, dim: int) -> int | None:
        """Return how many numbers the sums have where actions deviate by a constant alone, with as many features."""
        k = self.components
        if self.deviations == "all" or (self.deviations == "auto" and self._fits(n_actions, dim, k)):
            return None
        return n_actions * (dim + 2) + (self._own.action_map.width(k) * (dim + 1)) ** 2

    def _fits(self, n_actions: int, dim: int, k: int) -> bool:
        """Return whether actions that deviate in all columns fit into memory."""
        return self._needed(n_actions, dim, k, alone=False)[1] <= self.memory_limit * 2**30

    def _warn(self, n_actions: int, dim: int, k: int) -> None:
        """Say why actions deviate by a constant alone."""
        needed = self._needed(n_actions, dim, k, alone=False)[1] / 2**30
        said = (
            f"{n_actions:,} actions that deviate in all {dim + 1:,} columns would take {needed:.3g} GiB, and "
            f"memory_limit is {self.memory_limit:g} GiB: they deviate from what their features say by a constant "
            "alone; raise memory_limit, or choose this yourself with deviations='constant'"
        )
        warnings.warn(said, CatalogueWarning, stacklevel=4)

    def _check_memory(self, n_actions: int, dim: int, k: int, *, alone: bool) -> None:
        """Refuse more memory than the limit, with the arithmetic."""
        sums, needed = self._needed(n_actions, dim, k, alone=alone)
        if needed > self.memory_limit * 2**30:
            size = f"{n_actions:,} actions × {dim + 1:,}{'' if alone else '²'} columns × 8 bytes"
            raise InputError(
                "actions",
                f"{size} = {sums / 2**30:.3g} GiB of sums, {needed / 2**30:.3g} GiB while they are solved",
                f"memory_limit is {self.memory_limit:g} GiB",
                "use fewer context columns, or raise memory_limit",
            )

    # ---- acting: everything on the eligible pairs of rows and actions ------------------------------------------

    @quietly
    def acting(self, state: Any, contexts: Floats, eligible: Mask | Pairs, caps: Floats | None) -> Scores:
        """Return the table (n, M); where eligible pairs are given, only they have means, widths and scores."""
        pairs = eligible if isinstance(eligible, Pairs) else Pairs.of_mask(eligible)
        means, widths = self.learner.pair_estimates(state, contexts, pairs)
        bonuses, offset = self._bonuses(state, widths, pairs.codes), self.learner.offset(state)
        chances = choosing.probabilities(pairs, means, bonuses, self._levels, self.floor, caps)
        shown, rest = pairs, np.nan
        if not isinstance(eligible, Pairs):
            shown, rest = Pairs.every(len(contexts), state.live, state.n_actions), 0.0
            means, widths = self.learner.pair_estimates(state, contexts, shown)
            bonuses = self._bonuses(state, widths, shown.codes)
        return Scores(
            means=shown.table(means, rest) + offset,
            widths=shown.table(widths, rest),
            scores=shown.table(means + bonuses, rest) + offset,
            probabilities=pairs.table(chances, 0.0),
        )

    def _bonuses(self, state: HierarchicalState, widths: Floats, codes: Codes) -> Floats:
        """Return α·width of pairs (k,); that of an action with n rows × w + (1 − w)/(1 + n), w = ``tried_weight``.

        Without features, widths are all that is known of new actions, and count alike.
        """
        bonuses = super()._bonuses(state, widths, codes)
        if state.catalogue is None:
            return bonuses
        rows = self._own.rows_of(state, codes)
        return bonuses * (self.tried_weight + (1.0 - self.tried_weight) / (1.0 + rows))

    def table(self, state: Any, contexts: Floats, eligible: Mask | Pairs) -> Scores:
        """Return means, widths, mean + α·width and probabilities (n, M)."""
        return self.acting(state, contexts, eligible, None)

    def decide(
        self, state: Any, contexts: Floats, rng: Generator | Draws, eligible: Mask | Pairs | None = None
    ) -> Decision:
        """Draw one action for each context."""
        return self.decide_by_table(state, contexts, rng, eligible, None)

    def decide_by_table(
        self,
        state: Any,
        contexts: Floats,
        rng: Generator | Draws,
        eligible: Mask | Pairs | None,
        caps: Floats | None,
    ) -> Decision:
        """Draw one action for each context from the probabilities of its eligible actions."""
        return self.decide_pairs(state, contexts, rng, eligible, caps)

    def predict(self, state: Any, contexts: Floats, eligible: Mask | Pairs | None = None) -> Codes:
        """Return the most probable action of each context (n,), the lowest code of equals."""
        return self.predict_pairs(state, contexts, eligible)

    # ---- what was learned -----------------------------------------------------------------------------------

    def feature_names(self, state: Any, inputs: list[str]) -> list[str]:
        """Return the names of the context columns, which the coefficients belong to."""
        return [*inputs, "intercept"]

    def shared_coefficients(self, state: HierarchicalState) -> tuple[Floats, Floats]:
        """Return Θ (k + 1, d + 1) per unit of features and contexts, constants last, and its standard errors."""
        readout = self._own.fitted(state)
        if state.catalogue is None:
            return np.zeros((0, state.dim + 1)), np.zeros((0, state.dim + 1))
        left = _user_units(self._own.action_map, state.action_map, readout.fit.shared.shape[0])
        right = _user_units(self.feature_map, state.features, state.dim + 1)
        theta = left.T @ readout.fit.shared @ right
        theta[-1, -1] += readout.mean
        whole = np.kron(left, right)  # vec(AᵀΘB) = (A ⊗ B)ᵀ vec Θ, row by row
        spread = np.vecdot(whole.T, (readout.fit.shared_inverse @ whole).T)
        return theta, readout.noise * np.sqrt(np.maximum(spread, 0.0)).reshape(theta.shape)

    def difference_errors(
        self, state: Any, contexts: Floats, codes: Codes, other_contexts: Floats, others: Codes
    ) -> Floats:
        """Return the standard error (n,) of the estimate of each context and action minus that of another one.

        Both share what the features say, so that their variances do not add up.
        """
        return self._own.difference_errors(state, contexts, codes, other_contexts, others)

    def contrast_errors(self, state: Any, first: int, second: int) -> Floats:
        """Return the standard errors (d + 1,) of the coefficients of one action minus those of another one."""
        return self._own.contrast_errors(state, first, second)

    def diagnosis(self, state: HierarchicalState) -> dict[str, Any]:
        """Return what was estimated: noise, ridges, what the features explain, and the evidence of simpler models.

        ``features explain`` is the part of the variance between the coefficients of actions that their features
        explain. ``evidence`` has the logarithms of the evidence of the model, of a model of features alone (shared)
        and of one regression per action (disjoint), all three on the rows of live actions: the largest describes them
        best. Both are absent until rewards that differ were learned. Where actions deviate by a constant alone, the
        evidence is that of all rows, and not known of one regression per action. ``curved`` says whether estimates
        come from products of features too, and why; all else is of the model without them.
        """
        readout = self._own.fitted(state)
        fit, columns = readout.fit, self._own.columns(state)
        own = dict(zip(("constant", "context", "per decision"), fit.ridges.own.tolist(), strict=False))
        found: dict[str, Any] = {
            "deviations": columns.deviations,
            "noise": readout.noise,
            "mean reward": readout.mean,
            "actions": {"live": len(state.live), "retired": state.n_actions - len(state.live)},
            "ridges": {"own": own},
        }
        if not columns.feature_width or not self._own.scale(state):  # nothing to explain while rewards are alike
            return found
        found["curved"] = self._curvature(state)
        names = ["constant", "linear"] + ["kernel"] * bool(self.kernel) + ["products"] * self._with_products
        inputs = ["constant", "context", "per decision"][: len(columns.own)]
        blocks_of = [f"{x} × {phi}" for x in names for phi in inputs][1:]
        found["ridges"]["shared"] = dict(zip(blocks_of, fit.ridges.shared.tolist(), strict=True))
        said = fit.theta.copy()
        said[:, -fit.deviation.shape[1] :] -= fit.deviation  # in all columns, or in the constant, which is the last
        apart = [float(np.square(part - part.mean(axis=0)).sum()) for part in (said, fit.deviation)]
        found["features explain"] = apart[0] / sum(apart) if sum(apart) > 0 else 0.0
        found["evidence"] = self._evidence(state, fit)
        return found

    def _curvature(self, state: HierarchicalState) -> dict[str, Any]:
        """Return whether estimates come from curved columns of actions too, and why."""
        curved = state.curved
        if self.products != "auto":
            return {"acts": bool(self.products), "why": f"products={self.products}"}
        if state.constants is not None:
            return {"acts": False, "why": "actions deviate by a constant alone"}
        if curved is None:
            why = f"the model would have more than {MOST_COLUMNS:,} columns or exceed memory_limit, or started without"
            return {"acts": False, "why": why}
        count = len(curved.left.vector)
        if len(state.live) <= count:
            return {"acts": False, "why": f"{len(state.live)} actions are too few for {count} columns"}
        added = curved.expected if curved.gain is None else curved.gain
        verb = "are expected to add" if curved.gain is None else "add"
        why = f"curved columns {verb} {added:.1f} to the log evidence"
        if not curved.acts:
            small = curved.gain is not None and not curved.weighty
            why += ", and matter less than the features" if small else f", not clearly more than {CLEARLY:g}"
        return {"acts": curved.acts, "why": why, "expected": curved.expected, "gain": curved.gain}

    def _evidence(self, state: HierarchicalState, fit: SharedFit) -> dict[str, float]:
        """Return the log evidence of the model, and of simpler ones with ridges of their own.

        What retired actions left was made with the ridges of this model, and would not be fair to the others.
        """
        made, scale, form = self._own.problem(state), self._own.scale(state), form_of(state)
        columns, ridges, nothing = made.columns, made.ridges, Folded.nothing(made.columns)
        stiff = Ridges(ridges.shared, np.full(len(ridges.own), hierarchy.LARGEST_RIDGE))
        if state.constants is not None:  # the sums of live and retired actions are one
            shared = form.fit(state, replace(made, ridges=stiff), scale, 0)
            return {"hierarchical": fit.evidence, "shared": shared.evidence}
        alone = replace(made, folded=nothing)
        if state.folded is not None and state.folded.weight > 0:
            fit = form.fit(state, alone, scale, 0)
        shared = form.fit(state, replace(alone, ridges=stiff), scale, 0)
        plain = Columns(columns.own, ())
        disjoint = hierarchy.improve(
            state.observed,
            np.zeros((len(state.live), 0)),
            plain,
            Ridges(np.empty(0), ridges.own),
            Folded.nothing(plain),
            scale,
            MAX_STEPS,
        )
        return {"hierarchical": fit.evidence, "shared": shared.evidence, "disjoint": disjoint.evidence}


def _user_units(columns_map: FeatureMap, state: Any, width: int) -> Floats:
    """Return the matrix that turns coefficients of a map's columns into those of the user's columns, constant last."""
    per_unit, constant = columns_map.in_user_units(state, np.eye(width))
    return np.column_stack([per_unit, constant])


HIERARCHICAL = Recipe(
    target=Hierarchical,
    defaults={},
    paper={},
    summary="actions with features: a shared model plus each action's own deviation, that tunes itself",
)

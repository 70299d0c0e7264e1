"""The default policy: ridge regression on a linear and a kernel block, with nothing to tune.

The ridges of the blocks and the noise are estimated from the data (:mod:`spuir.core.evidence`). While the kernel block
does not pay, the policy acts on the linear block alone. It explores by a randomised bonus in units of the estimated
noise, so that propensities are exact and say something.
"""

from dataclasses import dataclass, replace
from typing import Any, cast, final

import numpy as np
from numpy.random import Generator

from spuir.base.parameters import COUNT, NON_NEGATIVE, POSITIVE, UNIT, one_of, optional, parameter
from spuir.base.records import Batch, Codes, Floats, Info, require_finite
from spuir.core import evidence
from spuir.core.evidence import Blocks, CentredSums, EvidenceFit
from spuir.core.quiet import quietly
from spuir.core.statistics import Statistics, summarise
from spuir.errors import InputError, ParameterError
from spuir.features import FeatureMap, make_features
from spuir.policies.base import Recipe
from spuir.policies.exact import observed_entries
from spuir.policies.learner import Learner, Readout, RidgeState, widened
from spuir.policies.optimistic import Optimism

FIRST_STEPS, STEPS = 6, 2
"""Fixed-point steps of the ridges: at the first update, and at later ones."""
EARLY, GROWTH = 4, 1.45
"""Ridges are updated after each of the first episodes, then whenever there are this many times more."""
VARIANCE_WEIGHT = 30.0
"""Least weight of an episode whose variance of rewards counts."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AutoState(RidgeState):
    """Sums of rewards relative to ``origin``, and what was estimated from them.

    ``ridges`` (3,) of the constant, the linear and the kernel block; ``linear_ridges`` (2,) where the model has no
    kernel block; ``linear`` whether the policy acts on that model; ``evidence`` (2,) the logarithms of the evidence of
    the linear and of the full model at the last update, after ``updated`` episodes; ``variance`` the largest variance
    of rewards within an episode.
    """

    origin: float | None = None
    ridges: Floats | None = None
    linear_ridges: Floats | None = None
    linear: bool = True
    evidence: Floats | None = None
    updated: int = 0
    variance: float = 0.0


@dataclass(frozen=True, eq=False)
class AutoSums:
    """Sums of a shard's rows: ``observed`` per action, of rewards relative to ``origin``."""

    rows: int
    origin: float
    observed: Statistics

    def __add__(self, other: "AutoSums") -> "AutoSums":
        """Return the sums of both shards."""
        return AutoSums(self.rows + other.rows, self.origin, self.observed + other.relative_to(self.origin))

    def relative_to(self, origin: float) -> Statistics:
        """Return the sums of rewards relative to another origin; the constant is the last column."""
        shift = self.origin - origin
        if shift == 0.0:
            return self.observed
        moved = self.observed.copied()
        moved.energy[:] += 2.0 * shift * self.observed.moment[:, -1] + shift**2 * self.observed.weight
        moved.moment[:] += shift * self.observed.gram[:, :, -1]
        return moved

    @property
    def variance(self) -> float:
        """The variance of the rewards; 0 where there are too few."""
        weight = float(self.observed.weight.sum())
        if weight < VARIANCE_WEIGHT:
            return 0.0
        mean = float(self.observed.moment[:, -1].sum()) / weight
        return max(float(self.observed.energy.sum()) / weight - mean**2, 0.0)


@dataclass(frozen=True, eq=False)
class AutoReadout(Readout):
    """What acting needs: also the mean reward, and the standard deviation of the noise."""

    mean: float
    noise: float


@dataclass(frozen=True, kw_only=True)
class EvidenceLearner(Learner):
    """Ridge regression with one estimated ridge per block, and a switch between the linear and the full model."""

    @property
    def traits(self) -> frozenset[str]:
        """Return what it is: ridge regression on sums that do not depend on the acting state."""
        return frozenset(["ridge", "self-tuning", "additive", "foldable"])

    # ---- state ----------------------------------------------------------------------------------------------

    def init(self, n_actions: int, dim: int, rng: Generator) -> AutoState:
        """Return zero sums and the drawn feature map."""
        zero = Statistics.zero(n_actions, self.feature_map.width(dim))
        return AutoState(n_actions=n_actions, dim=dim, features=self.feature_map.init(dim, rng), observed=zero)

    def grow(self, state: AutoState, like: int | None) -> AutoState:
        """Return the state with one action more."""
        waiting = tuple(widened(batch) for batch in state.waiting)
        return replace(state, n_actions=state.n_actions + 1, observed=state.observed.grown(like), waiting=waiting)

    def blocks(self, dim: int) -> Blocks:
        """Return the columns of the constant, of the linear block and, if there is one, of the kernel block."""
        linear, width = self.feature_map.linear(dim), self.feature_map.width(dim)
        kernel = slice(linear.stop, width - 1) if linear.start == 0 else slice(0, linear.start)
        blocks = (slice(width - 1, width), linear, kernel)
        return blocks if kernel.stop > kernel.start else blocks[:2]

    def check_state(self, state: AutoState) -> None:
        """Refuse sums of another width, and what no episode leaves."""
        width = self.feature_map.width(state.dim)
        needed = (state.n_actions, width * width + width + 2)
        if state.observed.width != width or state.observed.table.shape != needed:
            got, rule = f"sums of shape {state.observed.table.shape}", f"this policy needs {needed}"
            raise ParameterError("policy", got, rule, "call fit to start again with changed features")
        count = len(self.blocks(state.dim))
        for name, ridges, size in (("ridges", state.ridges, count), ("linear ridges", state.linear_ridges, 2)):
            if ridges is not None and (ridges.shape != (size,) or not (ridges > 0).all()):
                raise ParameterError(name, ridges.tolist(), f"there are {size} numbers > 0", "load a copy")
        require_finite(
            observed=state.observed.table,
            ridges=state.ridges,
            linear_ridges=state.linear_ridges,
            evidence=state.evidence,
            variance=np.array([state.variance, state.origin or 0.0]),
        )
        self.feature_map.check_state(state.features, state.dim)

    # ---- learning -------------------------------------------------------------------------------------------

    @quietly
    def collect(self, state: AutoState, batch: Batch, rng: Generator) -> AutoSums:
        """Return a shard's sums, of rewards relative to their median: large offsets lose no digits."""
        mapped = self.mapped(state, batch)
        rows, codes, rewards, weights = observed_entries(mapped)
        counted = rewards if weights is None else rewards[weights > 0]
        origin = float(np.median(counted)) if len(counted) else 0.0
        relative = rewards - origin
        observed = summarise(mapped.contexts, codes, relative, weights, state.n_actions, rows)
        return AutoSums(len(batch), origin, observed)

    @quietly
    def absorb(self, state: AutoState, sums: AutoSums) -> tuple[AutoState, Info]:
        """Fold an episode's sums into the state; estimate the ridges anew when it is time, else only factor."""
        origin = sums.origin if state.origin is None else state.origin
        counts = sums.observed.weight.copy()
        after = replace(
            state,
            episode=state.episode + 1,
            origin=origin,
            observed=state.observed.then(self.forgetting, sums.relative_to(origin)),
            variance=max(self.forgetting * state.variance, sums.variance),
        )
        after = self._updated(after)
        return after, Info(sums.rows, counts, None, self.readout(after).solved.worst)

    def _updated(self, state: AutoState) -> AutoState:
        """Return the state with new ridges, and a new choice between the models, if it is time for them."""
        # The variance that ridges are measured by is that within episodes, or of all rewards where these are small.
        variance = state.variance or self._models(state)[0][0].variance
        steps = self._steps(state, variance)
        if not steps:
            return state
        models, starts = self._models(state), (state.linear_ridges, state.ridges)
        fits = [
            evidence.improve(sums, blocks, np.ones(len(blocks)) if start is None else start, variance, steps)
            for (sums, blocks), start in zip(models, starts, strict=False)
        ]
        linear, full = fits[0], fits[-1]
        after = replace(
            state,
            ridges=full.ridges,
            linear_ridges=linear.ridges,
            linear=linear.evidence >= full.evidence,
            evidence=np.array([linear.evidence, full.evidence]),
            updated=state.episode,
        )
        chosen = self._acting(after, models[0][0], linear if after.linear else full)
        after.derived.get(self, lambda _: chosen, after)  # solved already: kept for acting
        return after

    def _models(self, state: AutoState) -> list[tuple[CentredSums, Blocks]]:
        """Return sums and blocks of the linear model, then of the full one if there is a kernel block."""
        blocks = self.blocks(state.dim)
        constant, d = blocks[0].start, state.dim
        columns = np.array([*range(blocks[1].start, blocks[1].stop), constant])
        linear = CentredSums.of(state.observed, constant, columns), (slice(d, d + 1), slice(0, d))
        return [linear] if len(blocks) == 2 else [linear, (CentredSums.of(state.observed, constant), blocks)]

    def _steps(self, state: AutoState, variance: float) -> int:
        """Return how many steps the ridges take now; none while all rewards are equal."""
        if variance <= 0.0:
            return 0
        if not state.updated:
            return FIRST_STEPS
        since = state.episode - state.updated
        forgotten = self.forgetting < 1 and since * (1.0 - self.forgetting) >= 1.0
        due = state.episode <= EARLY or state.episode >= GROWTH * state.updated or forgotten
        return STEPS if due else 0

    # ---- what was learned -----------------------------------------------------------------------------------

    def solve(self, state: AutoState) -> AutoReadout:
        """Return factors and coefficients of the model that acts, with the ridges of the last update."""
        models = self._models(state)
        (sums, blocks), ridges = (models[0], state.linear_ridges) if state.linear else (models[-1], state.ridges)
        ridges = np.ones(len(blocks)) if ridges is None else ridges
        return self._acting(state, sums, evidence.fit(sums, blocks, ridges, state.variance or models[0][0].variance))

    @staticmethod
    def _acting(state: AutoState, sums: CentredSums, made: EvidenceFit) -> AutoReadout:
        return AutoReadout(
            rates=np.zeros(state.n_actions),
            solved=made.solved,
            ridge=0.0,
            shared=None,
            mean=sums.mean + (state.origin or 0.0),
            noise=float(np.sqrt(made.noise)),
        )

    def _read(self, state: AutoState) -> AutoReadout:
        return cast("AutoReadout", self.readout(state))

    def rows(self, state: AutoState, contexts: Any) -> Floats:
        """Return the feature rows of the model that acts."""
        if state.linear:
            return self.feature_map.linear_rows(state.features, contexts)
        return self.feature_map.apply(state.features, contexts)

    def offset(self, state: AutoState) -> float:
        """Return the mean reward, which estimates are relative to."""
        return self._read(state).mean

    def noise(self, state: AutoState) -> float:
        """Return σ̂, the estimated standard deviation of a reward around its mean."""
        return self._read(state).noise

    def _linear_columns(self, state: AutoState) -> Any:
        """Return the columns of the acting model that are linear in the context, then its constant."""
        if state.linear:
            return np.arange(state.dim + 1)
        constant, linear = self.blocks(state.dim)[:2]
        return np.array([*range(linear.start, linear.stop), constant.start])

    def coefficients(self, state: AutoState) -> tuple[Floats, Floats]:
        """Return the coefficients of the linear block per unit of the context (M, d), and the constants (M,)."""
        readout = self._read(state)
        theta = readout.solved.theta[:, self._linear_columns(state)]
        per_unit, constant = self.feature_map.linear_in_user_units(state.features, theta[:, :-1], theta[:, -1])
        return per_unit, constant + readout.mean

    def standard_errors(self, state: AutoState) -> Floats:
        """Return the posterior standard deviation of the coefficients, then of the constant (M, d + 1)."""
        readout, columns = self._read(state), self._linear_columns(state)
        roots = readout.solved.roots[:, columns]
        units = np.eye(len(columns))
        per_unit, constant = self.feature_map.linear_in_user_units(state.features, units[:, :-1], units[:, -1])
        changed = np.column_stack([per_unit, constant]).T @ roots
        return readout.noise * np.sqrt(np.vecdot(changed, changed))

    def mean_errors(self, state: AutoState, contexts: Floats) -> Floats:
        """Return the posterior standard deviation of each context's estimate (n, M)."""
        return self.noise(state) * self.estimates(state, contexts)[1]

    def contributions(self, state: AutoState, contexts: Floats, codes: Codes) -> Floats:
        """Return what each column, the constant and the kernel, 0 while it does not act, add to estimates (n, G)."""
        if not state.linear or len(self.blocks(state.dim)) == 2:
            return super().contributions(state, contexts, codes)
        parts = self.readout(state).solved.theta[codes] * self.rows(state, contexts)
        return np.column_stack([parts, np.zeros(len(parts))])


@final
@dataclass(frozen=True, kw_only=True)
class Auto(Optimism):
    """Choose by the largest upper confidence bound of a model that tunes itself; see the page on the default policy.

    Its feature map is fixed on the first episodes, at least 256 rows; until then it is uniform. The landmarks of
    ``kernel_map="nystroem"`` are rows of that sample and are saved with the model.
    """

    floor: float | None = parameter(
        None, "least probability of each eligible action; None = 0.02 in total, spread evenly", optional(UNIT)
    )
    alpha: float = parameter(1.0, "mean weight of the width, in standard deviations of the estimate", NON_NEGATIVE)
    levels: int = parameter(
        16, "weights of the width among which each context draws, evenly spread around alpha", COUNT
    )
    kernel_map: str = parameter(
        "nystroem", "kernel block: landmarks, random Fourier features, or none", one_of("nystroem", "fourier", "none")
    )
    landmarks: int = parameter(200, "number of landmarks, or of Fourier features (L)", COUNT)
    forgetting: float = parameter(1.0, "discount of observed sums per episode; 1 keeps everything", UNIT)
    memory_limit: float = parameter(8.0, "most memory for the sums, in GiB", POSITIVE)

    state_type = AutoState

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.learner  # made at once: the module of its map has the record that a saved state is read into

    def make_learner(self) -> EvidenceLearner:
        """Build the learner from the parameters."""
        return EvidenceLearner(feature_map=self._map(), forgetting=self.forgetting)

    def _map(self) -> FeatureMap:
        given: dict[str, Any] = {"intercept": True, "scale": True}
        if self.kernel_map == "nystroem":
            return make_features("nystroem", landmarks=self.landmarks, **given)
        if self.kernel_map == "fourier":
            return make_features("fourier", n_features=self.landmarks, bandwidth="median", raw=True, **given)
        return make_features("identity", **given)

    def init(self, n_actions: int, dim: int, rng: Generator) -> AutoState:
        """Return zero sums and the drawn feature map; refuse more memory than the limit before it is taken."""
        self._check_memory(n_actions, dim)
        return self.learner.init(n_actions, dim, rng)

    def grow(self, state: AutoState, like: int | None) -> AutoState:
        """Return the state with one action more."""
        self._check_memory(state.n_actions + 1, state.dim)
        return self.learner.grow(state, like)

    def _check_memory(self, n_actions: int, dim: int) -> None:
        """Refuse sums larger than the memory limit, with the arithmetic."""
        width, limit = self.width(dim), self.memory_limit * 2**30
        size = 8.0 * n_actions * (width * width + width + 2)
        if size <= limit:
            return
        room = int(np.sqrt(limit / (8.0 * n_actions) + 0.25) - 0.5) - dim - 1
        fewer = f"use landmarks={room} or fewer" if room > 0 and self.kernel_map != "none" else "use fewer columns"
        other = "" if self.kernel_map == "none" else ", kernel_map='none' for a linear model"
        raise InputError(
            "actions",
            f"{n_actions:,} actions × {width:,}² columns × 8 bytes = {size / 2**30:.3g} GiB of sums",
            f"memory_limit is {self.memory_limit:g} GiB",
            f"{fewer}{other}, or raise memory_limit",
        )

    def feature_names(self, state: Any, inputs: list[str]) -> list[str]:
        """Return the names of the context columns, which the coefficients belong to."""
        return [*inputs, "intercept"]

    def diagnosis(self, state: AutoState) -> dict[str, Any]:
        """Return what was estimated: noise, ridges, the choice between the models and its reason.

        ``model`` is the one that acts: the kernel block is used while the log evidence of the full model exceeds that
        of the linear one, by ``evidence difference``. ``kernel share`` is the part of the variance of the fitted
        rewards that the kernel block explains, over the rows learned from.
        """
        names = ("constant", "linear") if state.linear else ("constant", "linear", "kernel")
        ridges = state.linear_ridges if state.linear else state.ridges
        difference = None if state.evidence is None else float(state.evidence[1] - state.evidence[0])
        return {
            "model": "linear" if state.linear else "linear + kernel",
            "evidence difference": difference,
            "noise": self.learner.noise(state),
            "mean reward": self.learner.offset(state),
            "ridges": None if ridges is None else dict(zip(names, ridges.tolist(), strict=False)),
            "kernel share": 0.0 if state.linear else self._kernel_share(state),
        }

    def _kernel_share(self, state: AutoState) -> float:
        """Return the kernel block's part of the variance of the fitted rewards, all actions pooled."""
        sums, fitted = state.observed, self.readout(state).solved.theta

        def variance(theta: Floats) -> float:
            ones = np.vecdot(sums.gram[:, -1], theta)  # Σ φᵀθ per action
            squares = np.einsum("mi,mij,mj->m", theta, sums.gram, theta)
            return float((squares - np.square(ones) / np.maximum(sums.weight, 1.0)).sum())

        part = fitted.copy()
        part[:, self.feature_map.linear(state.dim)] = 0.0
        part[:, -1] = 0.0
        whole = variance(fitted)
        return min(variance(part) / whole, 1.0) if whole > 0 else 0.0


AUTO = Recipe(
    target=Auto,
    defaults={},
    paper={},
    summary="the default: linear and kernel ridge regression that tunes itself, with a randomised bonus",
)

"""Adapters of the peers: learn one batch, decide one batch, on the arrays that spuir receives.

Every adapter is built for one shape with ridge 1 and bonus factor ``ALPHA``, is warm-started with one
episode, and then learns by its batch verb or decides by its batch verb. Labels and text that a peer needs
are made outside the clock, in its favour.
"""

from abc import ABC, abstractmethod
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np

from benchmarks.shapes import Floats, Rows, Shape
from benchmarks.timing import Task

ALPHA = 0.2
RIDGE = 1.0

Entry = tuple[Task, float]
"""A task, and the factor by which its time is scaled up."""


class Peer(ABC):
    """One library's per-action linear model."""

    name: ClassVar[str]
    package: ClassVar[str]
    note: ClassVar[str] = ""
    exact: ClassVar[bool] = True
    """Whether its scores are mean + α·width of one ridge regression per action."""
    learn_rows: ClassVar[int | None] = None
    decide_rows: ClassVar[int | None] = None
    """Caps on the rows of one run; the time is then scaled up."""
    shapes: ClassVar[frozenset[str] | None] = None
    """Where it is run; None is everywhere."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    @abstractmethod
    def learner(self, rows: Rows) -> Task:
        """Return a task that learns ``rows``; conversions are done before it is returned."""

    @abstractmethod
    def decider(self, contexts: Floats) -> Task:
        """Return a task that chooses an action for each context."""

    def scores(self, contexts: Floats) -> Floats:
        """Return what it compares (n, M), for the check that it computes what is compared."""
        raise LookupError(f"{self.name} has no table of scores")

    def learning(self, rows: Rows) -> Entry:
        """Return the task of learning ``rows``, or its first few with the factor that scales their time up."""
        run = rows.head(self.learn_rows or len(rows.actions))
        return self.learner(run), len(rows.actions) / len(run.actions)

    def deciding(self, contexts: Floats) -> Entry:
        """Return the task of deciding on ``contexts``, or the first few with their factor."""
        run = contexts[: self.decide_rows]
        return self.decider(run), len(contexts) / len(run)


class ContextualBandits(Peer):
    """LinUCB of contextualbandits by Cholesky, in double precision."""

    name, package = "contextualbandits", "contextualbandits"
    note = "LinUCB, method='chol', float64, njobs=1"
    single, method = False, "chol"
    given: ClassVar[type[np.floating]] = np.float64
    """The precision in which it is handed the rows; the batches are in double precision."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.model: Any = import_module("contextualbandits.online").LinUCB(
            shape.actions,
            alpha=ALPHA,
            lambda_=RIDGE,
            fit_intercept=False,
            use_float=self.single,
            method=self.method,
            ucb_from_empty=True,
            njobs=1,
        )

    def learner(self, rows: Rows) -> Task:
        """Return the task of its batch update."""
        contexts, rewards = (array.astype(self.given, copy=False) for array in (rows.contexts, rows.rewards))
        return lambda: self.model.partial_fit(contexts, rows.actions, rewards)

    def decider(self, contexts: Floats) -> Task:
        """Return the task of its batch choice."""
        given = contexts.astype(self.given, copy=False)
        return lambda: self.model.predict(given)

    def scores(self, contexts: Floats) -> Floats:
        """Return its upper bounds (n, M)."""
        return self.model.decision_function(contexts)


class ContextualBanditsSingle(ContextualBandits):
    """The same in single precision, to which it casts the rows itself."""

    name, note = "contextualbandits float32", "LinUCB, method='chol', float32 (its default precision)"
    single = True


class ContextualBanditsRank1(ContextualBandits):
    """Sherman-Morrison updates, one row at a time in compiled code, in double precision."""

    name, note = "contextualbandits sm", "LinUCB, method='sm' (its default method), float64"
    method = "sm"


class ContextualBanditsDefault(ContextualBanditsSingle):
    """Its default method and precision."""

    name, note = "contextualbandits sm float32", "LinUCB, method='sm', float32: its defaults, but for the intercept"
    method = "sm"


class ContextualBanditsCast(ContextualBanditsSingle):
    """Single precision on rows that were cast to it before the clock starts."""

    name, note = "contextualbandits float32, cast", "the same as float32, on rows cast before the clock starts"
    given = np.float32


class MABWiser(Peer):
    """LinUCB of MABWiser in one process."""

    name, package = "mabwiser", "mabwiser"
    note = "LinUCB, n_jobs=1"

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        library: Any = import_module("mabwiser.mab")
        policy = library.LearningPolicy.LinUCB(alpha=ALPHA, l2_lambda=RIDGE)
        self.model = library.MAB(list(range(shape.actions)), policy, n_jobs=1)

    def learner(self, rows: Rows) -> Task:
        """Return the task of its batch update."""
        return lambda: self.model.partial_fit(rows.actions, rows.rewards, rows.contexts)

    def decider(self, contexts: Floats) -> Task:
        """Return the task of its batch choice."""
        return lambda: self.model.predict(contexts)

    def scores(self, contexts: Floats) -> Floats:
        """Return its upper bounds (n, M)."""
        return np.array(
            [[row[j] for j in range(self.shape.actions)] for row in self.model.predict_expectations(contexts)]
        )


class BayesianBandits(Peer):
    """One NormalRegressor per action with the library's upper-confidence policy (1,000 posterior draws per cell)."""

    name, package = "bayesianbandits", "bayesianbandits"
    note = (
        "one NormalRegressor per action, rows grouped by action; decides by quantiles of 1,000 draws, on 500 rows "
        "scaled up; left out of learning and deciding together"
    )
    exact, decide_rows = False, 500

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        library: Any = import_module("bayesianbandits")
        models = [library.NormalRegressor(alpha=RIDGE, beta=1.0) for _ in range(shape.actions)]
        arms = [library.Arm(j, learner=model) for j, model in enumerate(models)]
        # The 0.579 quantile of a normal lies 0.2 standard deviations above its mean.
        self.model = library.ContextualAgent(arms, library.UpperConfidenceBound(alpha=0.579), random_seed=0)

    def learner(self, rows: Rows) -> Task:
        """Return the task of its batch update."""

        def learn() -> None:
            order = np.argsort(rows.actions, kind="stable")
            contexts, rewards = rows.contexts[order], rows.rewards[order]
            ends = np.searchsorted(rows.actions[order], np.arange(self.shape.actions + 1))
            for j in range(self.shape.actions):
                mine = slice(ends[j], ends[j + 1])
                if mine.start < mine.stop:
                    self.model.select_for_update(j).update(contexts[mine], rewards[mine])

        return learn

    def decider(self, contexts: Floats) -> Task:
        """Return the task of its batch choice."""
        return lambda: self.model.pull(contexts)


class VowpalWabbit(Peer):
    """One linear cost regressor per action by online gradient steps; no widths."""

    name, package = "vowpalwabbit", "vowpalwabbit"
    note = (
        "cb_explore, cb_type dm, SGD without widths; parsing outside the clock, on 700 rows scaled up; at the two "
        "small shapes, and left out of learning and deciding together"
    )
    exact, learn_rows, decide_rows = False, 700, 700
    shapes = frozenset({"paper", "wide"})

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        options = f"--cb_explore {shape.actions} --cb_type dm --epsilon 0.1 --noconstant --quiet"
        self.model: Any = import_module("vowpalwabbit").Workspace(options)

    def _parse(self, contexts: Floats, labels: list[str]) -> list[Any]:
        texts = ["|s " + " ".join(f"{i}:{v:.9g}" for i, v in enumerate(row)) for row in contexts]
        return [self.model.parse(label + text) for label, text in zip(labels, texts, strict=True)]

    def learner(self, rows: Rows) -> Task:
        """Return the task of its batch update."""
        chance = 1 / self.shape.actions
        labels = [f"{a + 1}:{-r:.9g}:{chance:.6g} " for a, r in zip(rows.actions, rows.rewards, strict=True)]
        examples = self._parse(rows.contexts, labels)

        def learn() -> None:
            for example in examples:
                self.model.learn(example)

        return learn

    def decider(self, contexts: Floats) -> Task:
        """Return the task of its batch choice."""
        examples = self._parse(contexts, [""] * len(contexts))
        return lambda: [self.model.predict(example) for example in examples]


PEERS: tuple[type[Peer], ...] = (
    ContextualBandits,
    ContextualBanditsSingle,
    ContextualBanditsRank1,
    ContextualBanditsDefault,
    ContextualBanditsCast,
    MABWiser,
    BayesianBandits,
    VowpalWabbit,
)
AS_THEY_COME = (ContextualBanditsDefault.name, MABWiser.name)
"""The LinUCB peers with the method and the precision that each has by default."""
RIVALS = (ContextualBandits.name, ContextualBanditsSingle.name, ContextualBanditsRank1.name, *AS_THEY_COME)
"""The LinUCB peers by every method and in every precision, on the batches that spuir receives."""
CAST = (ContextualBanditsCast.name,)
"""What a user of contextualbandits gets whose tables are in single precision to begin with."""


def installed() -> list[type[Peer]]:
    """Return the adapters whose library can be imported here."""
    return [peer for peer in PEERS if find_spec(peer.package) is not None]


def versions() -> dict[str, str]:
    """Return the versions of the libraries that can be imported here."""
    found = {}
    for package in dict.fromkeys(peer.package for peer in PEERS):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def reference_scores(batches: list[Rows], contexts: Floats, actions: int) -> Floats:
    """Return mean + α·width (n, M) of one ridge regression per action, in its plainest form."""
    tables = np.empty((len(contexts), actions))
    for j in range(actions):
        gram, moment = RIDGE * np.eye(contexts.shape[1]), np.zeros(contexts.shape[1])
        for rows in batches:
            mine = rows.contexts[rows.actions == j]
            gram += mine.T @ mine
            moment += mine.T @ rows.rewards[rows.actions == j]
        widths = np.sqrt(np.einsum("bd,db->b", contexts, np.linalg.solve(gram, contexts.T)))
        tables[:, j] = contexts @ np.linalg.solve(gram, moment) + ALPHA * widths
    return tables

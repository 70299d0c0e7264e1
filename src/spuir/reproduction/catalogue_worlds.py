"""Worlds of actions with features: a changing catalogue, a few eligible actions per decision, clicks as rewards.

The log-odds of a click are a constant, what the context and the features of the action say (products of both), and the
action's own effect. Contexts, eligible sets, replacements and clicks depend on the seed alone, so that all methods see
the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from time import process_time
from typing import Any, Protocol

import numpy as np

from spuir.bandit import Bandit
from spuir.base.records import Codes, Floats
from spuir.base.streams import generator

EPISODES = 40


@dataclass(frozen=True, kw_only=True)
class CatalogueWorld:
    """How clicks come about.

    ``actions`` are live at a time, ``listed`` of them eligible in each row, and the share ``replaced`` is new in each
    episode. ``base`` is the constant of the log-odds; ``products``, ``features``, ``own`` and ``own_context`` are the
    standard deviations of its parts: products of features and context, features alone, the action's own constant and
    its own effect of the context. ``curved`` is that of products of the context with ``bends`` waves, cosines of the
    features in some direction, whose argument has the standard deviation ``bend``. ``varying`` is the number of
    features that change from decision to decision, ``price`` the standard deviation of what they add.
    """

    actions: int = 250
    listed: int = 40
    replaced: float = 0.05
    batch_size: int = 500
    columns: int = 12
    base: float = -1.62
    products: float = 0.9
    features: float = 0.6
    own: float = 0.33
    own_context: float = 0.33
    curved: float = 0.0
    bends: int = 4
    bend: float = 1.8
    varying: int = 0
    price: float = 0.0


_PLAIN = CatalogueWorld(products=0.0, features=0.0, own=0.0, own_context=0.0)
_NOTHING = replace(_PLAIN, actions=50, listed=20, base=-2.52, own=1.0, own_context=1.2)
WORLDS: Mapping[str, CatalogueWorld] = {
    "news": CatalogueWorld(),
    "large own effects": CatalogueWorld(own=0.61, own_context=0.74),
    "features explain everything": CatalogueWorld(own=0.0, own_context=0.0),
    "features explain nothing": replace(_NOTHING, replaced=0.0),
    "nothing, 5 % replaced": _NOTHING,
    "five actions": CatalogueWorld(actions=5, listed=5, replaced=0.0, base=-1.56, products=0.5, features=0.5),
    "low click rate": CatalogueWorld(batch_size=1000, base=-3.67),
    "features per decision": CatalogueWorld(varying=3, price=0.57),
    "curved in the features": replace(_PLAIN, actions=300, listed=30, base=-2.96, curved=1.8),
}
"""The worlds of the comparison by name.

The study that proposed the model (:mod:`~spuir.reproduction.catalogue_study`) tells what its worlds are made of, but
not how strong each part is. The numbers here were fitted, on seeds that no table reports, to what it says of the best
choice, of one regression per action and of the shared model. What it says of `hierarchical` and Vowpal Wabbit was not
used.
"""


@dataclass
class Clock:
    """Processor time, in seconds, of what ran inside ``with clock:``."""

    seconds: float = 0.0

    def __enter__(self) -> None:
        self.seconds -= process_time()

    def __exit__(self, *_: object) -> None:
        self.seconds += process_time()


class Chooser(Protocol):
    """What plays in a world; ``clock`` counts what its library takes."""

    clock: "Clock"

    def choose(self, contexts: Floats, lists: Codes, varying: Floats) -> tuple[Codes, Floats]:
        """Return the place (n,) in its list (n, m) of the action chosen in each row, and its probability."""
        ...

    def learn(
        self, contexts: Floats, lists: Codes, varying: Floats, chosen: Codes, propensities: Floats, rewards: Floats
    ) -> None:
        """Learn from an episode."""
        ...

    def replace(self, gone: Sequence[int], new: Mapping[int, Floats]) -> None:
        """Remove some actions and add others with their features."""
        ...


class OwnPolicy:
    """A policy of ours, with or without the catalogue."""

    def __init__(self, catalogue: Mapping[int, Floats], seed: int, given: Mapping[str, Any]) -> None:
        options = {"floor": 0.0, **given}
        policy, self._described = options.pop("policy", "hierarchical"), options.pop("catalogue", True)
        actions = {label: _named(row) for label, row in catalogue.items()} if self._described else list(catalogue)
        self.clock = Clock()
        self._bandit = Bandit(policy, actions, random_state=seed, **options)

    def choose(self, contexts: Floats, lists: Codes, varying: Floats) -> tuple[Codes, Floats]:
        """Decide among the listed actions."""
        given = self._sets(lists, varying)
        with self.clock:
            self._last = self._bandit.decide(contexts, **given)
        chosen = (lists == self._last.actions[:, None]).argmax(axis=1)
        return chosen, self._last.propensities

    def _sets(self, lists: Codes, varying: Floats) -> dict[str, Any]:
        if not (varying.shape[2] and self._described):
            return {"eligible": lists.tolist()}
        n, m, width = varying.shape
        table: dict[str, Any] = {"row": np.repeat(np.arange(n), m), "action": lists.ravel()}
        return {"action_features": table | {f"y{at}": varying[:, :, at].ravel() for at in range(width)}}

    def learn(
        self, contexts: Floats, lists: Codes, varying: Floats, chosen: Codes, propensities: Floats, rewards: Floats
    ) -> None:
        """Learn from the last decision."""
        with self.clock:
            self._bandit.partial_fit(self._last, rewards)

    def replace(self, gone: Sequence[int], new: Mapping[int, Floats]) -> None:
        """Replace actions; nothing ramps up, since rivals have no ramp."""
        with self.clock:
            for label, row in new.items():
                self._bandit.add_action(label, ramp=None, features=_named(row) if self._described else None)
            for label in gone:
                self._bandit.remove_action(label)


def _named(row: Floats) -> dict[str, float]:
    return {f"f{at}": float(value) for at, value in enumerate(row)}


class WabbitCatalogue:
    """Vowpal Wabbit's ``--cb_explore_adf`` with features of actions, crossed with features of the context."""

    def __init__(self, catalogue: Mapping[int, Floats], seed: int, given: Mapping[str, Any]) -> None:
        command = "--cb_explore_adf --cb_type mtr --quiet"
        library: Any = import_module("vowpalwabbit")
        self._model: Any = library.Workspace(f"{command} --random_seed {seed + 1} {given['options']}")
        self._rng, self._lines, self.clock = generator(seed, "policy", "wabbit"), dict[int, str](), Clock()
        self.replace([], catalogue)

    def replace(self, gone: Sequence[int], new: Mapping[int, Floats]) -> None:
        """Write the lines of new actions: features, and the id as a feature of its own."""
        for label, row in new.items():
            self._lines[label] = "|a " + _text(row) + f" |i {label}"
        for label in gone:
            del self._lines[label]

    def _examples(self, contexts: Floats, lists: Codes, varying: Floats) -> list[list[str]]:
        made: list[list[str]] = []
        for row, codes, own in zip(contexts, lists.tolist(), varying, strict=True):
            lines = [self._lines[code] for code in codes]
            if own.shape[1]:
                lines = [f"{line} |y {_text(price)}" for line, price in zip(lines, own, strict=True)]
            made.append(["shared |s " + _text(row), *lines])
        return made

    def choose(self, contexts: Floats, lists: Codes, varying: Floats) -> tuple[Codes, Floats]:
        """Draw from its probabilities."""
        self._last = self._examples(contexts, lists, varying)
        with self.clock:
            found = [self._model.predict(example) for example in self._last]
        chances = np.array(found, dtype=np.float64)
        chances /= chances.sum(axis=1, keepdims=True)
        uniforms = self._rng.random((len(contexts), 1))
        chosen = np.minimum((chances.cumsum(axis=1) < uniforms).sum(axis=1), lists.shape[1] - 1)
        return chosen, chances[np.arange(len(chosen)), chosen]

    def learn(
        self, contexts: Floats, lists: Codes, varying: Floats, chosen: Codes, propensities: Floats, rewards: Floats
    ) -> None:
        """Learn from costs, which are negative rewards, one row after the other."""
        for example, at, chance, reward in zip(
            self._last, chosen.tolist(), propensities.tolist(), rewards.tolist(), strict=True
        ):
            example[at + 1] = f"0:{-reward}:{max(chance, 1e-6)} {example[at + 1]}"
        with self.clock:
            for example in self._last:
                self._model.learn(example)


def _text(row: Floats) -> str:
    return " ".join(f"{at}:{value:.4g}" for at, value in enumerate(row.tolist()))


@dataclass
class Truth:
    """The drawn world: what is behind the clicks, and the live actions."""

    world: CatalogueWorld
    seed: int
    weights: dict[str, Floats] = field(default_factory=dict[str, Floats])
    features: dict[int, Floats] = field(default_factory=dict[int, Floats])
    own: dict[int, Floats] = field(default_factory=dict[int, Floats])
    born: dict[int, int] = field(default_factory=dict[int, int])
    live: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        rng, d, world = generator(self.seed, "environment", "catalogue"), self.world.columns, self.world
        self.weights = {
            "products": rng.standard_normal((d, d)) * (world.products / d),
            "features": rng.standard_normal(d) * (world.features / np.sqrt(d)),
            "directions": rng.standard_normal((d, world.bends)) * (world.bend / np.sqrt(d)),
            "curved": rng.standard_normal((world.bends, d)) * (world.curved / np.sqrt(world.bends * d / 2.0)),
            "price": rng.standard_normal(max(world.varying, 1)) * (world.price / np.sqrt(max(world.varying, 1))),
        }
        self.add(world.actions, 0)

    def add(self, count: int, episode: int) -> list[int]:
        """Add new actions."""
        rng, d, world = generator(self.seed, "environment", "actions", episode), self.world.columns, self.world
        first = len(self.born)
        made = list(range(first, first + count))
        for label in made:
            self.features[label] = rng.standard_normal(d)
            own = rng.standard_normal(d + 1)
            self.own[label] = np.append(own[:d] * (world.own_context / np.sqrt(d)), own[d] * world.own)
            self.born[label] = episode
        self.live += made
        return made

    def replaced(self, episode: int) -> tuple[list[int], list[int]]:
        """Replace some actions; return those that left and the new ones."""
        count = round(self.world.replaced * self.world.actions)
        rng = generator(self.seed, "environment", "replaced", episode)
        gone = [self.live[at] for at in sorted(rng.choice(len(self.live), count, replace=False), reverse=True)]
        self.live = [label for label in self.live if label not in set(gone)]
        return gone, self.add(count, episode)

    def rows(self, episode: int) -> tuple[Floats, Codes, Floats]:
        """Return contexts (n, d), lists of labels (n, m) and features per decision (n, m, y)."""
        rng, world = generator(self.seed, "environment", "contexts", episode), self.world
        n = world.batch_size
        contexts = rng.standard_normal((n, world.columns))
        places = rng.random((n, len(self.live))).argpartition(world.listed - 1, axis=1)[:, : world.listed]
        lists = np.sort(np.array(self.live)[places], axis=1)
        return contexts, lists, rng.standard_normal((n, world.listed, world.varying))

    def chances(self, contexts: Floats, lists: Codes, varying: Floats) -> Floats:
        """Return the probability of a click for every listed action (n, m)."""
        known = sorted(set(lists.ravel().tolist()))
        place = {label: at for at, label in enumerate(known)}
        x = np.array([self.features[label] for label in known])
        own = np.array([self.own[label] for label in known])
        bent = np.cos(x @ self.weights["directions"])
        theta = x @ self.weights["products"] + bent @ self.weights["curved"] + own[:, :-1]
        constant = x @ self.weights["features"] + own[:, -1]
        at = np.vectorize(place.__getitem__)(lists)
        odds = self.world.base + np.einsum("nd,nmd->nm", contexts, theta[at]) + constant[at]
        if self.world.varying:
            odds = odds + varying @ self.weights["price"]
        return 1.0 / (1.0 + np.exp(-odds))


_SBUCB = {"policy": "sbucb", "catalogue": False, "alpha": 0.3, "ridge": 10.0, "scale": True, "intercept": True}
METHODS: Mapping[str, tuple[type[OwnPolicy] | type[WabbitCatalogue], Mapping[str, Any]]] = {
    "hierarchical": (OwnPolicy, {}),
    "hierarchical, kernel": (OwnPolicy, {"kernel": 24}),
    "shared": (OwnPolicy, {"deviations": "none"}),
    "disjoint": (OwnPolicy, {"catalogue": False}),
    "SBUCB": (OwnPolicy, _SBUCB),
    "Vowpal Wabbit": (WabbitCatalogue, {}),
}
"""Methods by name, with what they are given."""


def browse(
    *, world: str, method: str, seed: int, episodes: int = EPISODES, options: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Let a method choose in a world; return its expected reward per row, and on rows whose best action is new.

    The first episode is uniform for everybody. ``processor`` is the processor time, in seconds, of
    the method's own calls; the text that Vowpal Wabbit reads is written outside of it.
    """
    truth = Truth(WORLDS[world], seed)
    made, given = METHODS[method]
    player: Chooser = made({label: truth.features[label] for label in truth.live}, seed, {**given, **(options or {})})
    totals, cold, rows = np.zeros(3), np.zeros(4), list[dict[str, Any]]()
    for n in range(episodes):
        contexts, lists, varying = truth.rows(n)
        chances = truth.chances(contexts, lists, varying)
        chosen, propensities = player.choose(contexts, lists, varying)
        every = np.arange(len(lists))
        clicks = generator(seed, "environment", "noise", n).random(len(lists)) < chances[every, chosen]
        player.learn(contexts, lists, varying, chosen, propensities, clicks.astype(np.float64))
        levels = np.column_stack([chances[every, chosen], chances.mean(axis=1), chances.max(axis=1)])
        totals += levels.mean(axis=0)
        rows.append({"episode": n + 1, "average_reward": totals[0] / (n + 1)})
        if n:
            best = lists[every, chances.argmax(axis=1)]
            new = np.array([truth.born[label] == n for label in best.tolist()])
            cold += np.append(levels[new].sum(axis=0), new.sum())
        if WORLDS[world].replaced:
            gone, added = truth.replaced(n + 1)
            player.replace(gone, {label: truth.features[label] for label in added})
    names = ("average_reward", "uniform", "oracle")
    share = (cold[0] - cold[1]) / (cold[2] - cold[1]) if cold[3] else None
    last = dict(zip(names, totals / episodes, strict=True))
    return [*rows[:-1], {"episode": episodes, **last, "new": share, "processor": player.clock.seconds}]

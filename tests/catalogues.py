"""A small catalogue, and episodes whose rewards follow its features, for tests."""

from typing import Any

import numpy as np
import pandas as pd

import spuir
from spuir.base import streams
from spuir.testing import laws_for

COLUMNS, DIM = ("age", "price", "length"), 4


def items(count: int = 12, seed: int = 0, first: int = 0) -> pd.DataFrame:
    """Return a catalogue of numbers and a category, with labels n0, n1, …"""
    rng = streams.generator(seed, "items", first)
    table = pd.DataFrame(rng.standard_normal((count, len(COLUMNS))), columns=list(COLUMNS))
    table["topic"] = rng.choice(["sport", "news", "art"], count)
    table.index = pd.Index([f"n{first + at}" for at in range(count)])
    return table


def truth(seed: int = 0) -> Any:
    """Return the weights of products of features and contexts."""
    return streams.generator(seed, "truth").standard_normal((len(COLUMNS), DIM))


class Shop:
    """Draws contexts and lists of labels, and returns rewards."""

    def __init__(self, catalogue: pd.DataFrame, seed: int = 0, noise: float = 0.5) -> None:
        self.catalogue, self.noise = catalogue, noise
        self.rng, self.weights = streams.generator(seed, "shop"), truth(seed)

    def contexts(self, n: int) -> Any:
        return self.rng.standard_normal((n, DIM))

    def lists(self, n: int, size: int = 5, among: Any = None) -> list[list[str]]:
        labels = np.array(self.catalogue.index if among is None else among)
        return [list(map(str, self.rng.choice(labels, size, replace=False))) for _ in range(n)]

    def rewards(self, contexts: Any, labels: Any) -> Any:
        x = self.catalogue.loc[list(labels), list(COLUMNS)].to_numpy(np.float64)
        return np.einsum("nk,kd,nd->n", x, self.weights, contexts) + self.noise * self.rng.standard_normal(len(x))

    def teach(self, bandit: spuir.Bandit, episodes: int = 3, n: int = 260, **given: Any) -> Any:
        live = [label for label, on in zip(bandit.actions_, bandit.active_, strict=True) if on]
        for _ in range(episodes):
            X = self.contexts(n)
            decided = bandit.decide(X, eligible=self.lists(n, among=live), **given)
            bandit.partial_fit(decided, self.rewards(X, decided.actions))
        return bandit


def taught(seed: int = 0, **parameters: Any) -> tuple[Any, Shop]:
    """Return a bandit with a catalogue after three episodes, and where it learned."""
    shop = Shop(items(), seed)
    return shop.teach(spuir.Bandit("hierarchical", shop.catalogue, random_state=seed, **parameters)), shop


WITHOUT_FEATURES = {
    "actions can be added",  # an action is added with features
    "a loaded bandit continues bit for bit",
    "foreign shards are refused",
    "parameters are arguments",  # compares the number of actions that the laws pass
}
"""Laws that add an action without features, or look at the labels alone; they have tests of their own here."""


def laws_with_a_catalogue(policy: spuir.policies.Policy) -> list[Any]:
    """Return the laws that a policy obeys with a catalogue; they run with the fixture ``described``."""
    return [law for law in laws_for(policy) if law.name not in WITHOUT_FEATURES]

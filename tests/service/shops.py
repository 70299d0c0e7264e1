"""A small shop for tests of the service: an engine on a clock that tests move, and a world that pays rewards."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from spuir.errors import ServiceError
from spuir.service.commands import (
    CloseEpisode,
    CreateExperiment,
    Decide,
    DecideMany,
    DecisionAnswer,
    DecisionRow,
    Reward,
    RewardRow,
)
from spuir.service.engine import Engine
from spuir.service.settings import ExperimentSettings
from spuir.service.stores import open_store

NAME = "shop"


class Clock:
    """Seconds since 1970, moved by the test."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Shop:
    """One experiment in an engine that can be stopped and started again."""

    def __init__(self, store: Callable[[], Any], **settings: Any) -> None:
        self.make_store, self.clock, self.made = store, Clock(), 0
        self.engine = self.start()
        given = {"actions": ["a", "b", "c"], "policy": "spuir", "seed": 7, **settings}
        self.do(CreateExperiment(experiment=NAME, settings=ExperimentSettings(**given)))

    def start(self) -> Engine:
        return Engine(self.make_store(), clock=self.clock, ids=self._id)

    def _id(self) -> str:
        self.made += 1
        return f"{self.made:08x}"

    def restart(self) -> None:
        self.engine.close()
        self.engine = self.start()

    def ask(self, commands: list[Any]) -> list[Any]:
        """Carry out commands in one group, and return answers and errors."""
        return self.engine.execute(commands)

    def do(self, command: Any) -> Any:
        """Carry out one command; an error is raised."""
        (outcome,) = self.engine.execute([command])
        if isinstance(outcome, ServiceError):
            raise outcome
        return outcome

    def decide(self, context: Any = (0.5, 1.0), **row: Any) -> DecisionAnswer:
        context = list(context) if isinstance(context, tuple) else context
        return self.do(Decide(experiment=NAME, row=DecisionRow(context=context, **row)))

    def decide_many(self, contexts: np.ndarray, ids: list[str] | None = None) -> list[DecisionAnswer]:
        rows = [
            DecisionRow(context=one, id=None if ids is None else ids[at]) for at, one in enumerate(contexts.tolist())
        ]
        return self.do(DecideMany(experiment=NAME, rows=rows)).decisions

    def reward(self, decision_id: str, value: float = 1.0, **row: Any) -> str:
        return self.do(Reward(experiment=NAME, row=RewardRow(decision_id=decision_id, reward=value, **row))).status

    def close(self) -> Any:
        return self.do(CloseEpisode(experiment=NAME))

    def status(self, decision_id: str) -> Any:
        return self.engine.decision(NAME, decision_id)

    def digests(self) -> list[str]:
        return [one.digest for one in self.engine.versions(NAME)]

    def live(self, episodes: int = 3, rows: int = 40, dim: int = 3, seed: int = 0) -> None:
        """Let the shop run: decisions, rewards for some, and closed episodes."""
        rng = np.random.default_rng(seed)
        for _ in range(episodes):
            contexts = rng.normal(size=(rows, dim))
            for context, answer in zip(contexts, self.decide_many(contexts), strict=True):
                if rng.random() < 0.7:
                    paid = context[0] if answer.action == "a" else context[1]
                    self.reward(answer.id, float(paid > 0))
            self.clock.now += 3_600
            self.close()


def sqlite_store(folder: Path, **options: Any) -> Callable[[], Any]:
    return lambda: open_store(str(folder / "log.db"), **options)


def refused(shop: Shop, command: Any) -> ServiceError:
    """Return the error of a command, which has written nothing."""
    before = {head.name: (head.seq, head.chain) for head in shop.engine.store.heads()}
    (outcome,) = shop.engine.execute([command])
    assert isinstance(outcome, ServiceError), outcome
    assert {head.name: (head.seq, head.chain) for head in shop.engine.store.heads()} == before
    return outcome

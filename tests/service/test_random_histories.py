"""Random histories against a naive form: every record kept in lists, every episode found by looking at all of them."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from spuir.service.checking import check_store
from spuir.service.commands import Activate, ChangeExperiment, CloseEpisode, Forget, Reward, RewardRow
from spuir.service.engine import Engine
from spuir.service.stores import open_store
from spuir.service.versions.joining import combine
from spuir.service.versions.rebuild import Lineup
from tests.service.shops import NAME, Shop

SPANS = {"10m": 600.0, "1h": 3_600.0, None: None}


@dataclass
class Asked:
    """A decision as the naive form knows it; times are log times."""

    key: str
    due: float | None
    defer: bool
    unit: str | None
    rewards: list = field(default_factory=list)
    activated: bool = False
    gone: bool = False
    closed: bool = False


class Naive:
    """What the service should do, computed directly."""

    def __init__(self, created):
        self.window, self.aggregation, self.default = "10m", "earliest", 0.0
        self.time = self.logged = created
        self.decisions: list[Asked] = []
        self.episodes: list[dict[str, float]] = []

    def at(self, now):
        """Set the time of what comes next: that of the clock, but never before the last record."""
        self.time = max(self.logged, round(now * 1e6) / 1e6)
        return self.time

    def open(self, one):
        return not one.closed and (one.due is None or self.time < one.due)

    def close(self):
        settled = [one for one in self.decisions if not one.closed and (one.due is None or one.due <= self.time)]
        rows = {}
        for one in settled:
            one.closed = True
            if not one.gone and (one.activated or not one.defer):
                found = combine(self.aggregation, one.rewards) if one.rewards else self.default
                rows[one.key] = found
        if settled:
            self.episodes.append({key: value for key, value in rows.items() if value is not None})
        return len(settled)


class Play:
    """Random commands to a shop and to the naive form; each answer is compared."""

    def __init__(self, shop, seed):
        self.shop, self.naive, self.rng = shop, Naive(shop.clock.now), np.random.default_rng(seed)
        self.step = 0

    def run(self, steps):
        for self.step in range(steps):
            self.shop.clock.now += float(self.rng.choice([*JUMPS], p=[*JUMPS.values()]))
            now, records = self.naive.at(self.shop.clock.now), self.shop.engine.experiment(NAME).records
            getattr(self, self.rng.choice([*CHANCES], p=[*CHANCES.values()]))()
            if self.shop.engine.experiment(NAME).records > records:
                self.naive.logged = now
        return self.naive

    def recent(self):
        known = self.naive.decisions
        return known[self.rng.integers(max(0, len(known) - 30), len(known))] if known else None

    def decide(self):
        key, defer, unit = f"d{self.step}", bool(self.rng.random() < 0.2), f"u{self.rng.integers(40)}"
        context = tuple(self.rng.normal(size=3).round(3).tolist())
        self.shop.decide(context, id=key, defer=defer, unit=unit)
        now, span = self.naive.time, SPANS[self.naive.window]
        self.naive.decisions.append(Asked(key, None if span is None else now + span, defer, unit))

    def decide_several(self):
        """Decisions that share a record."""
        answers = self.shop.decide_many(self.rng.normal(size=(int(self.rng.integers(2, 6)), 3)).round(3))
        now, span = self.naive.time, SPANS[self.naive.window]
        due = None if span is None else now + span
        self.naive.decisions += [Asked(one.id, due, False, None) for one in answers]

    def reward(self):
        if (one := self.recent()) is None:
            return
        key, value, when = f"r{self.step}", float(self.rng.integers(5)), float(self.rng.integers(3))
        row = RewardRow(decision_id=one.key, reward=value, id=key, time=when)
        (answer,) = self.shop.ask([Reward(experiment=NAME, row=row)])
        expected = "forgotten" if one.gone else "joined" if self.naive.open(one) else "late"
        assert answer.status == expected, (self.step, one)
        if expected == "joined":
            one.rewards.append((int(when * 1e6), key, value))

    def activate(self):
        if (one := self.recent()) is None:
            return
        (answer,) = self.shop.ask([Activate(experiment=NAME, decision_id=one.key)])
        if one.defer and not one.activated and not one.gone:
            one.activated = self.naive.open(one)
            assert getattr(answer, "status", "too late") == ("activated" if one.activated else "too late")

    def close(self):
        assert self.shop.do(CloseEpisode(experiment=NAME)).rows == self.naive.close()

    def change(self):
        changes = {
            "window": [*SPANS][self.rng.integers(3)],
            "aggregation": ["earliest", "sum", "max"][self.rng.integers(3)],
            "default_reward": [0.0, 1.0, None][self.rng.integers(3)],
        }
        self.shop.do(ChangeExperiment(experiment=NAME, changes=changes))
        self.naive.window, self.naive.aggregation, self.naive.default = changes.values()

    def forget(self):
        if (one := self.recent()) is None or one.unit is None:
            return
        (answer,) = self.shop.ask([Forget(experiment=NAME, unit=one.unit)])
        mine = [other for other in self.naive.decisions if other.unit == one.unit and not other.gone]
        assert getattr(answer, "decisions", 0) == len(mine)
        for other in mine:
            other.gone = True

    def restart(self):
        self.shop.restart()


JUMPS = {0.0: 0.3, 1.0: 0.3, 60.0: 0.2, 400.0: 0.1, 2_000.0: 0.06, -3_000.0: 0.04}
"""How far the clock moves between two commands, in seconds, and how likely that is."""
CHANCES = dict(
    decide=0.4, decide_several=0.1, reward=0.3, activate=0.05, close=0.08, change=0.03, forget=0.01, restart=0.03
)


@pytest.mark.parametrize("seed", range(10))
def test_random_histories_are_those_of_the_naive_form(tmp_path, seed):
    shop = Shop(lambda: open_store(str(tmp_path / "log.db")), policy="puir")
    naive = Play(shop, seed).run(400)
    shop.clock.now = max(shop.clock.now, naive.logged) + 10_000
    naive.at(shop.clock.now)
    assert shop.do(CloseEpisode(experiment=NAME)).rows == naive.close()
    gone = {one.key for one in naive.decisions if one.gone}
    found: dict[int, dict[str, float]] = {number: {} for number in range(len(naive.episodes))}
    for block in shop.engine.log(NAME):
        for row in block:
            found[row["episode"]][row["decision_id"]] = row["reward"]
    for number, rows in enumerate(naive.episodes):
        # The rewards of a forgotten decision went with it; what is left is as it was learned, in the same order.
        kept = {key: value for key, value in rows.items() if key not in gone}
        assert list(found[number].items()) == list(kept.items()), number
    learned = [one.rows for one in shop.engine.versions(NAME)[1:]]
    assert learned == [len(rows) for rows in naive.episodes]
    assert check_store(shop.engine.store).problems == []
    shop.engine.close()


def test_an_engine_runs_on_every_store(store_url):
    shop = Shop(lambda: open_store(store_url))
    shop.live(episodes=3)
    digests = shop.digests()
    shop.restart()
    shop.live(episodes=1, seed=3)
    assert shop.digests()[:4] == digests
    assert check_store(shop.engine.store).problems == []
    with shop.engine.store.transaction() as writer:
        writer.drop_models(NAME, [2, 3, 4])
    assert Lineup(shop.engine.store, NAME).model(4).digest() == shop.digests()[4]
    shop.engine.close()


def test_engines_that_share_a_store_are_one_service(postgres):
    """Two engines take turns at random: ids, row numbers, settings and versions are common to both."""
    url = postgres.new_database("shared")
    shop = Shop(lambda: open_store(url), window=None)
    second = Engine(open_store(url), clock=shop.clock, ids=shop._id)
    rng = np.random.default_rng(5)
    engines = [shop.engine, second]
    seen = set()
    for at in range(120):
        shop.engine = engines[rng.integers(2)]
        context = tuple(rng.normal(size=3).round(3).tolist())
        first = shop.decide(context, id=f"d{at}")
        seen.add(first.version)
        shop.engine = engines[rng.integers(2)]
        again = shop.decide(context, id=f"d{at}")
        assert again.replayed and again.action == first.action
        shop.decide(context)
        shop.reward(f"d{at}", 1.0)
        if at % 30 == 29:
            shop.close()
            for engine in engines:
                engine.tick()
        if at == 70:
            shop.do(ChangeExperiment(experiment=NAME, changes={"floor": 0.05}))
    assert seen == {0, 1, 2, 3}
    counts = engines[0].experiment(NAME).counts
    assert counts == engines[1].experiment(NAME).counts
    assert (counts["decisions"], counts["learned"]) == (240, 240)
    assert check_store(engines[1].store).problems == []
    for engine in engines:
        engine.close()

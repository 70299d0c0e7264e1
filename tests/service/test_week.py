"""A week of a shop on a simulated clock: disorder, duplicates, restarts; what goes in is what is learned."""

import heapq
import json
import os
from collections import Counter

import numpy as np
import pytest

from spuir.service.checking import check_store
from spuir.service.commands import CloseEpisode, Decide, DecisionRow, Reward, RewardRow
from tests.service.shops import NAME, Shop, sqlite_store

WEEK, WINDOW, EARLY = 7 * 86_400.0, 3_600.0, 5 * 3_600.0


class Week:
    """Decisions and rewards of a week, sent in groups; ``seen`` counts what the shop answered."""

    def __init__(self, folder, decisions, rewards, group, batch_size, restarts, seed=20):
        self.shop = Shop(sqlite_store(folder), window=WINDOW, batch_size=batch_size, early="1d", policy="puir")
        self.rng = np.random.default_rng(seed)
        self.decisions, self.rewards, self.group, self.restarts = decisions, rewards, group, restarts
        self.begin, self.seen, self.paid = self.shop.clock.now, Counter(), {}

    def run(self):
        n, rng = self.decisions, self.rng
        times = np.sort(rng.random(n)) * WEEK
        paying = rng.random(n) < self.rewards / n
        # Most rewards come within the hour, some after it, and some a little before their decision.
        delays = np.where(rng.random(n) < 0.9, rng.random(n) * 0.8 * WINDOW, WINDOW * (1 + 20 * rng.random(n)))
        delays = np.where(rng.random(n) < 0.02, -rng.random(n) * EARLY, delays)
        contexts = rng.normal(size=(n, 4)).round(3)
        stops = set(rng.choice(np.arange(1, n // self.group), self.restarts, replace=False).tolist())
        # (when, decision, value) of all rewards, in the order of their arrival
        due = [(times[at] + delays[at], int(at), float(contexts[at, 0] > 0)) for at in np.flatnonzero(paying)]
        heapq.heapify(due)
        for first in range(0, n, self.group):
            rows = range(first, min(first + self.group, n))
            self.shop.clock.now = self.begin + times[rows[0]]
            self.send(rows, contexts, self.arrived(due, times[rows[-1]]))
            if first // self.group in stops:
                self.shop.restart()
            self.shop.engine.tick()
        self.shop.clock.now += 21 * WINDOW
        self.send(range(0), contexts, self.arrived(due, float("inf")))
        self.shop.clock.now += 2 * WINDOW
        self.shop.do(CloseEpisode(experiment=NAME))
        return self

    @staticmethod
    def arrived(due, now):
        found = []
        while due and due[0][0] <= now:
            found.append(heapq.heappop(due))
        return found

    def send(self, rows, contexts, rewards):
        """Send decisions and rewards in one group, in any order, and some of them twice."""
        commands = [Decide(experiment=NAME, row=DecisionRow(context=contexts[at].tolist(), id=f"d{at}")) for at in rows]
        for _, at, value in rewards:
            row = RewardRow(decision_id=f"d{at}", reward=value, id=f"r{at}")
            commands += [Reward(experiment=NAME, row=row)] * (2 if self.rng.random() < 0.05 else 1)
        order = self.rng.permutation(len(commands))
        commands = [commands[at] for at in order]
        for command, answer in zip(commands, self.shop.ask(commands), strict=True):
            if isinstance(command, Decide):
                self.seen["decisions"] += not answer.replayed
            else:
                self.seen[f"rewards {answer.status}"] += 1
                if answer.status == "joined":
                    self.paid[answer.decision_id] = command.row.reward
                elif answer.status == "early":
                    self.paid[answer.decision_id] = command.row.reward

    def verify(self):
        """Counts in = counts in the log = counts learned, and each reward is the one that was sent."""
        counts = self.shop.engine.experiment(NAME).counts
        assert self.seen["decisions"] == counts["decisions"] == counts["learned"] == self.decisions
        for status in ("joined", "late", "early"):
            assert self.seen[f"rewards {status}"] == counts.get(f"rewards {status}", 0), status
        recorded = sum(self.seen[f"rewards {status}"] for status in ("joined", "late", "early", "unknown"))
        assert recorded == counts["rewards"]
        total = learned = 0
        for block in self.shop.engine.log(NAME):
            for row in block:
                total += 1
                learned += row["episode"] is not None
                assert row["reward"] == self.paid.get(row["decision_id"], 0.0), row
        assert total == learned == self.decisions
        versions = self.shop.engine.versions(NAME)
        assert sum(one.rows for one in versions) == self.decisions
        return counts, len(versions) - 1


def test_a_week_of_a_shop(tmp_path):
    week = Week(tmp_path, decisions=12_000, rewards=2_400, group=200, batch_size=500, restarts=6).run()
    counts, versions = week.verify()
    assert versions > 10
    assert counts["rewards late"] > 100 and counts["rewards early"] > 10
    report = check_store(week.shop.engine.store)
    assert report.problems == []
    assert report.decisions == 12_000


@pytest.mark.faults
def test_a_week_of_a_large_shop(tmp_path_factory):
    size = int(os.environ.get("SPUIR_WEEK_DECISIONS", "1000000"))
    week = Week(tmp_path_factory.mktemp("week"), size, size // 5, group=500, batch_size=10_000, restarts=50).run()
    counts, versions = week.verify()
    assert check_store(week.shop.engine.store, decisions=False).problems == []
    print(json.dumps({"decisions": size, "versions": versions, **counts}))

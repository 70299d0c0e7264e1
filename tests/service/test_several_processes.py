"""Several server processes on one PostgreSQL database: kills of the elected learner, and outages of the database."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, LiteralString, cast

import httpx
import msgspec
import psycopg
import pytest

from spuir.errors import ServiceError
from spuir.service import Client
from spuir.service.checking import check_store
from spuir.service.engine import Engine
from spuir.service.log_records import Record, VersionFact
from spuir.service.stores import open_store
from spuir.service.versions.learner import InProcess, Learned
from tests.service.api.servers import ACTIONS, NUMBERS
from tests.service.postgres_server import Server
from tests.service.processes import ServerProcess
from tests.service.shops import NAME, Shop

SETTINGS: dict[str, Any] = {"context": NUMBERS, "window": None, "seed": 7, "aggregation": "sum"}
PATIENCE = 60.0
_databases = count()


def until(reached: Callable[[], Any]) -> Any:
    """Wait until a condition holds, and return what it returned."""
    end = time.monotonic() + PATIENCE
    while not (found := reached()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return found


class Fleet:
    """Servers on one database, and clients that go on to the next server when one does not answer."""

    def __init__(self, url: str, servers: list[ServerProcess]) -> None:
        self.url, self.servers = url, servers
        self.clients = [Client(server.url, patience=0.2, timeout=30) for server in servers]
        self.actions: dict[str, str] = {}
        """The action of each decision that was acknowledged."""
        self.paid: dict[str, str] = {}
        """The status of each reward that was acknowledged, by its decision."""
        self.refusals = Counter[str]()
        self._stop, self._visitors = threading.Event(), count()

    def anywhere(self, first: int, ask: Callable[[Client], Any]) -> Any:
        """Return what the first server that answers says; one that cannot record now is left for the next."""
        end = time.monotonic() + PATIENCE
        for server in count(first):
            try:
                return ask(self.clients[server % len(self.clients)])
            except ServiceError as refused:
                assert refused.code in ("unreachable", "storage_unavailable", "overloaded", "timed_out"), refused
                assert time.monotonic() < end, refused
                self.refusals[refused.code] += 1
                time.sleep(0.02)

    def decide(self, server: int, key: str, context: list[float]) -> int:
        """Take a decision, and return the version that took it."""
        one = self.anywhere(server, lambda client: client.decide(NAME, context, id=key))
        self.actions[key] = str(one.action)
        return one.version

    @contextmanager
    def visitors(self, threads: int) -> Iterator[None]:
        """Let visitors decide and reward on all servers while a block runs."""

        def visit(visitor: int) -> None:
            for number in count():
                if self._stop.is_set():
                    return
                key, server = f"visitor {visitor}, {number}", visitor + number
                self.decide(server, key, [float(visitor % 5), float(number % 7), 1.0])
                paid = self.anywhere(server + 1, lambda client: client.reward(NAME, key, 1.0))  # noqa: B023
                self.paid[key] = paid.status

        self._stop.clear()
        with ThreadPoolExecutor(threads) as pool:
            visits = [pool.submit(visit, next(self._visitors)) for _ in range(threads)]
            try:
                yield
            finally:
                self._stop.set()
            for one in visits:
                one.result()

    def serve_more(self, decisions: int) -> None:
        """Wait until so many more decisions were acknowledged."""
        wanted = len(self.actions) + decisions
        until(lambda: len(self.actions) >= wanted)

    def elected(self) -> ServerProcess:
        """Return the server that learns: its connection has the lock."""

        def find() -> ServerProcess | None:
            with psycopg.connect(self.url) as connection:
                sql = (
                    "SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE granted"
                    " AND locktype = 'advisory' AND datname = current_database() AND application_name LIKE '%learner%'"
                )
                names = [row[0] for row in connection.execute(sql).fetchall()]
            assert len(names) <= 1
            return next((one for one in self.servers if f"spuir learner {one.pid}" in names), None)

        return until(find)

    def close(self) -> int:
        """Close the episode, and return the version that it leads to."""
        return self.anywhere(0, lambda client: client.close_episode(NAME)).version

    def newest(self) -> int:
        return self.anywhere(0, lambda client: client.experiment(NAME)).newest

    def wait_for_all(self, version: int) -> None:
        """Wait until a version is learned, and see that every server that runs serves it."""
        until(lambda: self.newest() >= version)
        for place, server in enumerate(self.servers):
            if server.pid is not None:
                assert self.decide(place, f"look at {place} for {version}", [0.0, 0.0, 1.0]) >= version
                until(lambda place=place: self.clients[place].experiment(NAME).version >= version)

    def check(self) -> None:
        """Compare the log with what was acknowledged, and replay it."""
        self.wait_for_all(self.close())
        last = self.anywhere(0, lambda client: client.close_episode(NAME)).version  # the looks of the line before
        until(lambda: self.newest() == last)
        closes, versions = self.episodes()
        assert [one.number for one in versions] == list(range(last + 1))
        assert [one.close for one in versions[1:]] == closes == list(range(1, last + 1))  # each was learned once
        rows = self.anywhere(0, lambda client: client.log(NAME))
        assert {row["decision_id"]: row["action"] for row in rows} == self.actions
        assert len(rows) == len(self.actions) == sum(one.rows for one in versions)
        rewards = {row["decision_id"]: row["reward"] for row in rows}
        joined = [key for key, status in self.paid.items() if status == "joined"]
        assert joined and {rewards[key] for key in joined} == {1.0}  # sums: each was counted once
        assert set(rewards.values()) <= {0.0, 1.0}
        command = [sys.executable, "-m", "spuir", "serve", "--check", "--store", self.url]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0 and "all is well" in done.stdout, done.stdout + done.stderr

    def episodes(self) -> tuple[list[int], list[VersionFact]]:
        """Return the numbers of closed episodes and the versions, as the log has them."""
        store = open_store(self.url, read_only=True)
        records, place = list[Record](), 1
        while piece := store.records(NAME, place, 2**39, ("close", "version")):
            records, place = records + piece, piece[-1].seq + 1
        store.close()
        versions = [
            msgspec.json.decode(one.payload or b"", type=VersionFact) for one in records if one.kind == "version"
        ]
        return [int(one.key) for one in records if one.kind == "close"], versions


@contextmanager
def fleet(postgres: Server, folder: Path, servers: int) -> Iterator[Fleet]:
    """Run servers on a new database; they are killed at the end."""
    url = postgres.new_database(f"fleet{next(_databases)}")
    with ExitStack() as stack:
        made: list[ServerProcess] = []
        for number in range(servers):
            (folder / str(number)).mkdir()
            made.append(ServerProcess(folder / str(number), "--store", url))
            stack.callback(made[-1].end)
            made[-1].start()
        found = Fleet(url, made)
        for client in found.clients:
            stack.callback(client.close)
        found.clients[0].create(NAME, ACTIONS, **SETTINGS)
        yield found


def learner_of(server: ServerProcess) -> int | None:
    """Return the process in which a server learns."""
    found = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    return int(found[0]) if found else None


def fail_over(shops: Fleet, kills: int, seed: int) -> None:
    """Kill the elected server again and again, in the middle of learning and between a close and its version."""
    rng = random.Random(seed)
    with shops.visitors(4):
        for kill in range(kills):
            shops.serve_more(20)
            elected = shops.elected()
            child = learner_of(elected)
            stopped = child if kill % 2 else None
            if stopped is not None:  # it can not finish what it is asked
                os.kill(stopped, signal.SIGSTOP)
            version = shops.close()
            if stopped is None:
                time.sleep(rng.random() * 0.1)
            else:
                assert shops.newest() < version
            elected.kill()
            if stopped is not None:
                os.kill(stopped, signal.SIGKILL)
            assert shops.elected() is not elected
            shops.wait_for_all(version)
            elected.start()
            # The next to be killed has a process that learns.
            shops.serve_more(1)
            shops.wait_for_all(shops.close())
    shops.check()
    print(f"{kills} kills, {len(shops.actions)} decisions, {dict(shops.refusals)}")


def outage(postgres: Server, shops: Fleet, times: int) -> None:
    """Stop the database under load, also in the middle of learning, and start it again."""
    with shops.visitors(4):
        for _ in range(times):
            shops.serve_more(40)
            version = shops.close()
            postgres.stop("immediate")
            for server in shops.servers:
                body = {"context": [1.0, 2.0, 3.0], "id": f"refused-{version}"}
                answer = httpx.post(f"{server.url}/v1/experiments/{NAME}/decisions", json=body, timeout=30)
                assert (answer.status_code, answer.json()["error"]["code"]) == (503, "storage_unavailable")
                assert httpx.get(f"{server.url}/ready", timeout=30).status_code == 503
                assert httpx.get(f"{server.url}/health", timeout=30).status_code == 200
                assert httpx.get(f"{server.url}/metrics", timeout=30).status_code == 200
            time.sleep(1.0)  # learners and elections fail meanwhile
            postgres.start()
            shops.serve_more(40)
            shops.wait_for_all(version)
    shops.check()
    print(f"{times} outages, {len(shops.actions)} decisions, {dict(shops.refusals)}")


def quiet_outage(postgres: Server, shops: Fleet) -> None:
    """Stop the database while nobody sends anything, and start it again."""
    postgres.stop("immediate")
    for server in shops.servers:
        until(lambda server=server: httpx.get(f"{server.url}/ready", timeout=30).status_code == 503)
    postgres.start()
    for server in shops.servers:  # a balancer sends nothing to a server that is not ready, which must notice by itself
        until(lambda server=server: httpx.get(f"{server.url}/ready", timeout=30).status_code == 200)


class Slow(InProcess):
    """Learns when asked, and says so later."""

    released = False

    def collect(self) -> list[Learned]:
        return super().collect() if self.released else []


def test_a_process_that_lost_the_election_while_it_learned_does_no_harm(postgres: Server) -> None:
    url = postgres.new_database(f"fleet{next(_databases)}")
    shop = Shop(lambda: open_store(url), window=None)
    first, second = shop.engine, Engine(open_store(url), clock=shop.clock, ids=shop._id)
    first._jobs.learner = slow = Slow()
    shop.decide()
    shop.close()
    assert first.status()["elected"] and first.status()["learning"] == [NAME]
    with psycopg.connect(url, autocommit=True) as connection:
        holds = "locktype = 'advisory' AND datname = current_database() AND application_name LIKE '%learner%'"
        end = f"SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE {holds}"
        assert len(connection.execute(cast(LiteralString, end)).fetchall()) == 1
    until(lambda: second.tick() and second.status()["elected"])
    assert len(second.versions(NAME)) == 2
    slow.released = True
    first.tick()
    assert not first.status()["elected"] and first.status()["problems"] == {}
    assert first.versions(NAME) == second.versions(NAME)
    shop.decide()
    shop.close()
    second.tick()
    assert [one.rows for one in first.versions(NAME)] == [0, 1, 1]
    assert check_store(first.store).problems == []
    for engine in (first, second):
        engine.close()


def test_another_process_takes_over_when_the_learner_is_killed(postgres: Server, tmp_path: Path) -> None:
    with fleet(postgres, tmp_path, 2) as shops:
        fail_over(shops, kills=2, seed=0)


@pytest.mark.faults
def test_another_process_takes_over_in_forty_kills(postgres: Server, tmp_path: Path) -> None:
    with fleet(postgres, tmp_path, 3) as shops:
        fail_over(shops, kills=40, seed=1)


def test_servers_outlive_an_outage_of_the_database(postgres: Server, tmp_path: Path) -> None:
    with fleet(postgres, tmp_path, 2) as shops:
        outage(postgres, shops, times=1)


@pytest.mark.faults
def test_servers_outlive_ten_outages_of_the_database(postgres: Server, tmp_path: Path) -> None:
    with fleet(postgres, tmp_path, 3) as shops:
        quiet_outage(postgres, shops)
        outage(postgres, shops, times=10)

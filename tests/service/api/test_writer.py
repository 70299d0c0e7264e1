"""The writer: commands of many requests share commits; what is accepted is finished; what is too much is refused."""

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from spuir.errors import ServiceError
from spuir.service.commands import CreateExperiment, Decide, DecideMany, DecisionAnswer, DecisionRow, ExperimentAnswer
from spuir.service.engine import Engine
from spuir.service.metrics import Metrics
from spuir.service.settings import ExperimentSettings
from spuir.service.stores import open_store
from spuir.service.writer import RetryLaterError, Writer

ROW: dict[str, Any] = {"context": [1.0, 2.0]}


class WatchedEngine(Engine):
    """A real engine that can be held up, and that notes the size of each group and the threads that call it."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.groups: list[int] = []
        self.threads: set[str] = set()
        self.gate = threading.Event()
        self.gate.set()
        self.failure: Exception | None = None

    def execute(self, commands: Sequence[Any]) -> list[Any]:
        """Note the group, wait for the gate, and carry it out."""
        self.groups.append(len(commands))
        self.threads.add(threading.current_thread().name)
        assert self.gate.wait(30)
        if self.failure is not None:
            raise self.failure
        return super().execute(commands)


@pytest.fixture
def engine(tmp_path):
    """An engine with one experiment."""
    made = WatchedEngine(open_store(str(tmp_path / "log.db")))
    given = {"actions": 3, "context": {"kind": "numbers", "dimension": 2}, "window": None, "seed": 1}
    settings = msgspec.convert(given, ExperimentSettings)
    (answer,) = made.execute([CreateExperiment(experiment="shop", settings=settings)])
    assert isinstance(answer, ExperimentAnswer)
    made.groups.clear()
    made.threads.clear()
    yield made
    made.close()


def decide(name: str = "shop", **row: Any) -> Decide:
    return Decide(experiment=name, row=DecisionRow(**ROW, **row))


def test_waiting_commands_share_a_commit(engine: WatchedEngine) -> None:
    async def scenario() -> list[Any]:
        writer = Writer(engine, Metrics())
        writer.start()
        engine.gate.clear()
        first = writer.submit(decide())
        while not engine.groups:
            await asyncio.sleep(0.001)
        others = []
        for _ in range(20):  # in separate turns of the loop, while the first is being carried out
            others += [writer.submit(decide()) for _ in range(5)]
            await asyncio.sleep(0)
        engine.gate.set()
        answers = await asyncio.gather(first, *others)
        await writer.stop()
        return answers

    answers = asyncio.run(scenario())
    assert engine.groups == [1, 100]
    assert engine.threads == {"spuir-writer"}
    assert len({answer.id for answer in answers}) == 101
    assert engine.experiment("shop").counts["decisions"] == 101


def test_one_refusal_does_not_touch_its_neighbours(engine: WatchedEngine) -> None:
    async def scenario() -> list[Any]:
        writer = Writer(engine, Metrics())
        writer.start()
        commands = [decide(), decide("nowhere"), decide(eligible=["mauve"]), decide()]
        answers = await asyncio.gather(*map(writer.submit, commands))
        await writer.stop()
        return answers

    answers = asyncio.run(scenario())
    assert engine.groups == [4]
    assert [isinstance(answer, DecisionAnswer) for answer in answers] == [True, False, False, True]
    assert answers[1].code == "unknown_experiment"


def test_stopping_finishes_what_was_accepted(engine: WatchedEngine) -> None:
    async def scenario() -> list[Any]:
        writer = Writer(engine, Metrics())
        writer.start()
        waiting = [writer.submit(decide()) for _ in range(50)]
        await writer.stop()
        with pytest.raises(RetryLaterError, match="shutting down"):
            writer.submit(decide())
        return await asyncio.gather(*waiting)

    answers = asyncio.run(scenario())
    assert all(isinstance(answer, DecisionAnswer) for answer in answers)
    assert engine.experiment("shop").counts["decisions"] == 50


def test_more_than_may_wait_is_refused_and_changes_nothing(engine: WatchedEngine) -> None:
    async def scenario() -> None:
        writer = Writer(engine, Metrics(), capacity=10)
        writer.start()
        engine.gate.clear()
        waiting = [writer.submit(decide()) for _ in range(10)]
        with pytest.raises(RetryLaterError) as refused:
            writer.submit(decide())
        assert refused.value.code == "overloaded"
        assert refused.value.seconds >= 1
        engine.gate.set()
        await asyncio.gather(*waiting)
        assert writer.rows_waiting == 0
        await writer.submit(decide())
        # A command with more rows than may wait is taken when nothing else waits.
        many = DecideMany(experiment="shop", rows=[DecisionRow(**ROW)] * 11)
        assert len((await writer.submit(many)).decisions) == 11  # type: ignore[union-attr]
        await writer.stop()

    asyncio.run(scenario())
    assert engine.experiment("shop").counts["decisions"] == 22


def test_a_failing_engine_is_answered_and_survived(engine: WatchedEngine) -> None:
    metrics = Metrics()

    async def scenario() -> None:
        writer = Writer(engine, metrics)
        writer.start()
        engine.failure = RuntimeError("broken")
        answer = await writer.submit(decide())
        assert isinstance(answer, ServiceError)
        assert answer.code == "internal"
        engine.failure = None
        assert isinstance(await writer.submit(decide()), DecisionAnswer)
        await writer.stop()

    asyncio.run(scenario())
    assert b'spuir_failures_total{place="execute"} 1' in metrics.text()


def test_a_request_that_waits_too_long_is_answered(engine: WatchedEngine) -> None:
    async def scenario() -> Any:
        writer = Writer(engine, Metrics(), patience=0.05)
        writer.start()
        engine.gate.clear()
        waiting = writer.submit(decide())
        until = time.monotonic() + 30
        while not writer.give_up_overdue() and time.monotonic() < until:
            await asyncio.sleep(0.01)
        answer = await waiting
        engine.gate.set()
        await writer.stop()
        return answer

    answer = asyncio.run(scenario())
    assert isinstance(answer, RetryLaterError)
    assert answer.code == "timed_out"


def test_large_groups_are_cut(engine: WatchedEngine) -> None:
    async def scenario() -> None:
        writer = Writer(engine, Metrics(), group=7)
        writer.start()
        await asyncio.gather(*(writer.submit(decide()) for _ in range(20)))
        await writer.stop()

    asyncio.run(scenario())
    assert engine.groups == [7, 7, 6]

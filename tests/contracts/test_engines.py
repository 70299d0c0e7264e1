"""One contract for every engine: results in order, the local model to the last bit, failures handed on."""

import gc
import os
import shutil
import signal
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spuir.errors import InputError
from spuir.logs import join_logs, open_log, write_log
from spuir.training import ENGINES, make_engine, train
from spuir.training.collect import Collect
from spuir.training.engines.base import WorkEngine
from spuir.training.engines.local import Local
from tests.training.catalogues import ITEMS, make_log, write_parts
from tests.training.logs import make_table, write_files

ROWS, BATCH = 1_500, 250
MARKS = {"spark": [pytest.mark.spark, pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")]}


@pytest.fixture(scope="module")
def dask() -> Iterator[WorkEngine]:
    """Dask with two workers, started once: every start imports the library in each worker."""
    with make_engine("dask", workers=2) as started:
        yield started


@pytest.fixture(scope="module", params=[pytest.param(name, marks=MARKS.get(name, [])) for name in ENGINES.names()])
def engine(request: pytest.FixtureRequest) -> Iterator[WorkEngine]:
    """Each registered engine with two workers, started once."""
    if request.param == "dask":
        yield request.getfixturevalue("dask")
        return
    if request.param == "spark":
        pytest.importorskip("pyspark", reason="Spark is an extra")
    with make_engine(request.param, workers=2) as started:
        yield started


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log of many files of uneven sizes, an empty one among them."""
    sizes = [1, 400, 3, 0, 250, 6, 600, 40, 200]
    return write_files(tmp_path / "log", make_table(ROWS), sizes, group=170)


def double(item: int) -> int:
    """Return twice the item."""
    return 2 * item


def refuse(item: int) -> int:
    """Refuse one of the items."""
    if item == 3:
        raise InputError("item", item, "three is refused", "pass another")
    return item


def test_every_engine_is_tested() -> None:
    assert {"local", "dask", "spark"} == set(ENGINES.names())


def test_results_come_in_order(engine: WorkEngine) -> None:
    assert list(engine.map(double, range(30))) == [double(item) for item in range(30)]
    assert list(engine.map(double, [])) == []


def test_results_may_be_let_go_by_a_worker() -> None:
    """The last reference to unread results may be dropped in any thread."""
    held: list[Any] = []

    def let_go(item: int) -> int:
        if item:
            started.wait(5)
            held.clear()  # closes the generator, in this thread of its pool
        return item

    started = threading.Event()
    results = Local(1).map(let_go, range(3))
    held.append(results)
    assert next(results) == 0
    del results
    started.set()
    deadline = time.monotonic() + 5
    while held and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not held


def test_letting_results_go_does_not_wait_for_those_in_progress() -> None:
    """The garbage collector may close the iterator while its thread holds a lock that the others need to end."""
    working, proceed, ended = threading.Event(), threading.Event(), list[int]()

    def wait(item: int) -> int:
        if item:
            working.set()
            proceed.wait(5)
        ended.append(item)
        return item

    with Local(2) as local:
        results = local.map(wait, range(3))
        assert next(results) == 0 and working.wait(5)
        del results
        assert ended == [0]
        proceed.set()
    assert set(ended) > {0}


def test_a_refusal_reaches_the_caller_as_it_is(engine: WorkEngine) -> None:
    with pytest.raises(Exception, match="three is refused"):
        list(engine.map(refuse, range(8)))


@pytest.mark.parametrize("name", ["auto", "puir", "spuir", "puir-kernel", "bexp3"])
def test_the_model_is_the_local_one(engine: WorkEngine, folder: Path, tmp_path: Path, name: str) -> None:
    for place, out in ((engine, "there"), ("local", "here")):
        train(str(folder), name, batch_size=BATCH, engine=place, out=tmp_path / out)
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()


@pytest.mark.parametrize("events", [False, True])
def test_a_catalogue_gives_the_local_model(engine: WorkEngine, tmp_path: Path, events: bool) -> None:
    """Features of actions come in a table and in columns, or with events whose parsed copies stay on the driver."""
    table, log = make_log(varying=True), tmp_path / "log"
    if events:
        log.mkdir()
        for name, rows in (("1.dsjson", table.slice(0, 500)), ("2.dsjson", table.slice(500))):
            write_log(open_log(rows, catalogue=ITEMS), log / name)
    else:
        write_parts(log, table)
    for place, out in ((engine, "there"), ("local", "here")):
        given: dict[str, Any] = {} if events else {"actions": ITEMS}
        train(str(log), "hierarchical", batch_size=BATCH, engine=place, out=tmp_path / out, **given)
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()


def test_scattered_episodes_and_raw_columns(engine: WorkEngine, tmp_path: Path) -> None:
    table = make_table(
        ROWS, labels=("a", "b"), episode=[row % 7 for row in range(ROWS)], city=["Rome", "Oslo", None] * 500
    )
    write_files(tmp_path / "log", table, [700, 800], group=300)
    for place, out in ((engine, "there"), ("local", "here")):
        train(str(tmp_path / "log"), "puir", engine=place, out=tmp_path / out)
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()


def test_the_driver_needs_no_more_memory_for_more_rows(engine: WorkEngine, tmp_path: Path) -> None:
    peaks = []
    for size in (2_600, 16_000):  # each has the sample that the encoder is learned on
        folder = tmp_path / str(size)
        write_files(folder, make_table(4 * size), [size] * 4, group=size)
        tracemalloc.start()
        try:
            train(str(folder), "puir", batch_size=1_000, engine=engine)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    # The 53,600 rows more are 2.6 MB; what grows is a line an episode, and for the local engine a batch under way.
    assert peaks[1] < peaks[0] + (2_400_000 if engine.name == "local" else 600_000)


class Slow(Collect):
    """The work on a part, with time to kill a worker during it."""

    def __call__(self, scanned: Any) -> Any:
        """Work slowly."""
        time.sleep(0.25)
        return super().__call__(scanned)


def test_an_address_where_nobody_answers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spuir.training.engines.dask.CONNECT_SECONDS", 0.2)
    with pytest.raises(InputError, match="no scheduler answered"):
        make_engine("dask", address="tcp://127.0.0.1:1")


def test_a_cluster_that_runs_already_is_used_and_left(dask: WorkEngine, folder: Path, tmp_path: Path) -> None:
    train(str(folder), "puir", batch_size=BATCH, out=tmp_path / "here")
    address = getattr(dask, "cluster").scheduler_address  # noqa: B009 - an engine need not have one
    with make_engine("dask", address=address) as guest:
        train(str(folder), "puir", batch_size=BATCH, engine=guest, out=tmp_path / "there")
    assert list(dask.map(double, [4])) == [8]
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()


def test_a_killed_dask_worker_changes_nothing(
    dask: WorkEngine, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(str(folder), "puir", batch_size=BATCH, out=tmp_path / "here")
    client: Any = getattr(dask, "client")  # noqa: B009 - an engine need not have one
    before = set(client.run(os.getpid).values())
    monkeypatch.setattr("spuir.training.job.Collect", Slow)
    killer = threading.Timer(0.6, os.kill, (min(before), signal.SIGKILL))
    killer.start()
    try:
        train(str(folder), "puir", batch_size=BATCH, engine=dask, out=tmp_path / "there")
    finally:
        killer.cancel()
        killer.join()
    after = set(client.run(os.getpid).values())
    assert min(before) not in after
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()


def test_a_scheduler_without_workers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from distributed import LocalCluster

    monkeypatch.setattr("spuir.training.engines.dask.CONNECT_SECONDS", 1)
    with LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0", silence_logs=50) as cluster:
        with pytest.raises(InputError, match=r"no workers after 1 seconds; start some: dask worker tcp://127"):
            make_engine("dask", address=address_of(cluster))


def address_of(cluster: Any) -> str:
    return cluster.scheduler_address


def test_a_lost_scheduler_is_one_sentence(caplog: pytest.LogCaptureFixture) -> None:
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=1, host="127.0.0.1", dashboard_address="127.0.0.1:0", silence_logs=50, threads_per_worker=1
    ) as cluster:
        with make_engine("dask", address=address_of(cluster)) as engine:
            results = engine.map(double, range(1_000))
            assert next(results) == 0
            cluster.close()
            with pytest.raises(InputError, match=r"Dask scheduler: .*lost.*run the same command again to resume"):
                list(results)
    assert not [record for record in caplog.records if record.name == "distributed.client"]


def test_workers_in_another_folder_find_a_log_by_a_relative_path(
    engine: WorkEngine, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)  # the workers were started elsewhere
    train("log", "puir", batch_size=BATCH, engine=engine, out=Path("there"))
    train("log", "puir", batch_size=BATCH, out=Path("here"))
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()


def test_joined_and_grouped_logs_on_every_engine(
    engine: WorkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both need temporary files, which workers read."""
    table = make_table(ROWS, episode=[row % 7 for row in range(ROWS)], decision_id=range(ROWS))
    decisions = write_files(tmp_path / "log", table.drop_columns(["reward"]), [700, 800], group=300)
    rewards = table.select(["decision_id", "reward"]).slice(0, 1_200)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("spuir.training.job.OPEN_BYTES", 1)
    for place, out in ((engine, "there"), ("local", "here")):
        joined = join_logs(str(decisions), rewards, folder=tmp_path / "scratch")
        trained = train(joined.log, "puir", engine=place, out=tmp_path / out, scratch=tmp_path / "scratch")
        assert any("grouping rows" in notice for notice in trained.notices)
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()
    del joined, trained
    gc.collect()
    assert list((tmp_path / "scratch").iterdir()) == []

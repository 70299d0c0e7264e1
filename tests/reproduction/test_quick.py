"""Every registered experiment runs, from its grid to its figures, on one seed of its quick form in small batches."""

import pickle
import re
import time
from collections.abc import Iterable
from functools import cache

import pytest

from spuir.reproduction import EXPERIMENTS, list_experiments
from spuir.reproduction.base import Experiment, Scope
from spuir.reproduction.claims import NOT_TESTED, UNDECIDED
from spuir.reproduction.report import Section
from spuir.reproduction.schedule import Asked, ask
from spuir.reproduction.tasks import Result, Task

pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")

PLAN = Scope(repeats=1, quick=True)
QUICK = Scope(quick=True)
FULL = Scope()
SMALL = {"batch_size": 60, "rounds": 1}
"""Sizes of the tasks that are done here: whatever their numbers are, every path to tables and figures is taken."""


class Memory:
    """Results that are kept for this module only: what one experiment has done, another need not do."""

    def __init__(self) -> None:
        self.known: dict[str, Result] = {}

    def find(self, task: Task) -> Result | None:
        """Return the result of a task."""
        return self.known.get(task.key)

    def do(self, tasks: Iterable[Task]) -> None:
        """Do tasks here and now, in small."""
        for task in tasks:
            arguments = dict(task.arguments)
            arguments |= {name: size for name, size in SMALL.items() if name in arguments}
            started = time.perf_counter()
            rows = Task(function=task.function, arguments=arguments).run()
            self.known[task.key] = Result(task, rows, time.perf_counter() - started)


MEMORY = Memory()


def settled(experiment: Experiment) -> Asked:
    """Return an experiment with all that it asks for."""
    while True:
        asked = ask(experiment, PLAN, MEMORY)
        assert asked.failure is None
        if not asked.missing:
            return asked
        MEMORY.do(asked.missing)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for the figures and tables of all experiments."""
    return tmp_path_factory.mktemp("quick")


@pytest.fixture(scope="module")
def section_of(folder):
    """Return an experiment's section of the report, made once."""
    return cache(lambda name: Section(asked=settled(EXPERIMENTS.get(name)), scope=PLAN, folder=folder).run())


@pytest.mark.parametrize("name", EXPERIMENTS.names())
def test_it_runs_and_has_everything_to_show(name, section_of, folder):
    assert EXPERIMENTS.get(name).name == name
    section = section_of(name)
    assert section["figures"] or name == "table1", "its map needs shapes that the quick form leaves out"
    assert section["tables"]
    assert all(figure["caption"] and figure["alt"] for figure in section["figures"])
    files = [item["file"] for item in (*section["figures"], *section["tables"])]
    assert len(set(files)) == len(files)
    assert all((folder / file).stat().st_size for file in files)
    assert all(table["rows"] and table["title"] for table in section["tables"])
    assert section["verdicts"] or name == "overview"
    assert {verdict["outcome"] for verdict in section["verdicts"]} <= {UNDECIDED, NOT_TESTED}, (
        "one seed decides nothing"
    )
    assert all(verdict["wording"] and verdict["place"] for verdict in section["verdicts"])


def test_every_verdict_has_an_id_of_its_own(section_of):
    sections = {name: section_of(name) for name in EXPERIMENTS.names()}
    ids = [verdict["id"] for section in sections.values() for verdict in section["verdicts"]]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z0-9-]+(/[a-z0-9-_]+)+", id) for id in ids)


@pytest.mark.parametrize("name", EXPERIMENTS.names())
def test_the_quick_form_is_a_part_of_the_full_one(name):
    experiment = EXPERIMENTS.get(name)
    quick, full = (experiment.grid(plan, []) for plan in (QUICK, FULL))
    assert quick
    assert {task.key for task in quick} <= {task.key for task in full}
    assert len({task.key for task in quick}) < len({task.key for task in full})


def test_all_are_listed():
    assert list_experiments() == EXPERIMENTS.names()
    assert len(list_experiments()) == 20


@pytest.mark.parametrize("name", EXPERIMENTS.names())
def test_experiments_travel_to_other_processes(name):
    experiment = EXPERIMENTS.get(name)
    copy = pickle.loads(pickle.dumps(experiment))
    assert {task.key for task in copy.grid(QUICK, [])} == {task.key for task in experiment.grid(QUICK, [])}

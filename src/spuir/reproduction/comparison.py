"""Methods compared on one set: each at the settings of the authors' code, and at the best that its search found."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from spuir.reproduction.base import Scope
from spuir.reproduction.grids import by_key, fill, tasks_of
from spuir.reproduction.policy_runs import AUTHORS, Setup, by_world
from spuir.reproduction.tasks import Result, Task
from spuir.reproduction.tuning import METHODS, Search, SearchedMethod, Setting, own_method

PROPOSED = ("puir", "spuir", "puir-rs", "spuir-rs")
BASELINES = tuple(name for name in METHODS if name not in PROPOSED)
QUICK_METHODS = ("sbucb", "puir", "spuir", "bexp3")
LEVELS = "levels"
TUNED = " (tuned)"

AS_CODED: Mapping[str, tuple[str, Setting]] = {
    "bexp3 (as coded)": ("bexp3", {}),
    "bexp3-ipw (as coded)": ("bexp3-ipw", {}),
    "dfm-s (window)": ("dfm-s", {"horizon": None}),
    "dfm-s (window, censored)": ("dfm-s", {}),
}
"""Label → policy and changes of the authors' preset: what their code does in place of the methods above. Its BEXP3 sums
over episodes and stays almost uniform; its DFM-S keeps the last 10,000 clicks and sees conversions up to a horizon."""


@dataclass(frozen=True, kw_only=True)
class MethodComparison:
    """Methods on one set.

    Parameters
    ----------
    name
        Name of the set in tables, figures and ids.
    setup
        Where the methods run.
    methods
        The methods beside the user's own.
    coded
        Whether the forms of the authors' code run too.
    """

    name: str
    setup: Callable[[Scope], Setup]
    methods: Mapping[str, SearchedMethod] = field(default_factory=lambda: METHODS)
    quick: Sequence[str] = QUICK_METHODS
    coded: bool = True

    def cast(self, scope: Scope) -> dict[str, SearchedMethod]:
        """Return the methods that run: those of the set and the user's own."""
        own = {path.rpartition(":")[2]: own_method(path) for path in scope.policies}
        return {name: self.methods[name] for name in scope.axis(tuple(self.methods), self.quick)} | own

    def cells(self, scope: Scope, known: Mapping[str, Result]) -> tuple[dict[str, list[Task]], list[Task]]:
        """Return the cells whose settings are known so far, and the tasks of the searches."""
        setup, cells, searching = self.setup(scope), dict[str, list[Task]](), list[Task]()
        for name, method in self.cast(scope).items():
            cells[name] = method.tasks(scope.seeds, setup, {})
            search = Search(scope, method, setup, known)
            searching += search.tasks
            if search.chosen is not None:
                cells[name + TUNED] = method.tasks(scope.seeds, setup, search.chosen)
        for label, (policy, changes) in AS_CODED.items() if self.coded and not scope.quick else ():
            cells[label] = setup.runs(scope.seeds, policy, preset=AUTHORS, parameters=changes)
        cells[LEVELS] = setup.levels(scope.seeds)
        return cells, searching

    def grid(self, scope: Scope, results: Sequence[Result]) -> list[Task]:
        """Return the tasks that are known so far, those of one world together."""
        cells, searching = self.cells(scope, by_key(results))
        return by_world([*tasks_of(cells), *searching])

    def filled(self, scope: Scope, results: Sequence[Result]) -> dict[str, list[Result]]:
        """Return the results of each label."""
        return fill(self.cells(scope, by_key(results))[0], results)

    def chosen(self, scope: Scope, results: Sequence[Result]) -> dict[str, Setting | None]:
        """Return the setting that each method's search has chosen."""
        setup, known = self.setup(scope), by_key(results)
        return {name: Search(scope, method, setup, known).chosen for name, method in self.cast(scope).items()}

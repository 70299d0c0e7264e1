"""Models of versions: as they were saved, or rebuilt from the log.

A saved model only saves time: if it is missing or damaged, the newest sound one before it is taken, or the cold model,
and the episodes since are learned again. The result has the digest that the log names, or an error says why not.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from spuir.bandit import Bandit
from spuir.errors import ServiceError, SpuirError
from spuir.service.experiment_view import Closed, ExperimentView, history, read_view
from spuir.service.log_records import ForgetFact, VersionFact, version_fact
from spuir.service.settings import ExperimentSettings
from spuir.service.stores.base import LogReader, each_record
from spuir.service.versions.joining import JoinRules, episode_rows
from spuir.service.versions.model_steps import change_actions, cold, learn, opened, under

KEPT_MODELS = 20
"""The models of so many of the newest versions, and of the published one, are saved; the log gives the others."""


class _Learning(NamedTuple):
    """How a version was made: what the experiment was at its close, and the close."""

    fact: VersionFact
    view: ExperimentView
    close: Closed | None


class Replayed(NamedTuple):
    """A version learned again: its digest in the log, its digest now (None = rows were erased), and the model."""

    number: int
    digest: str
    again: str | None
    model: bytes | None


class Lineup:
    """The versions of one experiment, each from its saved model or rebuilt."""

    def __init__(self, store: LogReader, name: str) -> None:
        self.store, self.name = store, name
        self.rebuilt: list[int] = []
        """Versions whose saved model was missing or damaged."""

    def fact(self, version: int) -> VersionFact:
        """Return what the log says of a version."""
        found = self.store.find(self.name, "version", [str(version)]).get(str(version))
        if found is None or found.payload is None:
            rule = "it is not in the log"
            raise ServiceError("unknown_version", "version", version, rule, "list the versions")
        return version_fact(found)

    def saved(self, fact: VersionFact) -> Bandit | None:
        """Return the saved model of a version if it is there and sound."""
        content = self.store.model(self.name, fact.number)
        if content is None:
            return None
        try:
            bandit = opened(content, f"the model of version {fact.number}")
        except SpuirError:
            return None
        return bandit if bandit.digest() == fact.digest else None

    def model(self, version: int) -> Bandit:
        """Return the model of a version, with the digest that the log names."""
        fact = self.fact(version)
        found = self.saved(fact)
        if found is not None:
            return found
        self.rebuilt.append(version)
        return self._rebuild(fact)

    def _rebuild(self, fact: VersionFact) -> Bandit:
        """Learn again from the newest sound model before a version."""
        steps = [step for step in self.steps() if step.fact.number <= fact.number]
        path: list[_Learning] = [steps[fact.number]]
        while (parent := path[0].fact.parent) is not None:
            path.insert(0, steps[parent])
        for at in range(len(path) - 1, -1, -1):
            found = self.saved(path[at].fact)
            if found is not None or at == 0:
                bandit, rest = self.first(path[0]) if found is None else found, path[at + 1 :]
                break
        for step in rest:
            bandit = self.next(bandit, step)
        if bandit.digest() != fact.digest:
            got = f"digest {bandit.digest()} instead of {fact.digest}"
            rule = "the log gives every version again, unless rows that it learned were erased since"
            raise ServiceError("damaged", f"version {fact.number}", got, rule, "restore a backup of the store")
        return bandit

    def steps(self) -> Iterator[_Learning]:
        """Yield how each version was made, in order."""
        closes: dict[int | None, tuple[ExperimentView, Closed]] = {}
        for record, view in history(self.store, self.name, self._end()):
            if record.kind == "close" and view.last_close is not None:
                closes[view.last_close.fact.number] = (view, view.last_close)
            elif record.kind == "version":
                fact = view.learned
                yield _Learning(fact, *closes.pop(fact.close, (view, None)))

    def replayed(self) -> Iterator[Replayed]:
        """Yield every version learned again from its parent.

        Where rows that it learned were erased since, its saved model is taken instead, and without one the replay goes
        on from the next saved model.
        """
        made: dict[int, bytes] = {}
        erasures = list(self._erasures())
        for step in self.steps():
            fact, parent = step.fact, step.fact.parent
            gone = step.close is not None and self._lost(step.close, fact, erasures)
            bandit: Bandit | None
            if gone or (parent is not None and parent not in made):
                gone, bandit = True, self.saved(fact)
            elif parent is None:
                bandit = self.first(step)
            else:
                bandit = self.next(opened(made[parent], f"version {parent}"), step)
            made = {} if bandit is None else {fact.number: bandit.to_bytes()}
            again = None if gone or bandit is None else bandit.digest()
            yield Replayed(fact.number, fact.digest, again, made.get(fact.number))

    def _end(self) -> int:
        """Return the last place of the log."""
        head = self.store.head(self.name)
        return 0 if head is None else head.seq

    def _erasures(self) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        """Yield where payloads were erased, and the ranges of places of these payloads."""
        for record in each_record(self.store, self.name, 1, self._end(), ("forget", "repair")):
            yield record.seq, msgspec.json.decode(record.payload or b"{}", type=ForgetFact).ranges

    def _lost(self, close: Closed, fact: VersionFact, erasures: list[tuple[int, list[tuple[int, int]]]]) -> bool:
        """Return whether rows that a version learned were erased after it read them."""
        later = [one for at, ranges in erasures if at > fact.read_at for one in ranges]
        if not later:
            return False
        rows = episode_rows(self.store, self.name, close.edges, JoinRules("earliest", None, None))
        return any(first <= row.record.seq <= last for row in rows for first, last in later)

    def closes(self, until: int) -> Iterator[tuple[Closed, ExperimentSettings]]:
        """Yield the closes up to a place, each with the settings that were in force there."""
        for record, view in history(self.store, self.name, until):
            if record.kind == "close" and view.last_close is not None:
                yield view.last_close, view.settings

    def first(self, step: _Learning) -> Bandit:
        """Return a version without a parent: the cold one, an imported one, or one that learned everything again."""
        if step.fact.content is not None:
            return opened(step.fact.content, f"the imported model of version {step.fact.number}")
        if step.close is None:
            return cold(step.view.settings)
        bandit, _ = self.relearned(step.view.settings, step.close.seq)
        return self._learned(bandit, step, step.close)

    def next(self, parent: Bandit, step: _Learning) -> Bandit:
        """Return the version after its parent."""
        if step.close is None:
            return parent
        since = self.fact(step.fact.parent or 0).actions_at
        changes = [change for change in step.view.changes if since < change[0] <= step.close.seq]
        return self._learned(under(change_actions(parent, changes), step.view.settings), step, step.close)

    def _learned(self, bandit: Bandit, step: _Learning, close: Closed) -> Bandit:
        settings, failed = step.view.settings, step.fact.episode == bandit.n_episodes_
        rows = episode_rows(self.store, self.name, close.edges, JoinRules.of(settings))
        used = [row for row in rows if row.learned]
        return bandit if failed or not used else learn(bandit, settings, used)

    def relearned(self, settings: ExperimentSettings, until: int) -> tuple[Bandit, int]:
        """Return a bandit with the policy of ``settings`` that learned every episode before a place, and its rows."""
        bandit, rows = cold(settings), 0
        final = read_view(self.store, self.name, until)
        changes = [] if final is None else list(final.changes)
        for close, settings_then in self.closes(until - 1):
            bandit = change_actions(bandit, [change for change in changes if change[0] <= close.seq])
            changes = [change for change in changes if change[0] > close.seq]
            joined = episode_rows(self.store, self.name, close.edges, JoinRules.of(settings_then))
            used = [row for row in joined if row.learned]
            if used:
                bandit, rows = learn(bandit, settings, used), rows + len(used)
        return change_actions(bandit, changes), rows


def old_models(store: LogReader, view: ExperimentView, newest: int) -> list[int]:
    """Return the versions whose saved models are not kept beside a new one."""
    keep = {view.published, 0}
    return [one for one in store.models(view.name) if one <= newest - KEPT_MODELS and one not in keep]

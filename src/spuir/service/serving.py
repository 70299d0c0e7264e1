"""The published version as it decides: contexts of clients in, actions with their probabilities out."""

import struct
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from spuir.bandit import Bandit
from spuir.base.records import Floats
from spuir.errors import ServiceError, listed
from spuir.service.commands import DecisionRow
from spuir.service.log_records import encode
from spuir.service.number_rows import NumberRows
from spuir.service.settings import MOST_COLUMNS, ExperimentSettings, Label, NumberContext, refuse
from spuir.service.versions.model_steps import offered, raw_columns

KEPT_BYTES = 1 << 18
"""Distinct rows of probabilities are kept up to this size; what is made of them takes some ten times as much."""


class Shares:
    """The probabilities of all actions for a context: as JSON for the log, and by label for the answer.

    Contexts with equal probabilities share one, so that nobody changes it.
    """

    __slots__ = ("_json", "recorded", "shown")

    def __init__(self, recorded: msgspec.Raw, shown: dict[str, float]) -> None:
        self.recorded, self.shown = recorded, shown
        self._json: msgspec.Raw | None = None

    def answered(self, as_json: bool) -> Any:
        """Return the probabilities by label for an answer, as JSON if it is sent on as such."""
        if not as_json:
            return self.shown
        if self._json is None:
            self._json = msgspec.Raw(msgspec.json.encode(self.shown))
        return self._json


class Drawn(NamedTuple):
    """Actions (n,), their propensities (n,) and the probabilities of all actions (n,), as Python lists."""

    actions: list[Label]
    propensities: list[float]
    shares: list[Shares]


def _matrix(rows: Sequence[DecisionRow]) -> Floats:
    """Return contexts of numbers as a matrix (n, d)."""
    if isinstance(rows, NumberRows):
        return rows.matrix
    width = len(rows[0].context)
    pack = struct.Struct(f"{width}d").pack
    try:  # less than half the time of an array made of lists
        return np.frombuffer(b"".join([pack(*row.context) for row in rows])).reshape(len(rows), width)
    except struct.error:
        return np.array([row.context for row in rows], dtype=np.float64)


def form_of(context: Any) -> int:
    """Return the form of a context: how many numbers it has, 0 for raw columns."""
    return len(context) if isinstance(context, list) else 0


def first_form(settings: ExperimentSettings) -> int | None:
    """Return the form that settings ask for, None if the first decision settles it."""
    context = settings.context
    return None if context is None else context.dimension if isinstance(context, NumberContext) else 0


class Serving:
    """A version ready to decide; it never changes, except for what it counts.

    Parameters
    ----------
    bandit
        The model of the version, with the actions and the policy of this place in the log.
    version
        Its number.
    """

    def __init__(self, bandit: Bandit, version: int) -> None:
        self.bandit, self.version = bandit, version
        self.episode = bandit.n_episodes_
        self.names: list[Label] = bandit.actions_.tolist()
        self.active = [name for name, on in zip(self.names, bandit.active_, strict=True) if on]
        self._known = set(self.active)
        self.texts = [str(name) for name in self.names]
        self.retired = [str(name) for name in self.names if name not in self._known]
        self._uniform: Bandit | None = None
        self._shares: dict[bytes, Shares] = {}
        self.drift: Counter[str] = Counter()

    # ---- what is allowed ------------------------------------------------------------------------------------

    def check(self, row: DecisionRow, form: int | None, where: str | None) -> None:
        """Refuse a row that this experiment cannot decide; ``form`` is that of its contexts, None = not settled."""
        context = row.context
        size = form_of(context)
        if form is not None and size != form:
            wanted = f"a list of {form} numbers" if form else "an object of columns"
            got = f"a list of {size} numbers" if size else "an empty list" if context == [] else "an object of columns"
            raise refuse("context", got, f"contexts of this experiment are {wanted}", "send such a context", where)
        if not context or len(context) > MOST_COLUMNS:
            rule = f"a context has 1 to {MOST_COLUMNS:,} numbers or columns"
            raise refuse("context", f"{len(context)} of them", rule, "send such a context", where)
        if row.eligible is not None:
            self._check_eligible(row.eligible, where)
        if row.action_features is not None:
            self._check_features(row, where)

    def _check_features(self, row: DecisionRow, where: str | None) -> None:
        """Refuse features per decision that the policy does not read, or of actions that are not offered."""
        policy = self.bandit.policy_
        if not policy.takes_features:
            rule = "the policy of this experiment does not read features of actions"
            raise ServiceError(
                "unsupported", "action_features", f"policy {policy.name!r}", rule, "leave them out", where
            )
        if row.eligible is not None:
            rule = "action_features says which actions are eligible"
            raise refuse("eligible", "both", rule, "send one of the two", where)
        by_text = {str(label): label for label in self.active}
        self._check_eligible([by_text.get(text, text) for text in row.action_features or ()], where)

    def _check_eligible(self, eligible: list[Label], where: str | None) -> None:
        unknown = [label for label in eligible if label not in self._known]
        if unknown or not eligible or len(set(eligible)) < len(eligible):
            if unknown or not eligible:
                got = repr(unknown[0])[:60] if unknown else "none"
            else:
                got = f"{Counter(eligible).most_common(1)[0][0]!r} twice"
            rule = f"eligible lists active actions, each once, and these are {listed(self.active)}"
            raise refuse("eligible", got, rule, "list some of these, or leave it out for all", where)

    # ---- deciding -------------------------------------------------------------------------------------------

    def decide(self, rows: Sequence[DecisionRow], ids: list[str] | None, first: int, bare: bool = False) -> Drawn:
        """Return what is drawn for rows, keyed by their ids or, without, by their numbers from ``first`` on.

        ``bare`` says that they have nothing but contexts.
        """
        X: Any
        if isinstance(rows, NumberRows) or isinstance(rows[0].context, list):
            bandit, X = self.bandit, _matrix(rows)
        elif self.bandit.encoder is None:  # nothing was learned, and what is not learned decides uniformly
            bandit, X = self._cold(), np.zeros((len(rows), 1))
        else:
            bandit, X = self.bandit, self._columns(rows)
        choices = {} if bare else offered(rows, self.names, self._known)
        if bandit is self._uniform and "action_features" in choices:
            table = choices["action_features"]
            mask = np.zeros((len(rows), len(self.names)), dtype=bool)
            mask[table["row"], [self.names.index(label) for label in table["action"]]] = True
            choices = {"eligible": mask}
        # The log says which row numbers were used; a bandit that was just loaded does not know them.
        bandit._rows.used = {self.episode: first}
        made = bandit.decide(X, choices.get("eligible"), ids, choices.get("action_features"))
        return Drawn(made.actions.tolist(), made.propensities.tolist(), self._shared(made.probabilities))

    def _shared(self, probabilities: Floats) -> list[Shares]:
        """Return the shares of each row of probabilities (n, M); many contexts have the same."""
        known, content, width = self._shares, probabilities.tobytes(), 8 * len(self.names)
        if len(known) * width > KEPT_BYTES:
            known.clear()
        found: list[Shares] = []
        if content == content[:width] * len(probabilities):  # all the same, as before anything is learned
            one = known.get(content[:width])
            if one is not None:
                return [one] * len(probabilities)
        for row in range(len(probabilities)):
            key = content[row * width : (row + 1) * width]
            one = known.get(key)
            if one is None:
                one = known[key] = self.shares(probabilities[row].tolist())
            found.append(one)
        return found

    def shares(self, probabilities: list[float]) -> Shares:
        """Return probabilities as they are recorded and shown."""
        return Shares(msgspec.Raw(encode(probabilities)), self.shown(probabilities))

    def _cold(self) -> Bandit:
        if self._uniform is None:
            # It has drawn nothing yet, and has its seed only when it is first used.
            made = Bandit("uniform", self.names, random_state=self.bandit._seed).fix(np.zeros((1, 1)))
            for label in self.names:
                if label not in self._known:
                    made.remove_action(label)
            self._uniform = made
        return self._uniform

    def _columns(self, rows: Sequence[DecisionRow]) -> dict[str, list[Any]]:
        """Return raw contexts as the columns that the encoder knows, and count new and missing ones."""
        encoder = self.bandit.encoder
        known = () if encoder is None else encoder.columns
        for row in rows:
            if len(row.context) != len(known) or any(name not in row.context for name in known):
                self.drift["rows with other columns"] += 1
        return raw_columns([row.context for row in rows], known)  # type: ignore[misc]

    def baseline(self, wanted: Label | None, row: DecisionRow) -> Label:
        """Return the action that is served in shadow mode: the wanted one, or the first one where it is not offered."""
        allowed = self.active if row.eligible is None else row.eligible
        if row.action_features is not None:
            allowed = [label for label in self.active if str(label) in row.action_features]
        chosen = self.active[0] if wanted is None else wanted
        return chosen if chosen in allowed else allowed[0]

    def shown(self, probabilities: list[float]) -> dict[str, float]:
        """Return probabilities by label, without retired actions."""
        found = dict(zip(self.texts, probabilities, strict=False))
        for label in self.retired:
            found.pop(label, None)
        return found

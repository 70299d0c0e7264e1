"""Steps from one model to the next: the cold one, changes of actions, another policy, and the rows of an episode.

They are pure functions of models and rows, so that learning beside serving and learning again from the log agree.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from spuir.bandit import Bandit, from_bytes
from spuir.base.process_settings import one_blas_thread
from spuir.base.records import all_finite
from spuir.errors import SpuirError
from spuir.service.context_values import kinds_of, readable
from spuir.service.log_records import ActionFact
from spuir.service.settings import ColumnContext, ExperimentSettings, Label
from spuir.service.versions.joining import JoinedRow
from spuir.storage import snapshot
from spuir.tables.encoder import Encoder


def cold(settings: ExperimentSettings) -> Bandit:
    """Return the bandit of version 0."""
    actions: Any = settings.labels if settings.catalogue is None else settings.catalogue
    made = Bandit(settings.make_policy(), actions, random_state=settings.seed)
    made._advises = False  # a service counts drift, and nobody reads its warnings
    return made


def opened(content: bytes, source: str) -> Bandit:
    """Return the bandit of a saved model."""
    made = from_bytes(content, source)
    made._advises = False
    return made


def solve_ahead(bandit: Bandit) -> None:
    """Compute what a model decides by, of one row and of several, so that its first decision does not wait for it."""
    with suppress(SpuirError):  # of a model that has learned nothing, or needs more than a context to decide
        for rows in (1, 2):
            bandit.policy_.predict(bandit.state_, np.zeros((rows, bandit.state_.dim)))


def change_actions(bandit: Bandit, changes: Iterable[tuple[int, ActionFact]]) -> Bandit:
    """Apply changes of actions in order; return the bandit."""
    for _, fact in changes:
        if fact.change == "add":
            bandit.add_action(fact.label, fact.like, fact.ramp, fact.ramp_episodes, fact.features)
        elif fact.change == "update":
            bandit.update_action(fact.label, fact.features or {})
        elif fact.change == "remove":
            bandit.remove_action(fact.label)
    return bandit


def under(bandit: Bandit, settings: ExperimentSettings) -> Bandit:
    """Let a bandit act by the policy of the settings if that can read what was learned; return the bandit."""
    policy = settings.make_policy()
    if policy != bandit.policy_ and can_continue(bandit, settings):
        bandit.set_params(policy=policy)
    return bandit


def can_continue(bandit: Bandit, settings: ExperimentSettings) -> bool:
    """Return whether the policy of the settings can continue from what a bandit has learned."""
    if not bandit.n_episodes_:
        return True
    try:
        settings.make_policy().check_state(bandit.state_)
    except SpuirError:
        return False
    return True


def raw_columns(rows: Sequence[Mapping[str, Any]], names: Sequence[str] | None = None) -> dict[str, list[Any]]:
    """Return raw rows as columns: ``names``, or all in the order in which they first appear; None = missing."""
    chosen = list(dict.fromkeys(name for row in rows for name in row)) if names is None else names
    return {name: [row.get(name) for row in rows] for name in chosen}


def offered(rows: Sequence[Any], names: Sequence[Label], active: Iterable[Label] | None = None) -> dict[str, Any]:
    """Return who was eligible and the features per decision of rows, as arguments of a bandit's methods.

    ``active`` are the actions of a row that lists none; None = all.
    """
    if any(row.action_features is not None for row in rows):
        by_text = {str(name): name for name in names}
        pairs = [
            (at, text, given) for at, row in enumerate(rows) for text, given in (row.action_features or {}).items()
        ]
        columns = {name: [given.get(name) for _, _, given in pairs] for name in sorted(pairs[0][2])}
        who = {"row": [at for at, _, _ in pairs], "action": [by_text[text] for _, text, _ in pairs]}
        return {"action_features": who | columns}
    if all(row.eligible is None for row in rows):
        return {}
    every = set(names if active is None else active)
    sets = [every if row.eligible is None else set(row.eligible) for row in rows]
    return {"eligible": np.array([[name in one for name in names] for one in sets])}


def _kinds(table: Mapping[str, Sequence[Any]], options: ColumnContext) -> dict[str, str]:
    """Return the kinds of columns that are not left to the encoder: those that the settings name, and mixed ones.

    A column with texts and other values is of levels: one careless client does not keep an episode from being learned.
    """
    mixed = [
        name for name, column in table.items() if len({isinstance(one, str) for one in column if one is not None}) > 1
    ]
    levels = "category" if options.hashing is None else "hash"
    return dict.fromkeys(mixed, levels) | {name: kind for name, kind in options.kinds.items() if name in table}


def _read_by(encoder: Encoder, contexts: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return raw contexts as the columns that an encoder reads."""
    return readable(raw_columns(contexts, encoder.columns), kinds_of(encoder, None))


def learn(bandit: Bandit, settings: ExperimentSettings, rows: Sequence[JoinedRow]) -> Bandit:
    """Return the bandit after it has learned one episode; the rows are in the order of decisions."""
    facts = [row.fact for row in rows if row.fact is not None]
    contexts: list[Any] = [fact.context for fact in facts]
    under_columns = isinstance(contexts[0], dict)
    if under_columns and bandit.encoder is None:
        options = settings.context if isinstance(settings.context, ColumnContext) else ColumnContext()
        table = readable(raw_columns(contexts, options.names), options.kinds)
        given = {name: getattr(options, name) for name in ("scale", "intercept", "max_levels", "hashing")}
        bandit = bandit.with_encoder(Encoder.fit(table, kinds=_kinds(table, options), **given))
        bandit._advises = False
    if bandit.encoder is not None:
        X: Any = _read_by(bandit.encoder, contexts)
    else:
        X = np.array(contexts, dtype=np.float64)
    chances = [fact.propensity for fact in facts]
    propensities = None if None in chances else np.array(chances, np.float64)
    with one_blas_thread:  # so that the last bit does not depend on the number of threads
        bandit.partial_fit(
            X,
            actions=np.array([fact.action for fact in facts], dtype=bandit.actions_.dtype),
            rewards=np.array([row.reward for row in rows], np.float64),
            propensities=propensities,
            **offered(facts, bandit.actions_.tolist()),
            ids=[row.record.key for row in rows],
            allow_repeat=True,  # the log says what is learned once
        )
    return bandit


def estimated_value(bandit: Bandit, rows: Sequence[JoinedRow]) -> float | None:
    """Return the self-normalised estimate of what a bandit would earn on rows that another version decided."""
    facts = [row.fact for row in rows if row.fact is not None]
    if any(fact.propensity is None for fact in facts):
        return None
    contexts: list[Any] = [fact.context for fact in facts]
    X = np.array(contexts, np.float64) if bandit.encoder is None else _read_by(bandit.encoder, contexts)
    codes = {label: code for code, label in enumerate(bandit.actions_.tolist())}
    chosen = bandit.predict_proba(X, **offered(facts, bandit.actions_.tolist()))[
        np.arange(len(facts)), [codes[fact.action] for fact in facts]
    ]
    weights = chosen / np.array([fact.propensity for fact in facts], np.float64)
    total = float(weights.sum())
    return float(weights @ np.array([row.reward for row in rows], np.float64)) / total if total else None


def finite(bandit: Bandit) -> bool:
    """Return whether every number that was learned is finite; an action without a cap has an infinite one."""
    _, arrays = snapshot.pack(bandit.state_)
    learned = [array for name, array in arrays.items() if not name.endswith(".caps")]
    return all(all_finite(array) for array in learned if array.dtype.kind == "f")

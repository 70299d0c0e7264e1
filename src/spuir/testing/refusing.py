"""Laws of errors: an error names the value, the rule and the remedy, and leaves everything unchanged."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from spuir.bandit import Bandit
from spuir.base.parameters import Rule, parameters_of
from spuir.errors import ParameterError, SpuirError
from spuir.policies import Policy
from spuir.testing.trial import DIM, N_ACTIONS, contexts, episode, fresh, frozen, law, require, trained

ROW, ROWS = 700, 1000
"""Row of the wrong value, and the number of rows; it lies beyond the first block of rows."""

EXPLAINED = ("coefficients", "standard_errors", "feature_names", "estimates")
EXPLAINED += ("contributions", "source_names", "mean_errors", "imputed_shares")
"""What a policy with the trait "ridge" answers about its estimates."""


@dataclass(frozen=True)
class Wrong:
    """A call that must be refused, and the text that the error must contain."""

    what: str
    call: Callable[[], Any]
    shows: tuple[str, ...] = ()


def _with(X: Any, value: float) -> Any:
    X = X.copy()
    X[ROW, 2] = value
    return X


def _wrong_contexts(X: Any) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    for value in (np.nan, np.inf, -np.inf):
        yield f"a context of {value}", _with(X, value), (str(value), f"row {ROW}")
    yield "contexts of text", X.astype(str).astype(object) + "?", ("object",)
    yield "one flat row", X[0], (f"({DIM},)",)
    yield "contexts without columns", X[:, :0], ("columns",)


def _wrong_decisions(bandit: Bandit) -> Iterator[Wrong]:
    X = contexts(ROWS)
    verbs = {"decide": bandit.decide, "predict": bandit.predict}
    verbs |= {"predict_proba": bandit.predict_proba, "decision_function": bandit.decision_function}
    for name, verb in verbs.items():
        for what, wrong, shows in _wrong_contexts(X):
            yield Wrong(f"{name}: {what}", lambda verb=verb, wrong=wrong: verb(wrong), shows)
        none = np.ones((ROWS, N_ACTIONS), np.bool_)
        none[ROW] = False
        masks: dict[str, tuple[Any, str]] = {
            "nothing eligible in a row": (none, f"row {ROW}"),
            "eligibility of another shape": (none[:, :2], f"({ROWS}, 2)"),
            "eligibility of 2": (np.full(N_ACTIONS, 2), "eligib"),
        }
        for what, (mask, shows) in masks.items():
            yield Wrong(f"{name}: {what}", lambda verb=verb, mask=mask: verb(X, eligible=mask), (shows,))
    if bandit.n_episodes_:
        wide = np.ones((ROWS, DIM + 1))
        for name, verb in verbs.items():
            yield Wrong(f"{name}: a column more", lambda verb=verb: verb(wide), (f"{DIM + 1} columns", str(DIM)))


def _wrong_batches(bandit: Bandit) -> Iterator[Wrong]:
    rows = episode(bandit.policy_, 0, ROWS)
    given = rows.columns()
    changes: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
        (what, {"X": wrong}, shows) for what, wrong, shows in _wrong_contexts(rows.X) if what != "one flat row"
    ]
    changes += [("one flat row", {"X": rows.X[0]}, (f"({DIM},)",))]
    if bandit.n_episodes_:
        changes += [("a column more", {"X": np.ones((ROWS, DIM + 1))}, (f"{DIM + 1} columns", str(DIM)))]
    for name in ("rewards", "sample_weight", "propensities"):
        column = np.full(ROWS, 0.5)
        for value in (np.nan, np.inf, -np.inf, *((-1.0,) if name != "rewards" else ())):
            wrong = column.copy()
            wrong[ROW] = value
            changes += [(f"{name} of {value}", {name: wrong}, (name.split("_")[-1], str(value), f"row {ROW}"))]
        changes += [(f"too few {name}", {name: column[:-1]}, (str(ROWS - 1), str(ROWS)))]
    for value in (0.0, 1.5):
        changes += [(f"a propensity of {value}", {"propensities": np.full(ROWS, value)}, (str(value),))]
    codes = np.array(rows.actions)
    codes[ROW] = 99
    eligible = np.ones((ROWS, N_ACTIONS), np.bool_)
    eligible[ROW, rows.actions[ROW]] = False
    table = np.zeros((ROWS, N_ACTIONS))
    broken = np.full((ROWS, N_ACTIONS), np.nan)
    changes += [
        ("an unknown action", {"actions": codes}, ("99", f"row {ROW}")),
        ("an unknown label", {"actions": ["blue"] * ROWS}, ("'blue'", "row 0")),
        ("too few actions", {"actions": codes[:0]}, ("0",)),
        ("an executed action that was not eligible", {"eligible": eligible}, (f"row {ROW}",)),
        ("revealed rewards without their mask", {"revealed_rewards": table}, ("one of the pair",)),
        ("revealed rewards of NaN", {"revealed": table == 0, "revealed_rewards": broken}, ("nan at row",)),
        ("too few revealed columns", {"revealed": table[:, 1:] == 0, "revealed_rewards": table[:, 1:]}, ("(1000, 3)",)),
        ("a column of no meaning", {"colour": codes}, ("'colour'",)),
        ("row ids of fractions", {"row_ids": np.linspace(0, 1, ROWS)}, ("float64",)),
    ]
    for what, change, shows in changes:
        yield Wrong(f"partial_fit: {what}", lambda change=change: bandit.partial_fit(**{**given, **change}), shows)
        if bandit.n_episodes_ and "additive" in bandit.policy_.traits:
            yield Wrong(f"shards: {what}", lambda change=change: _shards(bandit, {**given, **change}), shows)


def _shards(bandit: Bandit, columns: dict[str, Any]) -> None:
    """Learn through collect and absorb, one of which must refuse a wrong value."""
    bandit.absorb(bandit.collect(**columns))


def _wrong_actions(bandit: Bandit) -> Iterator[Wrong]:
    yield Wrong("add_action: a label in use", lambda: bandit.add_action(0), ("0",))
    yield Wrong("add_action: like an unknown one", lambda: bandit.add_action("new", like="old"), ("'old'",))
    yield Wrong("remove_action: an unknown one", lambda: bandit.remove_action("old"), ("'old'",))
    yield Wrong("set_params: an unknown name", lambda: bandit.set_params(colour="red"), ("'colour'",))
    yield Wrong("set_params: an unknown parameter", lambda: bandit.set_params(policy__colour=1), ("'colour'",))
    yield Wrong("set_params: a wrong floor", lambda: bandit.set_params(policy__floor=2.0), ("2.0", "floor"))


def wrong_values_are_refused_and_change_nothing(policy: Policy) -> None:
    """Check that NaN, infinity, wrong shapes and unknown actions are refused and change no byte."""
    for bandit in (fresh(policy), trained(policy)):
        bandit.predict(contexts(1))
        before = frozen(bandit)
        for group in (_wrong_decisions, _wrong_batches, _wrong_actions):
            for wrong in group(bandit):
                model, rows = bandit._model, dict(bandit._rows.used)
                _require_refused(wrong)
                kept = bandit._model is model and bandit._rows.used == rows
                require(kept and bandit.policy is policy, f"{wrong.what}: the refused call changed something")
            require(frozen(bandit) == before, f"{group.__name__}: a refused call changed the state's own arrays")


def _require_refused(wrong: Wrong) -> None:
    try:
        wrong.call()
    except SpuirError as error:
        text = str(error)
        for part in (error.subject, error.got, error.rule, error.remedy):
            require(part and part in text, f"{wrong.what}: the message {text!r} lacks a part")
        for part in wrong.shows:
            require(part in text, f"{wrong.what}: the message {text!r} does not show {part!r}")
        return
    raise AssertionError(f"{wrong.what}: not refused")


SUSPECTS: tuple[Any, ...] = (None, -1, 0, -0.5, 1.5, 2.5, np.nan, np.inf, -np.inf, True, "nonsense", 3, [1], object())


def every_parameter_has_a_rule(policy: Policy) -> None:
    """Check that each parameter refuses values outside its rule, with the value, the rule and the remedy."""
    bandit = trained(policy, (60,))
    before = frozen(bandit)
    for item in fields(policy):
        rule: Rule | None = item.metadata.get("rule")
        require(rule is not None and item.metadata.get("doc"), f"{item.name} has no rule or no description")
        assert rule is not None
        wrong = [value for value in SUSPECTS if not rule.test(value)]
        require(wrong, f"{item.name}: its rule refuses nothing")
        for value in wrong:
            shows = (item.name, repr(value), rule.clause, "default")
            made = Wrong(f"{item.name}={value!r}", lambda n=item.name, v=value: replace(policy, **{n: v}), shows)
            _require_refused(made)
            if item.name != "name":
                change = {f"policy__{item.name}": value}
                _require_refused(replace(made, call=lambda change=change: bandit.set_params(**change)))
    require(frozen(bandit) == before and bandit.policy is policy, "a refused parameter changed something")


def traits_are_known_and_consistent(policy: Policy) -> None:
    """Check that a policy declares known traits only, and a foldable policy is additive."""
    known = {"ridge", "imputing", "sketched", "sampling", "additive", "foldable", "weighting", "self-tuning"}
    require(policy.traits <= known, f"unknown traits: {sorted(policy.traits - known)}")
    require("foldable" not in policy.traits or "additive" in policy.traits, "what folds must add up")
    if "ridge" in policy.traits:
        missing = [name for name in EXPLAINED if not hasattr(policy, name)]
        require(not missing, f"a policy with the trait 'ridge' has no {', '.join(missing)}")


def parameters_are_arguments(policy: Policy) -> None:
    """Check that get_params rebuilds the bandit, set_params reaches the policy, and neither changes the state."""
    bandit = trained(policy)
    twin = Bandit(**bandit.get_params(deep=False))
    require(twin.policy is policy and twin.actions == N_ACTIONS and twin.random_state == 7, "arguments")
    deep = bandit.get_params()
    for name, value in parameters_of(policy).items():
        require(deep[f"policy__{name}"] == value, f"get_params: {name}")
    same = {name: value for name, value in deep.items() if name.startswith("policy__")}
    state = bandit.state_
    bandit.set_params(**{**same, "policy__floor": 0.05})
    require(bandit.policy_ == replace(policy, floor=0.05), "set_params")
    require(bandit.state_ is state, "set_params changed the state")
    require((bandit.predict_proba(contexts(50)) >= 0.05 - 1e-12).all(), "the new floor")


def a_floor_too_high_is_refused(policy: Policy) -> None:
    """Check that a floor that is too high is refused as soon as the number of actions is known."""
    bandit = fresh(replace(policy, floor=0.3))
    bandit.predict(contexts(1), eligible=np.arange(N_ACTIONS) < 3)
    before = frozen(bandit)
    X = contexts(20)
    for name in ("decide", "predict_proba"):
        _require_refused(Wrong(f"{name}: a floor of 0.3", lambda name=name: getattr(bandit, name)(X), ("floor", "0.3")))
    require(frozen(bandit) == before, "a refused floor changed something")
    try:
        bandit.decide(X, eligible=np.arange(N_ACTIONS) < 3)
    except ParameterError as error:
        raise AssertionError("a floor of 0.3 is fine for three actions") from error


LAWS = (
    law(wrong_values_are_refused_and_change_nothing),
    law(every_parameter_has_a_rule),
    law(traits_are_known_and_consistent),
    law(parameters_are_arguments),
    law(a_floor_too_high_is_refused),
)

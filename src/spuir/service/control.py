"""Commands that say how an experiment is run: its settings, actions, episodes, versions, models and erasures."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import msgspec

from spuir.base.parameters import parameters_of
from spuir.base.streams import as_seed
from spuir.errors import ServiceError, SpuirError
from spuir.policies import Policy
from spuir.service.commands import (
    AddAction,
    ArchiveExperiment,
    ChangeExperiment,
    CloseAnswer,
    CloseEpisode,
    CreateExperiment,
    EraseOld,
    FinishLearning,
    Forget,
    ForgetAnswer,
    ImportLog,
    ImportModel,
    Publish,
    PublishAnswer,
    RemoveAction,
    UpdateAction,
)
from spuir.service.drafting import Draft, archived
from spuir.service.experiment_view import ExperimentView, changed
from spuir.service.imports import check_form, import_log
from spuir.service.log_records import (
    CONTROL,
    DECISION,
    REWARD,
    ActionFact,
    CloseFact,
    ForgetFact,
    PublishFact,
    Record,
    VersionFact,
)
from spuir.service.serving import first_form
from spuir.service.settings import (
    CHANGEABLE,
    Label,
    as_refusal,
    check_baseline,
    check_floor,
    check_id,
    check_name,
    check_settings,
    refuse,
    wrong_features,
    wrong_label,
)
from spuir.service.stores.base import Head, LogReader
from spuir.service.versions.model_steps import can_continue, change_actions, cold, opened
from spuir.service.versions.rebuild import Lineup, old_models

CHANGED = object()
"""Answers that are the experiment itself, as it is after the transaction."""


def carry_out(draft: Draft, command: Any) -> Any:
    """Carry out one command on an experiment and return its answer; :data:`CHANGED` stands for the experiment."""
    if not isinstance(command, CreateExperiment):
        if draft.view.archived and not isinstance(command, ArchiveExperiment | Forget | EraseOld | FinishLearning):
            raise archived(draft.name)
    with draft.whole():
        return _HANDLERS[type(command)](draft, command)


# ---- settings -----------------------------------------------------------------------------------------------


def _create(draft: Draft, command: CreateExperiment) -> Any:
    check_name(command.experiment)
    settings = command.settings
    check_settings(settings)
    check_baseline(settings, settings.labels)
    check_floor(settings, len(settings.labels))
    if draft.exists:
        before = draft.view
        first = msgspec.structs.replace(settings, seed=before.settings.seed) if settings.seed is None else settings
        if first != before.settings or before.archived:
            rule = "an experiment of this name exists with other settings"
            remedy = "choose another name, or change its settings"
            raise ServiceError("exists", "name", repr(draft.name), rule, remedy, "name")
        return CHANGED
    if settings.seed is None:
        settings = msgspec.structs.replace(settings, seed=as_seed(None) >> 1)
    try:
        model = cold(settings)
    except SpuirError as wrong:
        raise as_refusal(wrong, "actions") from None
    draft.add("create", "", settings)
    draft.head.facts["form"] = first_form(settings)
    draft.add("version", "0", VersionFact(0, None, None, 0, 0, model.digest(), draft.head.seq, draft.head.seq))
    draft.flush()  # the model needs the experiment
    draft.writer.put_model(draft.name, 0, model.to_bytes())
    return CHANGED


def _change(draft: Draft, command: ChangeExperiment) -> Any:
    wrong = next((name for name in command.changes if name not in CHANGEABLE), None)
    if wrong is not None or not command.changes:
        rule = f"what can change is {', '.join(sorted(CHANGEABLE))}"
        raise refuse("settings", repr(wrong) if wrong else "no change", rule, "change one of these", wrong)
    try:
        settings = changed(draft.view.settings, command.changes)
    except msgspec.ValidationError as invalid:
        raise refuse("settings", str(invalid), "settings have their types", "correct it") from None
    check_settings(settings)
    if settings == draft.view.settings:
        return CHANGED
    check_baseline(settings, draft.view.labels)
    check_floor(settings, len(draft.view.labels) - len(draft.view.retired))
    old = draft.view.settings
    same = all(getattr(old, name) == getattr(settings, name) for name in ("policy", "parameters", "floor"))
    newest = draft.view.learned
    goes_on = same or can_continue(Lineup(draft.writer, draft.name).model(newest.number), settings)
    draft.add("change", str(draft.head.seq + 1), {name: getattr(settings, name) for name in command.changes})
    if not goes_on:
        _close(draft, relearn=True)
    return CHANGED


def _archive(draft: Draft, command: ArchiveExperiment) -> Any:
    if not draft.view.archived:  # sent again, it is answered as the first time
        draft.add("archive", "", {})
    return CHANGED


# ---- actions ------------------------------------------------------------------------------------------------


def _add_action(draft: Draft, command: AddAction) -> Any:
    for wrong in wrong_label(command.label):
        raise wrong
    _check_features(draft, command.features)
    if str(command.label) in map(str, draft.view.labels):
        rule = "a label is never used twice, not even after it was removed"
        raise ServiceError("exists", "label", repr(command.label), rule, "choose another label", "label")
    if command.like is not None and command.like not in draft.view.labels:
        raise _unknown_action(command.like)
    check_floor(draft.view.settings, len(draft.view.labels) - len(draft.view.retired) + 1)
    fact = ActionFact("add", command.label, command.like, command.ramp, command.ramp_episodes, command.features)
    return _change_actions(draft, fact)


def _update_action(draft: Draft, command: UpdateAction) -> Any:
    if command.label not in draft.view.labels:
        raise _unknown_action(command.label)
    _check_features(draft, command.features)
    return _change_actions(draft, ActionFact("update", command.label, features=command.features))


def _remove_action(draft: Draft, command: RemoveAction) -> Any:
    if command.label not in draft.view.labels:
        raise _unknown_action(command.label)
    if command.label in draft.view.retired:  # sent again, it is answered as the first time
        return CHANGED
    return _change_actions(draft, ActionFact("remove", command.label))


def _change_actions(draft: Draft, fact: ActionFact) -> Any:
    """Append a change of actions, if the version that is served can take it."""
    trial = deepcopy(draft.serving.bandit)
    try:
        change_actions(trial, [(0, fact)])
    except SpuirError as wrong:
        raise as_refusal(wrong) from None
    draft.add("action", str(draft.head.seq + 1), fact)
    return CHANGED


def _check_features(draft: Draft, features: dict[str, Any] | None) -> None:
    if features is not None:
        for wrong in wrong_features(draft.view.settings, "features"):
            raise wrong


def _unknown_action(label: Label) -> ServiceError:
    rule = "there is no action of this label"
    return ServiceError("unknown_action", "label", repr(label)[:80], rule, "list the actions of the experiment")


# ---- episodes and versions ----------------------------------------------------------------------------------


def _close_episode(draft: Draft, command: CloseEpisode) -> CloseAnswer:
    if command.after is not None and command.after != draft.view.closed:  # another process was faster
        return CloseAnswer(rows=0)
    return _close(draft)


def _close(draft: Draft, relearn: bool = False) -> CloseAnswer:
    """Append a close, unless nothing has settled since the one before."""
    before, view = draft.view.last_close, draft.view
    seq, time = (0, 0) if before is None else (before.seq, before.time)
    rows = draft.writer.settling(draft.name, time, draft.time)[0] + draft.head.facts.get("open", 0)
    if not rows and not relearn:
        return CloseAnswer(rows=0)
    draft.add("close", str(view.closed + 1), CloseFact(view.closed + 1, rows, seq, time, relearn))
    draft.head.facts["open"] = 0
    draft.head.facts["closed"] = draft.head.facts.get("closed", 0) + rows
    draft.count("episodes")
    return CloseAnswer(rows=rows, version=view.learned.number + len(draft.view.waiting))


def _finish(draft: Draft, command: FinishLearning) -> Any:
    about = msgspec.json.decode(command.about, type=VersionFact)
    view = draft.view
    if not view.waiting or view.waiting[0].fact.number != about.close or about.number != view.learned.number + 1:
        rule = "another learner was faster"
        raise ServiceError("conflict", "version", about.number, rule, "drop this result")
    _add_version(draft, about, command.model)
    draft.count("learned", about.rows if about.parent is not None else 0)
    draft.count("defaulted", about.defaulted)
    draft.count("not activated", about.not_activated)
    if about.refused is None and view.settings.publish:
        _publish_version(draft, about.number)
    elif about.refused is not None:
        draft.count("versions refused")
    return CHANGED


def _add_version(draft: Draft, about: VersionFact, model: bytes | None) -> None:
    """Append a version, save its model unless it was before (None), and drop old ones."""
    draft.add("version", str(about.number), about)
    if model is not None:
        draft.writer.put_model(draft.name, about.number, model)
    draft.writer.drop_models(draft.name, old_models(draft.writer, draft.view, about.number))


def _publish_version(draft: Draft, version: int) -> PublishAnswer:
    previous = draft.view.published
    draft.add("publish", str(draft.head.seq + 1), PublishFact(version, previous))
    return PublishAnswer(version=version, previous=previous)


def _publish(draft: Draft, command: Publish) -> PublishAnswer:
    newest = draft.view.learned.number
    if not 0 <= command.version <= newest:
        rule = f"versions of this experiment are 0 to {newest}"
        raise ServiceError("unknown_version", "version", command.version, rule, "choose one of these")
    if command.version == draft.view.published:
        return PublishAnswer(version=command.version, previous=command.version)
    lineup = Lineup(draft.writer, draft.name)
    fact = lineup.fact(command.version)
    if fact.refused is not None and fact.value is None and fact.close is not None:
        raise ServiceError("refused_version", "version", command.version, fact.refused, "publish another version")
    model = lineup.model(command.version)
    if command.version in lineup.rebuilt:
        draft.writer.put_model(draft.name, command.version, model.to_bytes())
    return _publish_version(draft, command.version)


def _distinguished(one: Policy, two: Policy) -> tuple[str, str]:
    """Return two policies as texts: by their names or, where these are the same, with the parameters that differ."""
    first, second = parameters_of(one), parameters_of(two)
    names = [name for name in first if one.name == two.name and first[name] != second.get(name)]

    def described(policy: Policy, known: Mapping[str, Any]) -> str:
        return repr(policy.name) + "".join(f", {name}={known.get(name)!r}" for name in names)

    return described(one, first), described(two, second)


def _import_model(draft: Draft, command: ImportModel) -> Any:
    try:
        bandit = opened(command.model, "the model")
    except SpuirError as wrong:
        raise as_refusal(wrong) from None
    view = draft.view
    if view.waiting:
        rule = "a closed episode is being learned"
        raise ServiceError("conflict", "model", "an import", rule, "send it again when the version is there")
    if bandit.actions_.tolist() != view.labels:
        rule = "its actions are those of the experiment, in the same order"
        raise refuse(
            "model", f"actions {bandit.actions_.tolist()!r}"[:80], rule, "create the experiment with its actions"
        )
    if not can_continue(bandit, view.settings):
        got, own = _distinguished(bandit.policy_, view.settings.make_policy())
        remedy = "create the experiment with the policy and the parameters of the model"
        raise refuse("model", f"policy {got}", f"this experiment has the policy {own}", remedy)
    if bandit.n_episodes_:
        check_form(draft, 0 if bandit.encoder is not None else bandit.n_features_in_)
    bandit.random_state = bandit._seed = view.settings.seed  # draws follow from the experiment's seed
    content, number = bandit.to_bytes(), view.learned.number + 1
    about = VersionFact(
        number, None, None, bandit.n_episodes_, 0, bandit.digest(), draft.head.seq, draft.head.seq, content=content
    )
    _add_version(draft, about, content)
    if view.settings.publish:
        _publish_version(draft, number)
    return CHANGED


# ---- erasure ------------------------------------------------------------------------------------------------


def _forget(draft: Draft, command: Forget) -> ForgetAnswer:
    check_id("unit", command.unit, "unit", made=True)
    decisions = draft.writer.of_unit(draft.name, command.unit)
    if not decisions:
        rule = "no decision of this experiment names this unit"
        raise ServiceError("unknown_unit", "unit", repr(command.unit[:80]), rule, "check the id")
    rewards = draft.writer.owned(draft.name, [one.key for one in decisions])
    seqs = sorted(one.seq for one in (*decisions, *rewards))
    draft.writer.erase(draft.name, seqs)
    draft.add("forget", str(draft.head.seq + 1), ForgetFact.of(seqs, "unit"))
    draft.count("forgotten", len(decisions))
    draft.scrub = True
    return ForgetAnswer(decisions=len(decisions), rewards=sum(one.kind == REWARD for one in rewards))


def _erase_old(draft: Draft, command: EraseOld) -> ForgetAnswer:
    """Erase the oldest payloads, as many as one transaction should take."""
    records = old_records(draft.writer, draft.view, draft.head, draft.time)
    if not records:
        return ForgetAnswer(decisions=0, rewards=0)
    traffic = [one for one in records if one.kind not in CONTROL and one.payload is not None]
    draft.writer.erase(draft.name, [one.seq for one in traffic])
    fact = ForgetFact([(records[0].seq, records[-1].seq)], "retention")
    draft.head.facts["kept from"] = records[-1].seq + 1
    draft.add("forget", str(draft.head.seq + 1), fact)
    kinds = [one.kind for one in traffic]
    return ForgetAnswer(decisions=kinds.count(DECISION), rewards=kinds.count(REWARD))


def old_records(store: LogReader, view: ExperimentView, head: Head, now: int) -> list[Record]:
    """Return the oldest records that are to be erased: old enough, with every decision among them learned."""
    kept, close = view.settings.span("retention"), view.last_close
    if kept is None or close is None or view.waiting:
        return []
    oldest = head.facts.get("kept from", 1)
    if not any(one.time < now - kept for one in store.records(view.name, oldest, close.seq - 1, limit=1)):
        return []
    count, first, _ = store.settling(view.name, close.time, 2**62)
    last = min(close.seq, first) - 1 if count else close.seq - 1
    records = store.records(view.name, oldest, last)
    return [one for one in records if one.time < now - kept]


_HANDLERS: dict[type, Callable[[Draft, Any], Any]] = {
    CreateExperiment: _create,
    ChangeExperiment: _change,
    ArchiveExperiment: _archive,
    AddAction: _add_action,
    UpdateAction: _update_action,
    RemoveAction: _remove_action,
    CloseEpisode: _close_episode,
    Publish: _publish,
    FinishLearning: _finish,
    ImportLog: import_log,
    ImportModel: _import_model,
    Forget: _forget,
    EraseOld: _erase_old,
}

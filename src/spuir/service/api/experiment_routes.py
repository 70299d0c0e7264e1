"""Routes that create and run experiments: settings, actions, episodes and versions."""

import msgspec

from spuir.errors import ServiceError
from spuir.service.api import shapes
from spuir.service.api.operations import Call, Operation, Reply
from spuir.service.commands import (
    AddAction,
    ArchiveExperiment,
    ChangeExperiment,
    CloseAnswer,
    CloseEpisode,
    CreateExperiment,
    ExperimentAnswer,
    Forget,
    ForgetAnswer,
    Publish,
    PublishAnswer,
    RemoveAction,
    UpdateAction,
    VersionAnswer,
)
from spuir.service.settings import ExperimentSettings, Label


async def create(call: Call) -> Reply:
    """Create an experiment."""
    given = msgspec.structs.asdict(await call.json(shapes.new_experiment))
    name: str = given.pop("name")
    if not call.key.covers(name):
        rule = "the API key is limited to other experiments"
        raise ServiceError("forbidden", "name", repr(name[:80]), rule, "use another key or another name", "name")
    settings = ExperimentSettings(**given)
    made: ExperimentAnswer = await call.execute(CreateExperiment(experiment=name, settings=settings))
    return Reply(made, 201 if made.created_now else 200)


async def list_experiments(call: Call) -> list[ExperimentAnswer]:
    """List the experiments that the key may see."""
    known = await call.read(call.service.engine.experiments)
    return [one for one in known if call.key.covers(one.name)]


async def read_experiment(call: Call) -> ExperimentAnswer:
    """Return an experiment."""
    return await call.read(call.service.engine.experiment, call.experiment)


async def change(call: Call) -> ExperimentAnswer:
    """Change settings."""
    given = msgspec.structs.asdict(await call.json(shapes.settings_change))
    changes = {name: value for name, value in given.items() if value is not msgspec.UNSET}
    return await call.execute(ChangeExperiment(experiment=call.experiment, changes=changes))


async def archive(call: Call) -> ExperimentAnswer:
    """Archive an experiment."""
    return await call.execute(ArchiveExperiment(experiment=call.experiment))


async def add_action(call: Call) -> Reply:
    """Add an action."""
    given = msgspec.structs.asdict(await call.json(shapes.new_action))
    return Reply(await call.execute(AddAction(experiment=call.experiment, **given)), 201)


async def change_action(call: Call) -> ExperimentAnswer:
    """Change the features of an action."""
    features = (await call.json(shapes.action_change)).features
    command = UpdateAction(experiment=call.experiment, label=await _label(call), features=features)
    return await call.execute(command)


async def remove_action(call: Call) -> ExperimentAnswer:
    """Retire an action."""
    return await call.execute(RemoveAction(experiment=call.experiment, label=await _label(call)))


async def _label(call: Call) -> Label:
    """Return the label that the address means: labels may be numbers, addresses are texts."""
    text = call.params["label"]
    known = await call.read(call.service.engine.experiment, call.experiment)
    return next((one.label for one in known.actions if str(one.label) == text), text)


async def close_episode(call: Call) -> CloseAnswer:
    """Learn from what has settled."""
    return await call.execute(CloseEpisode(experiment=call.experiment))


async def list_versions(call: Call) -> list[VersionAnswer]:
    """Return the versions of an experiment."""
    return await call.read(call.service.engine.versions, call.experiment)


async def publish(call: Call) -> PublishAnswer:
    """Serve a version."""
    return await call.execute(Publish(experiment=call.experiment, version=number_in(call.params["version"])))


def number_in(text: str) -> int:
    """Return the number of a version in an address; no other text is one."""
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        rule, remedy = "it is a whole number", "list the versions to see their numbers"
        raise ServiceError("unknown_version", "version", repr(text[:80]), rule, remedy, "version")
    return int(text)


async def forget(call: Call) -> ForgetAnswer:
    """Erase a unit."""
    return await call.execute(Forget(experiment=call.experiment, unit=call.params["unit"]))


_ROOT = "/v1/experiments"
_ONE = f"{_ROOT}/{{name}}"
OPERATIONS = (
    Operation(
        method="POST",
        path=_ROOT,
        role="admin",
        summary="Create an experiment",
        doc="The same name with the same settings can be sent again, and is answered with 200.",
        handler=create,
        body=(shapes.NewExperiment,),
        example={
            "name": "shop",
            "actions": ["red", "green", "blue"],
            "context": {"kind": "numbers", "dimension": 3},
            "window": None,
            "seed": 7,
        },
        answers={200: ExperimentAnswer, 201: ExperimentAnswer},
        errors=(409,),
    ),
    Operation(
        method="GET",
        path=_ROOT,
        role="read",
        summary="List the experiments",
        doc="A key that is limited to experiments sees only these.",
        handler=list_experiments,
        answers={200: list[ExperimentAnswer]},
    ),
    Operation(
        method="GET",
        path=_ONE,
        role="read",
        summary="Read an experiment",
        handler=read_experiment,
        answers={200: ExperimentAnswer},
    ),
    Operation(
        method="PATCH",
        path=_ONE,
        role="admin",
        summary="Change settings of an experiment",
        doc="Settings hold from here on; `context` and `seed` never change, and `actions` have routes of their own. "
        "No change discards what was learned.",
        handler=change,
        body=(shapes.SettingsChange,),
        example={"default_reward": 0.0, "floor": 0.05},
        answers={200: ExperimentAnswer},
        errors=(409,),
    ),
    Operation(
        method="DELETE",
        path=_ONE,
        role="admin",
        summary="Archive an experiment",
        doc="An archived experiment can be read and takes nothing more. Sent again, it is answered as the first time.",
        handler=archive,
        answers={200: ExperimentAnswer},
        errors=(409,),
    ),
    Operation(
        method="POST",
        path=f"{_ONE}/actions",
        role="admin",
        summary="Add an action",
        doc="The new action ramps up: its probability is capped during its first episodes.",
        handler=add_action,
        body=(shapes.NewAction,),
        example={"label": "white", "ramp": 0.1},
        answers={201: ExperimentAnswer},
        errors=(409,),
    ),
    Operation(
        method="PUT",
        path=f"{_ONE}/actions/{{label}}",
        role="admin",
        summary="Change the features of an action",
        handler=change_action,
        body=(shapes.ActionChange,),
        example={"features": None},
        answers={200: ExperimentAnswer},
        errors=(409,),
    ),
    Operation(
        method="DELETE",
        path=f"{_ONE}/actions/{{label}}",
        role="admin",
        summary="Retire an action",
        doc="It is not chosen again. Late rewards of its decisions are still learned. "
        "Sent again, it is answered as the first time.",
        handler=remove_action,
        answers={200: ExperimentAnswer},
        errors=(400, 409),
    ),
    Operation(
        method="POST",
        path=f"{_ONE}/episodes/close",
        role="admin",
        summary="Close the episode and learn now",
        handler=close_episode,
        answers={200: CloseAnswer},
        errors=(409,),
    ),
    Operation(
        method="GET",
        path=f"{_ONE}/versions",
        role="read",
        summary="List the versions of the model",
        handler=list_versions,
        answers={200: list[VersionAnswer]},
    ),
    Operation(
        method="POST",
        path=f"{_ONE}/versions/{{version}}/publish",
        role="admin",
        summary="Publish a version",
        doc="Publishing an older version is a rollback.",
        handler=publish,
        answers={200: PublishAnswer},
        errors=(409,),
    ),
    Operation(
        method="DELETE",
        path=f"{_ONE}/units/{{unit}}",
        role="admin",
        summary="Forget a unit",
        doc="Contexts and rewards of the unit are erased from the log. What was learned from them stays.",
        handler=forget,
        answers={200: ForgetAnswer},
        errors=(400, 409),
    ),
)

"""Clients of the decision service: :class:`Client` waits for each answer, :class:`AsyncClient` is for asyncio."""

import secrets
import time as clocks
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Self

import msgspec

from spuir.bandit import Bandit, from_bytes
from spuir.errors import ServiceError
from spuir.service import commands
from spuir.service.clients.flows import ENCODER, Awaiting, Blocking, Flow, Method, Sender
from spuir.service.clients.request_rows import actions_body, decision_bodies, features_body, given, reward_body
from spuir.service.settings import Label

ROWS = 1000
"""Most rewards per request."""
Moment = str | float | datetime
"""A time: ISO text, seconds since 1970, or a datetime with a time zone."""


class _Methods(Sender):
    """The methods of both clients; in an :class:`AsyncClient` they are awaited."""

    # ---- decisions and rewards ------------------------------------------------------------------------------

    @Method
    def decide(
        self,
        experiment: str,
        context: Any,
        *,
        id: str | None = None,
        eligible: Sequence[Label] | None = None,
        action_features: Mapping[str, Any] | None = None,
        defer: bool = False,
        unit: str | None = None,
    ) -> Flow[commands.DecisionAnswer]:
        """Take one decision; without an ``id`` the client makes one, so that it can repeat the request safely."""
        row = {"id": id, "context": context, "eligible": eligible, "action_features": action_features}
        row |= {"defer": defer, "unit": unit}
        body = {"id": secrets.token_hex(12), **given(row)}
        return self.ask(commands.DecisionAnswer, "POST", experiment, "decisions", body=body)

    @Method
    def decide_many(
        self, experiment: str, rows: Iterable[Any], *, ids: Iterable[str] | None = None, numbered: bool = False
    ) -> Flow[list[commands.DecisionAnswer]]:
        """Take several decisions in one request: all of them, or, if one is refused, none.

        Ids make it safe to repeat the request, which the client does when an answer is lost: the service recognises
        them. They cost time, since each row with an id has a record of its own in the log. Rows that are nothing but
        contexts share one, and the service records them several times faster: that is what ``numbered`` sends.

        Parameters
        ----------
        experiment
            Its name.
        rows
            Contexts, such as a matrix, a data frame or a list of dicts, or
            :class:`spuir.service.commands.DecisionRow` objects.
        ids
            One id per row; None = those of the rows, or else made by the client.
        numbered
            Whether to send no ids, so that the draws go by the rows' numbers within the episode, as those of
            :meth:`spuir.Bandit.decide` do. Such a request is not repeated if its answer is lost: its decisions may be
            in the log, without the caller knowing their ids, and asking again adds others. The answers have ids, to
            report rewards with.
        """
        path, body = (experiment, "decisions"), {"decisions": decision_bodies(rows, ids, numbered)}
        answer = yield from self.ask(commands.DecisionsAnswer, "POST", *path, body=body, repeatable=not numbered)
        return answer.decisions

    @Method
    def reward(
        self,
        experiment: str,
        decision_id: str,
        reward: float,
        *,
        id: str | None = None,
        time: Moment | None = None,
    ) -> Flow[commands.RewardAnswer]:
        """Report a reward. Without an ``id``, rewards of equal decision, value and time count once."""
        body = reward_body((decision_id, reward, id, time))
        return self.ask(commands.RewardAnswer, "POST", experiment, "rewards", body=body)

    @Method
    def reward_many(
        self, experiment: str, rewards: Mapping[str, float] | Iterable[Any]
    ) -> Flow[list[commands.RewardAnswer]]:
        """Report rewards, up to 1,000 per request.

        ``rewards`` is a dict by decision id, or an iterable of pairs (decision id, reward) or of
        :class:`spuir.service.commands.RewardRow`.
        """
        rows = [reward_body(one) for one in (rewards.items() if isinstance(rewards, Mapping) else rewards)]
        answers: list[commands.RewardAnswer] = []
        for first in range(0, len(rows), ROWS):
            body = {"rewards": rows[first : first + ROWS]}
            path = (experiment, "rewards")
            answers += (yield from self.ask(commands.RewardsAnswer, "POST", *path, body=body)).rewards
        return answers

    @Method
    def activate(self, experiment: str, decision_id: str) -> Flow[commands.ActivateAnswer]:
        """Let a deferred decision be learned."""
        path = (experiment, "decisions", decision_id, "activate")
        return self.ask(commands.ActivateAnswer, "POST", *path)

    @Method
    def decision(self, experiment: str, decision_id: str) -> Flow[commands.DecisionStatus]:
        """Return what became of a decision."""
        return self.ask(commands.DecisionStatus, "GET", experiment, "decisions", decision_id)

    # ---- experiments ----------------------------------------------------------------------------------------

    @Method
    def create(self, name: str, actions: Any, **settings: Any) -> Flow[commands.ExperimentAnswer]:
        """Create an experiment; settings are those of :class:`spuir.service.settings.ExperimentSettings`.

        ``actions`` are labels, their number, or a catalogue: features by label, a data frame or an Arrow table.
        """
        body = {"name": name, "actions": actions_body(actions), **settings}
        return self.ask(commands.ExperimentAnswer, "POST", body=body)

    @Method
    def experiments(self) -> Flow[list[commands.ExperimentAnswer]]:
        """Return all experiments that the key may see."""
        return self.ask(list[commands.ExperimentAnswer], "GET")

    @Method
    def experiment(self, name: str) -> Flow[commands.ExperimentAnswer]:
        """Return an experiment as it is now."""
        return self.ask(commands.ExperimentAnswer, "GET", name)

    @Method
    def change(self, name: str, **changes: Any) -> Flow[commands.ExperimentAnswer]:
        """Change settings from here on; what was learned stays."""
        return self.ask(commands.ExperimentAnswer, "PATCH", name, body=changes)

    @Method
    def archive(self, name: str) -> Flow[commands.ExperimentAnswer]:
        """End an experiment: it can be read, and takes nothing more."""
        return self.ask(commands.ExperimentAnswer, "DELETE", name)

    @Method
    def add_action(
        self,
        name: str,
        label: Label,
        *,
        like: Label | None = None,
        ramp: float | None = 0.1,
        ramp_episodes: int = 5,
        features: Mapping[str, Any] | None = None,
    ) -> Flow[commands.ExperimentAnswer]:
        """Add an action to a running experiment; arguments as in :meth:`spuir.Bandit.add_action`."""
        body = given({"label": label, "like": like, "features": features_body(label, features)})
        body |= {"ramp": ramp, "ramp_episodes": ramp_episodes}
        return self.ask(commands.ExperimentAnswer, "POST", name, "actions", body=body, repeatable=False)

    @Method
    def update_action(
        self, name: str, label: Label, features: Mapping[str, Any] | None
    ) -> Flow[commands.ExperimentAnswer]:
        """Change the features of an action."""
        body = {"features": features_body(label, features)}
        return self.ask(commands.ExperimentAnswer, "PUT", name, "actions", label, body=body)

    @Method
    def remove_action(self, name: str, label: Label) -> Flow[commands.ExperimentAnswer]:
        """Retire an action: it is never chosen again."""
        return self.ask(commands.ExperimentAnswer, "DELETE", name, "actions", label)

    # ---- episodes, versions, the log ------------------------------------------------------------------------

    @Method
    def close_episode(self, name: str) -> Flow[commands.CloseAnswer]:
        """Learn from everything that has settled; :meth:`wait_for` waits until it is learned."""
        return self.ask(commands.CloseAnswer, "POST", name, "episodes", "close", repeatable=False)

    @Method
    def versions(self, name: str) -> Flow[list[commands.VersionAnswer]]:
        """Return the versions of the model, the cold one first."""
        return self.ask(list[commands.VersionAnswer], "GET", name, "versions")

    @Method
    def publish(self, name: str, version: int) -> Flow[commands.PublishAnswer]:
        """Serve a version from here on; an older one is a rollback."""
        return self.ask(commands.PublishAnswer, "POST", name, "versions", version, "publish")

    @Method
    def wait_for(self, name: str, version: int | None, seconds: float = 60.0) -> Flow[commands.ExperimentAnswer]:
        """Wait until a version is learned, and return the experiment; None returns it at once."""
        give_up, pause = clocks.monotonic() + seconds, 0.01
        while True:
            about = yield from self.ask(commands.ExperimentAnswer, "GET", name)
            if version is None or about.newest >= version:
                return about
            if clocks.monotonic() > give_up:
                rule, remedy = f"it is learned within {seconds:g} s", "wait longer, or look at the log of the service"
                raise ServiceError("not_learned", "version", f"{about.newest} instead of {version}", rule, remedy)
            yield pause
            pause = min(2 * pause, 0.5)

    @Method
    def model(self, name: str, version: int | None = None) -> Flow[Bandit]:
        """Return a version of the model as a :class:`spuir.Bandit`; None = the one that is served."""
        query = None if version is None else {"version": version}
        content = yield from self.ask(bytes, "GET", name, "model", query=query)
        return from_bytes(content, f"model of {name}")

    @Method
    def import_model(self, name: str, model: Bandit) -> Flow[commands.ExperimentAnswer]:
        """Take a model as the next version."""
        how: dict[str, Any] = {"media": "application/octet-stream", "repeatable": False}
        return self.ask(commands.ExperimentAnswer, "POST", name, "model", body=model.to_bytes(), **how)

    @Method
    def log(self, name: str, *, settled: bool = False) -> Flow[list[dict[str, Any]]]:
        """Return the decisions with their rewards in the order of decisions, as rows of a canonical log.

        ``settled`` leaves out decisions that no closed episode holds yet. All of it is in memory: a large log is better
        written to a file, by curl for instance.
        """
        content = yield from self.ask(bytes, "GET", name, "log", query={"settled": "true"} if settled else None)
        return msgspec.json.Decoder(dict[str, Any]).decode_lines(content)

    @Method
    def import_log(self, name: str, rows: Iterable[Mapping[str, Any]]) -> Flow[commands.ImportAnswer]:
        """Record rows that were decided and rewarded elsewhere; see :class:`spuir.service.commands.LogRow`.

        Rows with a ``decision_id`` are recorded once, however often they are imported.
        """
        listed = list(rows)
        how = {"media": "application/x-ndjson", "repeatable": all("decision_id" in row for row in listed)}
        return self.ask(commands.ImportAnswer, "POST", name, "log", body=ENCODER.encode_lines(listed), **how)

    @Method
    def forget(self, name: str, unit: str) -> Flow[commands.ForgetAnswer]:
        """Erase contexts and rewards of a unit for good; what was learned stays."""
        return self.ask(commands.ForgetAnswer, "DELETE", name, "units", unit)


class Client(Blocking, _Methods):
    """A client that waits for each answer; any number of threads may share it.

    Parameters
    ----------
    url, key, timeout, patience, connections
        As in :class:`spuir.service.clients.flows.Sender`.

    Examples
    --------
    >>> with Client("http://127.0.0.1:8000") as client:
    ...     offer = client.decide("shop", {"age": 31, "device": "phone"})
    ...     client.reward("shop", offer.id, 1.0)
    """

    def buffer(self, experiment: str, size: int = 100) -> "RewardBuffer":
        """Return a buffer that reports rewards ``size`` at a time; use it in a ``with`` block."""
        return RewardBuffer(self, experiment, size)

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(Awaiting, _Methods):
    """A client for asyncio: its methods are those of :class:`Client`, to be awaited."""

    def buffer(self, experiment: str, size: int = 100) -> "AsyncRewardBuffer":
        """Return a buffer that reports rewards ``size`` at a time; use it in an ``async with`` block."""
        return AsyncRewardBuffer(self, experiment, size)

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Buffer:
    """Rewards that wait until there are enough for a request.

    Rewards that wait are in this process alone: they are lost if it dies before they are sent. ``counts`` says how
    many got which status. If a request fails, its rewards wait again; sending them twice counts them once.
    """

    def __init__(self, client: Any, experiment: str, size: int) -> None:
        self._client, self.experiment, self.size = client, experiment, size
        self._waiting: deque[dict[str, Any]] = deque()
        self.counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._waiting)

    def carry_out(self, flow: Flow[Any]) -> Any:
        """Carry out a flow as the client does."""
        return self._client.carry_out(flow)

    @Method
    def add(
        self, decision_id: str, reward: float, *, id: str | None = None, time: Moment | None = None
    ) -> Flow[list[commands.RewardAnswer]]:
        """Add a reward; return the answers if it completed a request."""
        self._waiting.append(reward_body((decision_id, reward, id, time)))
        return self._send(self.size)

    @Method
    def flush(self) -> Flow[list[commands.RewardAnswer]]:
        """Send what waits, and return the answers."""
        return self._send(1)

    def _send(self, least: int) -> Flow[list[commands.RewardAnswer]]:
        answers: list[commands.RewardAnswer] = []
        while len(self._waiting) >= least:
            rows = [self._waiting.popleft() for _ in range(min(ROWS, len(self._waiting)))]
            try:
                path = (self.experiment, "rewards")
                answer = yield from self._client.ask(commands.RewardsAnswer, "POST", *path, body={"rewards": rows})
            except BaseException:
                self._waiting.extendleft(reversed(rows))
                raise
            self.counts.update(one.status for one in answer.rewards)
            answers += answer.rewards
        return answers


class RewardBuffer(_Buffer, Blocking):
    """The buffer of a :class:`Client`; leaving its ``with`` block sends what waits."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()


class AsyncRewardBuffer(_Buffer, Awaiting):
    """The buffer of an :class:`AsyncClient`; leaving its ``async with`` block sends what waits."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.flush()

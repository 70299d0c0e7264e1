"""The loop over HTTP ends with the state of ``spuir.run``, bit for bit, and so does a replay of the exported log."""

import signal
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import spuir
from spuir import Bandit
from spuir.base.packing import pack
from spuir.base.parameters import parameters_of
from spuir.base.streams import generator
from spuir.environments import make_environment
from spuir.loop import observe, with_horizon
from spuir.policies import make_policy
from spuir.service.clients.client import Client
from tests.service.api.servers import running_server
from tests.service.processes import server_process

SEED, EPISODES, BATCH = 5, 4, 120


def bits(bandit: Bandit) -> tuple[Any, dict[str, bytes]]:
    """Return everything that was learned, to the last bit."""
    header, arrays = pack(bandit.state_)
    return header, {name: array.tobytes() for name, array in arrays.items()}


@pytest.fixture
def run_bandits(monkeypatch: pytest.MonkeyPatch) -> list[Bandit]:
    """The bandits that ``spuir.run`` makes."""
    made: list[Bandit] = []

    class Kept(Bandit):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            made.append(self)

    monkeypatch.setattr("spuir.loop.Bandit", Kept)
    return made


def parameters(policy: str) -> dict[str, Any]:
    """Return the parameters that ``spuir.run`` gives a policy."""
    given = with_horizon(make_policy(policy), EPISODES, BATCH)
    default, mine = parameters_of(make_policy(policy)), parameters_of(given)
    return {name: value for name, value in mine.items() if value != default[name]}


def create(client: Client, policy: str, world: Any) -> None:
    context = {"kind": "numbers", "dimension": world.dim}
    how = {"policy": policy, "parameters": parameters(policy), "context": context, "window": None, "seed": SEED}
    client.create("coupons", world.n_actions, **how)


def rewards_of(world: Any, rounds: Any, actions: list[Any], propensities: list[float], episode: int) -> list[float]:
    """Return the rewards that follow from actions, with the noise of ``spuir.run``."""
    chosen, probabilities = np.array(actions), np.array(propensities)
    batch = observe(world, rounds, chosen, probabilities, feedback=0.0, place=(SEED, episode))
    return batch.rewards.tolist()


def replayed(rows: list[dict[str, Any]], policy: str, world: Any) -> Bandit:
    """Return a bandit that learned an exported log, episode by episode."""
    bandit = Bandit(make_policy(policy, **parameters(policy)), world.n_actions, random_state=SEED)
    bandit._advises = False
    for episode in range(EPISODES):
        mine = [row for row in rows if row["episode"] == episode]
        contexts = [[row[f"x{column}"] for column in range(world.dim)] for row in mine]
        columns = {f"{name}s": [row[name] for row in mine] for name in ("action", "reward")}
        propensities = [row["propensity"] for row in mine]
        with threadpool_limits(limits=1):
            bandit.partial_fit(contexts, **columns, propensities=propensities, allow_repeat=True)
    return bandit


@pytest.mark.parametrize("policy", ["auto", "spuir"])
def test_one_batch_request_per_episode_gives_the_bits_of_run(
    policy: str, tmp_path: Path, run_bandits: list[Bandit]
) -> None:
    world = make_environment("coupon", seed=SEED)
    history = spuir.run(policy, world, EPISODES, BATCH, SEED)
    means: list[float] = []
    with server_process(tmp_path) as server, Client(server.url) as client:
        create(client, policy, world)
        for n in range(EPISODES + 1):
            rounds = world.draw(BATCH, generator(SEED, "environment", "contexts", n))
            decided = client.decide_many("coupons", rounds.contexts, numbered=True)
            assert {one.version for one in decided} == {n}
            ids, actions = [one.id for one in decided], [one.action for one in decided]
            rewards = rewards_of(world, rounds, actions, [one.propensity for one in decided], n)
            means.append(float(np.mean(rewards)))
            if n < EPISODES:
                # Rewards come in another order than the decisions.
                client.reward_many("coupons", list(zip(ids, rewards, strict=True))[::-1])
                client.wait_for("coupons", client.close_episode("coupons").version)
        learned, rows = client.model("coupons"), client.log("coupons")
        assert server.stop() in (0, -signal.SIGTERM)
    np.testing.assert_allclose(means[1:], history.rewards, rtol=1e-12)
    assert bits(learned) == bits(run_bandits[0])
    assert bits(replayed(rows, policy, world)) == bits(learned)


def test_single_requests_give_the_state_of_run(tmp_path: Path, run_bandits: list[Bandit]) -> None:
    world = make_environment("coupon", seed=SEED)
    spuir.run("auto", world, EPISODES, BATCH, SEED)
    with running_server(tmp_path) as server, Client(server.url) as client, httpx.Client(base_url=server.url) as plain:
        create(client, "auto", world)
        for n in range(EPISODES):
            rounds = world.draw(BATCH, generator(SEED, "environment", "contexts", n))
            path = "/v1/experiments/coupons/decisions"
            decided = [plain.post(path, json={"context": row}).json() for row in rounds.contexts.tolist()]
            ids, actions = [one["id"] for one in decided], [one["action"] for one in decided]
            rewards = rewards_of(world, rounds, actions, [one["propensity"] for one in decided], n)
            for one, reward in zip(ids, rewards, strict=True):
                client.reward("coupons", one, reward)
            client.wait_for("coupons", client.close_episode("coupons").version)
        learned = client.model("coupons")
    _, mine = pack(learned.state_)
    _, theirs = pack(run_bandits[0].state_)
    assert mine.keys() == theirs.keys()
    for name, array in mine.items():
        np.testing.assert_allclose(array, theirs[name], rtol=1e-10, atol=1e-10, err_msg=name)

"""A shop that drives its own decision service, so that a newcomer sees it learn within a minute.

The visitors are those of the coupon environment. They come in episodes: the shop asks for a coupon for each of them,
reports which of them bought, and closes the episode, which makes the service learn.
"""

import threading
from collections.abc import Callable

import numpy as np

from spuir.base.streams import generator
from spuir.environments import make_environment
from spuir.service.clients.client import Client

NAME = "coupons"
COUPONS = ("nothing", "5-percent", "10-percent", "free-delivery", "gift")
COLUMNS = 4
EPISODES, VISITORS, SEED = 30, 200, 0
"""How many episodes there are, how many visitors come in each, and the seed of the visitors and of the draws."""
BAR = 100
"""Characters for a reward of 1."""


def drive(
    url: str,
    echo: Callable[[str], object] = print,
    *,
    episodes: int = EPISODES,
    seconds: float = 1.0,
    stop: threading.Event | None = None,
) -> list[float]:
    """Run the shop against a service, and return the mean reward of each episode.

    Parameters
    ----------
    url
        Where the service is.
    echo
        Called with each line to print.
    episodes
        How many episodes there are.
    seconds
        Pause after an episode, so that it can be watched.
    stop
        Ends the shop after the current episode when it is set.
    """
    stop = stop or threading.Event()
    shop = make_environment("coupon", n_actions=len(COUPONS), dim=COLUMNS, seed=SEED)
    means: list[float] = []
    with Client(url) as client:
        context = {"kind": "numbers", "dimension": COLUMNS}
        client.create(NAME, COUPONS, context=context, window=None, seed=SEED)
        sample = shop.expected_rewards(shop.draw(20_000, generator(SEED, "demo", "sample")))
        random, best = float(sample.mean()), float(sample.max(axis=1).mean())
        echo(f"A shop chooses one of {len(COUPONS)} coupons for each of {VISITORS} visitors per episode, then learns.")
        echo(f"A coupon at random earns {random:.2f} per visitor, the best one for each visitor {best:.2f}.\n")
        for number in range(1, episodes + 1):
            rounds = shop.draw(VISITORS, generator(SEED, "demo", "visitors", number))
            given = client.decide_many(NAME, rounds.contexts)
            codes = np.array([COUPONS.index(str(one.action)) for one in given])
            earned = shop.feedback(rounds, codes, generator(SEED, "demo", "noise", number)).rewards
            client.reward_many(NAME, zip((one.id for one in given), earned.tolist(), strict=True))
            client.wait_for(NAME, client.close_episode(NAME).version)
            means.append(float(earned.mean()))
            echo(f"episode {number:>2}   reward {means[-1]:.2f}   {'█' * round(BAR * means[-1])}")
            if stop.wait(seconds):
                return means
    echo("\nThe shop is closed. The service still runs: press Ctrl-C to stop it.")
    return means


def ideas(url: str) -> str:
    """Return what to try with curl while the demonstration runs."""
    one = f"{url}/v1/experiments/{NAME}"
    context = [0.1, 0.12, 0.07, 0.11]
    json = "-H 'Content-Type: application/json'"
    return f"""Try in another terminal:

  # settings, actions and counts
  curl -s {one}
  # ask for a coupon; the same id gets the same one again
  curl -s {one}/decisions {json} -d '{{"id": "me", "context": {context}}}'
  # report that it was used, and see what became of the decision
  curl -s {one}/rewards {json} -d '{{"decision_id": "me", "reward": 1}}'
  curl -s {one}/decisions/me
  # every version of the model, and back to the first one
  curl -s {one}/versions
  curl -s -X POST {one}/versions/1/publish
  # all decisions with their rewards, and the metrics
  curl -s {one}/log | head -3
  curl -s {url}/metrics | grep spuir_decisions
"""

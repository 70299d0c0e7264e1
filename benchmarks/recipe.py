"""Does a change of the default policy's recipe help? Run ``python -m benchmarks.recipe --data my-data``.

A change is compared with the recipe without it in the worlds and in the shops of the experiment ``default``, on seeds
that no other part of the project uses. It is worth keeping if it helps in at least half of the worlds in which it
changes anything, and hurts in none beyond noise.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click

from spuir.core import evidence
from spuir.reproduction.base import Scope
from spuir.reproduction.claims import interval
from spuir.reproduction.conversion import convert
from spuir.reproduction.experiments.default import SALES, SHOPS, played
from spuir.reproduction.grids import text_of
from spuir.reproduction.policy_runs import Setup, levels, play

FIRST_SEED = 1_000
SHOP_SEEDS = 5
"""Seeds of a shop per seed of a world: a shop takes little time, and few of its seeds go wrong."""
EARLIER_RIDGE = 1e5
"""The largest ridge that the recipe had at first."""
LANDMARKS = (200, 400)
HARD_TABLES = ("covertype", "digits")
"""Where more landmarks are tried: real tables on which the kernel acts."""
HEAD = ("world", "before", "after", "gain, %", "seeds that differ", "least before", "least after")


def reward(setup: Setup, seed: int, **parameters: Any) -> float:
    """Return the expected reward of `auto` at floor 0 in one world."""
    place = setup.arguments(seed)
    found = play(policy="auto", preset=None, parameters={"floor": 0.0, **parameters}, feedback=0.0, **place)
    return levels(**place)[-1]["oracle"] - found[-1]["regret_per_step"]


def share(seed: int, *, contextual: bool) -> float:
    """Return the share of later customers of the shop who get the better offer."""
    return convert(contextual=contextual, policy="auto", parameters={}, seed=seed, **SALES)[-1]["share"]


def show(name: str, before: Mapping[int, float], after: Mapping[int, float]) -> None:
    """Print one world: both means, the gain of the change, on how many seeds it changes anything, the worst seeds."""
    gains = {seed: after[seed] / before[seed] - 1.0 for seed in sorted(after.keys() & before.keys())}
    mean = [sum(values.values()) / len(values) for values in (before, after)]
    gain = text_of(interval(100 * one for one in gains.values()))
    differ = f"{sum(one != 0.0 for one in gains.values())} of {len(gains)}"
    least = [min(values.values()) for values in (before, after)]
    cells = (name, *(f"{one:.4f}" for one in mean), gain, differ, *(f"{one:.4f}" for one in least))
    click.echo(f"| {' | '.join(cells)} |")


def under_ridges(measured: Callable[[int], float], seeds: range) -> list[dict[int, float]]:
    """Return what is measured with the earlier largest ridge, and with today's."""
    found: list[dict[int, float]] = []
    for largest in (EARLIER_RIDGE, evidence.LARGEST_RIDGE):
        with patch.object(evidence, "LARGEST_RIDGE", largest):
            found.append({seed: measured(seed) for seed in seeds})
    return found


@click.command()
@click.option("--data", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Folder of real tables.")
@click.option("--seeds", default=20, show_default=True, help="Seeds per world.")
@click.option("--first-seed", default=FIRST_SEED, show_default=True, help="The first of the seeds.")
@click.option("--landmarks", is_flag=True, help="Compare 400 landmarks with 200, not the largest ridge.")
def main(data: Path | None, seeds: int, first_seed: int, landmarks: bool) -> None:
    """Print the gain of a change in each world, with its 95 % interval over paired seeds."""
    worlds, every = played(Scope(data=data)), range(first_seed, first_seed + seeds)
    click.echo(f"| {' | '.join(HEAD)} |\n| --- {'| ---: ' * (len(HEAD) - 1)}|")
    if landmarks:
        for name in [name for name in HARD_TABLES if name in worlds]:
            show(name, *({seed: reward(worlds[name], seed, landmarks=n) for seed in every} for n in LANDMARKS))
        return
    for contextual, name in SHOPS.items():
        more = range(first_seed, first_seed + SHOP_SEEDS * seeds)
        show(name, *under_ridges(lambda seed, form=contextual: share(seed, contextual=form), more))
    for name, setup in worlds.items():
        show(name, *under_ridges(lambda seed, place=setup: reward(place, seed), every))


if __name__ == "__main__":
    main()

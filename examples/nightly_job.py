"""A nightly job: learn from last night's rewards, decide for tonight, write everything down.

The job starts from the files of the night before, and leaves the files for the next. It may crash or run twice without
harm: each night has its own files, and an episode that was learned is recognised. The log that it writes can be used
to evaluate other policies, because every propensity lies strictly between 0 and 1.
Run it in an empty folder: ``python nightly_job.py``. Then try ``spuir evaluate log --policy sbucb``.
"""

from pathlib import Path

import numpy as np
import pandas as pd

import spuir
from spuir.errors import RepeatedEpisodeError

OFFERS = ["coupon", "gift", "nothing"]
CONTEXT = ["age", "device"]
MODEL, LOG = Path("model.spuir"), Path("log")


def customers(night: int, n: int = 500) -> pd.DataFrame:
    """Return tonight's customers: replace it by a query of your own."""
    rng = np.random.default_rng(night)
    ids = [f"{night}-{i}" for i in range(n)]
    return pd.DataFrame({"id": ids, "age": rng.integers(18, 80, n), "device": rng.choice(["phone", "desktop"], n)})


def sales(decided: pd.DataFrame, night: int) -> dict[str, float]:
    """Return who bought: gifts work on phones, coupons on desktops."""
    wanted = np.where(decided.device == "phone", decided.action == "gift", decided.action == "coupon")
    bought = np.random.default_rng(1000 + night).random(len(decided)) < 0.1 + 0.4 * wanted
    return dict.fromkeys(decided.id[bought], 1.0)


def first_night(people: pd.DataFrame) -> None:
    """Save a model that knows the columns and the offers, and nothing else."""
    encoder = spuir.Encoder.fit(people[CONTEXT])
    spuir.Bandit(actions=OFFERS, encoder=encoder, random_state=7).save(MODEL)


def open_file(night: int) -> Path:
    """Return where the decisions of a night wait for their rewards."""
    return Path(f"open-{night}.spuir")


def learn(bandit: spuir.Bandit, night: int, rewards: dict[str, float]) -> None:
    """Learn the decisions of a night; a customer without a sale has reward 0."""
    episode = spuir.Episode.load(open_file(night))
    episode.reward(list(rewards), list(rewards.values()))
    episode.close()
    try:
        bandit.partial_fit(**episode.columns())
    except RepeatedEpisodeError:
        print(f"night {night} was learned before, and is not learned twice")
        return
    LOG.mkdir(exist_ok=True)
    episode.table().to_pandas().assign(episode=night).to_csv(LOG / f"night-{night}.csv", index=False)
    bandit.save(MODEL)


def job(night: int, people: pd.DataFrame, rewards: dict[str, float]) -> pd.DataFrame:
    """Learn the night before, and return tonight's decisions."""
    bandit = spuir.load(MODEL)
    if open_file(night - 1).exists():
        learn(bandit, night - 1, rewards)
    decision = bandit.decide(people[CONTEXT], ids=people.id.tolist())
    episode = spuir.Episode(default=0.0)
    episode.record(people[CONTEXT], decision)
    episode.save(open_file(night))
    return people.assign(action=decision.actions, propensity=decision.propensities)


def main() -> None:
    """Run the job for eight nights, and look at the log."""
    first_night(customers(0))
    rewards: dict[str, float] = {}
    for night in range(1, 9):
        decided = job(night, customers(night), rewards)
        if night == 4:
            again = job(night, customers(night), rewards)  # by mistake: nothing changes
            print("the same decisions:", again.equals(decided))
        rewards = sales(decided, night)
        print(f"night {night}: {len(rewards)} of {len(decided)} customers bought")
    log = pd.concat(map(pd.read_csv, sorted(LOG.glob("*.csv"))))
    least, most = log.propensity.min(), log.propensity.max()
    print(f"the log: {len(log):,} decisions, propensities from {least:.4f} to {most:.4f}")


if __name__ == "__main__":
    main()

"""A coupon campaign: from a CSV file of past offers to a policy that earns more.

For a while a shop gave every visitor one of three offers at random, and wrote down who bought. This script learns a
policy from the first 60 % of that file, says what it would have earned on the rest, and makes offers to new visitors.
Run it in an empty folder: ``python coupon_campaign.py``.
"""

import numpy as np
import pandas as pd

import spuir
from spuir.logs import open_log, split_log
from spuir.training import policy_for_logs, train

COLUMNS = {"offer": "action", "bought": "reward", "day": "episode"}
"""What the columns of the file mean; all others are context."""


def write_visits(path: str, n: int = 12_000) -> None:
    """Write the file that your system would have written."""
    rng = np.random.default_rng(5)
    visits = pd.DataFrame(
        {
            "day": np.arange(n) // 400,
            "age": rng.normal(42, 14, n).round().clip(18, 90).astype(int),
            "basket": rng.gamma(2, 30, n).round(2),
            "device": rng.choice(["phone", "desktop"], n),
            "offer": rng.choice(["coupon", "free shipping", "nothing"], n),
        }
    )
    # The young like coupons, and those with full baskets like free shipping.
    coupon, shipping = visits.offer == "coupon", visits.offer == "free shipping"
    lift = np.select([coupon, shipping], [visits.age < 35, visits.basket > 70], 0)
    visits["bought"] = (rng.random(n) < 0.15 + 0.3 * lift).astype(int)
    visits.to_csv(path, index=False)


def main() -> None:
    """Learn, evaluate, decide."""
    write_visits("visits.csv")
    log = open_log("visits.csv", rename=COLUMNS)
    rewards = log.table(["reward"])["reward"].to_numpy()
    print(f"visits.csv: {len(rewards):,} visits, {rewards.mean():.1%} bought".replace("%", " %"))

    earlier, later = split_log(log, 0.4)
    bandit = train(earlier, policy_for_logs("auto"), propensity="uniform").bandit
    report = spuir.evaluate(later, {"new": bandit}, propensity="uniform")
    print(str(report).splitlines()[0])
    bandit.save("offers.spuir")

    visitors = pd.DataFrame({"age": [24, 58], "basket": [35.0, 140.0], "device": ["phone", "desktop"]})
    chances = bandit.predict_proba(visitors).max(axis=1)
    for row, offer, chance in zip(visitors.to_dict("records"), bandit.predict(visitors), chances, strict=True):
        print(f"{row}: {offer} with probability {chance:.2f}")


if __name__ == "__main__":
    main()

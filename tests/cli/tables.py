"""Tables of a shop, as someone without Python has them: a history, the customers of a night, and what they bought."""

from pathlib import Path

import numpy as np
import pandas as pd

OFFERS = ["coupon", "gift", "nothing"]


def customers(rows: int, seed: int) -> pd.DataFrame:
    """Return customers with an id, an age and a device."""
    rng = np.random.default_rng(seed)
    device = rng.choice(["phone", "desktop"], rows)
    return pd.DataFrame({"customer": [f"c{row}" for row in range(rows)], "age": rng.integers(18, 80, rows)}).assign(
        device=device
    )


def bought(people: pd.DataFrame, offers: np.ndarray, seed: int) -> np.ndarray:
    """Return who bought: a gift works on the phone, a coupon elsewhere."""
    chance = 0.1 + 0.5 * np.where(people.device == "phone", offers == "gift", offers == "coupon")
    return (np.random.default_rng(seed).random(len(people)) < chance).astype(float)


def history(path: Path, rows: int = 1_200) -> Path:
    """Write a log of random offers over four days."""
    people, rng = customers(rows, 0), np.random.default_rng(1)
    offers = rng.choice(OFFERS, rows)
    columns = {
        "offer": offers,
        "bought": bought(people, offers, 2),
        "chance": 1 / 3,
        "day": np.arange(rows) * 4 // rows,
    }
    people.drop(columns="customer").assign(**columns).to_csv(path, index=False)
    return path


ROLES = (
    *("--action-column", "offer", "--reward-column", "bought"),
    *("--propensity-column", "chance", "--episode-column", "day"),
)

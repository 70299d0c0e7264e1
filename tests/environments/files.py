"""Data files for tests: real ones where they are at hand, written ones in the same schema everywhere."""

import csv
import os
from pathlib import Path

import pytest

from spuir.base.streams import generator
from spuir.environments.uci_coupon import USER

ROOT = Path(__file__).parents[2]
COUPONS = "uci_coupon/in-vehicle-coupon-recommendation.csv"
COVERTYPE = "covertype/covertype_100k.csv.gz"
HEADER = (
    *("destination", "passanger", "weather", "temperature", "time", "coupon", "expiration"),
    *USER[:7],
    "car",
    *USER[7:],
    *("toCoupon_GEQ5min", "toCoupon_GEQ15min", "toCoupon_GEQ25min", "direction_same", "direction_opp", "Y"),
)
KINDS = ("Bar", "Carry out & Take away", "Coffee House", "Restaurant(20-50)", "Restaurant(<20)")
ANSWERS = ("never", "less1", "1~3", "")


def find(name: str) -> Path:
    """Return a real data file from the folder in SPUIR_DATA, or from ../shared/data; skip the test without it."""
    path = Path(os.environ.get("SPUIR_DATA") or ROOT.parent / "shared" / "data") / name
    if not path.is_file():
        pytest.skip(f"no {name} in the folder that SPUIR_DATA names, nor in ../shared/data")
    return path


def survey_rows(users: int = 60, rows: int = 12) -> list[dict[str, str]]:
    """Return rows in the survey's schema, in blocks by user: who never goes to a bar declines its coupon."""
    rng = generator(5, "survey")
    found = []
    for _ in range(users):
        user = {name: ANSWERS[rng.integers(4)] for name in USER} | {"gender": ("Female", "Male")[rng.integers(2)]}
        for _ in range(rows):
            kind = KINDS[rng.integers(5)]
            chance = 0.1 if kind == "Bar" and user["Bar"] == "never" else 0.7
            row = dict.fromkeys(HEADER, "1") | user | {"coupon": kind, "Y": str(int(rng.random() < chance)), "car": ""}
            found.append(row)
    return found


def write_survey(path: Path, rows: list[dict[str, str]] | None = None) -> Path:
    """Write rows in the survey's schema to ``path``, and return it."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, HEADER)
        writer.writeheader()
        writer.writerows(survey_rows() if rows is None else rows)
    return path

"""The sets that comparisons run on: the paper's three and their stand-ins, and four further ones."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spuir.reproduction.base import Scope
from spuir.reproduction.policy_runs import Setup

LOG_NAMES = ("data.txt", "data.txt.gz")
HORIZON = 1.4
"""Days that an episode lasts, as the authors' DFM-S assumes."""
DIGITS, COVERTYPE, COUPONS = "digits", "covertype", "uci-coupon"
FILES = {COVERTYPE: "covertype*.csv*", COUPONS: "in-vehicle-coupon-recommendation.csv*"}
LENGTHS = {"heterogeneous": (30, 1400), DIGITS: (20, 500), COVERTYPE: (30, 1000), COUPONS: (25, 500)}
"""N and B of the further sets."""


def synthetic(scope: Scope) -> Setup:
    """Return the paper's synthetic setting, as in the authors' code."""
    return Setup(environment="synthetic", episodes=90, batch_size=1400)


def coupon(scope: Scope) -> Setup:
    """Return the stand-in for the commercial product."""
    return Setup(environment="coupon", episodes=20, batch_size=625)


def criteo(scope: Scope, environment: str, episodes: int, batch_size: int, **world: Any) -> Setup:
    """Return a Criteo set: the user's log if the data folder has it, otherwise a new generated log for every seed.

    The models fitted to a log are cached beside it, so that it is read once.
    """
    log = _file(scope, *LOG_NAMES)
    if log is None:
        return Setup(
            environment=environment, episodes=episodes, batch_size=batch_size, world=world, seeded=("rows_seed",)
        )
    folder = os.path.dirname(log)
    cache = {"cache": folder} if os.access(folder, os.W_OK) else {}
    world = world | {"path": log} | cache
    return Setup(environment=environment, episodes=episodes, batch_size=batch_size, world=world)


def criteo_all(scope: Scope) -> Setup:
    """Return Criteo-all with N = 60 and B = 25²·N/d; the paper's rule would take 320 of 4,000 for all rows."""
    return criteo(scope, "criteo-all", 60, 750, horizon=HORIZON)


def further(scope: Scope, name: str) -> Setup | str:
    """Return one of the further sets or, where it cannot be played, the reason."""
    episodes, batch_size = LENGTHS[name]
    if name == "heterogeneous":
        return Setup(environment=name, episodes=episodes, batch_size=batch_size)
    found = table(scope, name)
    if isinstance(found, str):
        return found
    environment, world = found
    extra = {} if name == COUPONS else {"intercept": True}  # labels need an intercept
    return Setup(environment=environment, episodes=episodes, batch_size=batch_size, world=world | extra)


def table(scope: Scope, name: str) -> tuple[str, dict[str, Any]] | str:
    """Return environment and file of a real table or, where it is missing, the reason."""
    if name == DIGITS:
        return ("classification", {}) if find_spec("sklearn") else "scikit-learn is not installed"
    path = _file(scope, FILES[name])
    if path is None:
        return f"the folder of --data has no {FILES[name]}" if scope.data else "no --data was given"
    return "classification" if name == COVERTYPE else name, {"path": path}


def _file(scope: Scope, *patterns: str) -> str | None:
    """Return the first file that matches in the data folder or in one of its subfolders."""
    if scope.data is None:
        return None
    folder = Path(scope.data)
    hits = [hit for pattern in patterns for deep in ("", "*/") for hit in sorted(folder.glob(deep + pattern))]
    return next((os.fspath(hit) for hit in hits if hit.is_file()), None)

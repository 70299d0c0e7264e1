"""What the study that proposed the model reported, and whether a run of ours agrees within the noise of two seeds."""

import math
from collections.abc import Mapping
from typing import Any

from spuir.reproduction.claims import Sample, interval

SEEDS = 2
"""Seeds behind each number of the study."""
_COLUMNS = ("SBUCB", "shared", "Vowpal Wabbit", "hierarchical", "oracle", "hierarchical, kernel")
_REWARDS: Mapping[str, tuple[float | None, ...]] = {
    "news": (0.435, 0.599, 0.591, 0.609, 0.684),
    "large own effects": (0.533, 0.587, 0.617, 0.653, 0.782),
    "features explain everything": (0.415, 0.604, 0.591, 0.602, 0.641),
    "features explain nothing": (0.525, 0.387, 0.499, 0.525, 0.582),
    "nothing, 5 % replaced": (0.465, 0.313, 0.427, 0.465, 0.579),
    "five actions": (0.341, 0.341, 0.339, 0.343, 0.355),
    "low click rate": (None, 0.211, 0.211, 0.215, 0.259),
    "features per decision": (None, None, 0.647, 0.667, 0.734),
    "curved in the features": (0.268, 0.166, 0.244, 0.273, 0.469, 0.304),
}
STUDY: Mapping[str, Mapping[str, float]] = {
    world: {name: value for name, value in zip(_COLUMNS, rewards, strict=False) if value is not None}
    for world, rewards in _REWARDS.items()
}
"""Mean expected rewards of the study by world and model; SBUCB is its best regression per action."""
STUDY_NEW: Mapping[str, Mapping[str, float]] = {
    "news": {"Vowpal Wabbit": 0.81, "hierarchical": 0.88},
    "large own effects": {"Vowpal Wabbit": 0.69, "hierarchical": 0.76},
}
"""On rows whose best action is new: the share of the way from a uniform to the best choice."""


def shares(ours: Sample, best: Sample) -> Sample:
    """Return a reward as a share of the best possible one, seed by seed: most of what differs between seeds cancels."""
    values = {seed: value / best.values[seed] for seed, value in ours.values.items()}
    return Sample(name=f"{ours.name} of the oracle", values=values, runs=ours.runs)


def agreement(name: str, ours: Sample, study: float) -> dict[str, Any]:
    """Return our mean with its 95 % interval, the study's number with its noise, and whether they agree.

    The spread over our seeds tells how much a mean over two seeds varies. They agree if they differ by no more than
    both errors together.
    """
    found = interval(ours)
    error = found.high - found.estimate
    noise = error * math.sqrt(found.seeds / SEEDS)
    agrees = abs(found.estimate - study) <= math.hypot(error, noise)
    return {name: found.estimate, f"{name} ±": error, f"study's {name}": study, f"study's {name} ±": noise} | {
        f"{name} within noise": agrees
    }

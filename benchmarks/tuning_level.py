"""Do the intervals of tuning keep their promise? Run ``python -m benchmarks.tuning_level``.

Where nothing can be gained, because rewards do not depend on the action, the 95 % interval of a gain lies above 0 in
2.5 % of the cases, and the winner is called better at most as often. Where something can be gained, the interval holds
the true gain in 95 %.
"""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from spuir.base.streams import generator
from spuir.evaluation.candidates import Results, candidates
from spuir.evaluation.encoded_rows import EncodedRows, ReadRows
from spuir.evaluation.exploration import Explored, Exploring, Rehearsals
from spuir.evaluation.tune import TuneJob
from spuir.tables.encoder import Encoder
from spuir.training.engines.local import Local
from tests.evaluation.known_rows import LoggedWorld, logged

CASES, COVERED_CASES, ROWS = 400, 250, 1_500


def tuned(rows: EncodedRows, seed: int) -> tuple[TuneJob, dict[str, Any]]:
    """Return a small tuning, and its answer."""
    job = TuneJob(
        read=ReadRows(rows, Encoder.fit({"x": [0.0, 1.0]}), 0),
        chosen=candidates(["sbucb", "puir"], 6, seed),
        results=Results(None, ""),
        seed=seed,
        engine=Local(1),
        watch=lambda *_: None,
    )
    return job, job.answer("simulation", None, 0.01)


def false_gains(seed: int) -> list[tuple[bool, bool]]:
    """Return whether the interval of a gain lies above 0, and whether it is called better, where nothing is gained.

    The gains are those over the log and over the best single action; nothing where the log supports no number.
    """
    rewards = generator(seed, "benchmarks", "tuning").random(ROWS)
    _, answer = tuned(replace(logged(ROWS, seed, batch=50, tilt=0.5).rows, rewards=rewards), seed)
    known = [one for one in answer["comparisons"][:2] if one.difference_low is not None]
    return [(one.difference_low > 0, one.shown) for one in known] if len(known) == 2 else []


def covered(seed: int, fresh: LoggedWorld) -> bool:
    """Return whether the interval of the gain over the log holds the true gain, known from fresh contexts."""
    rows = logged(ROWS, seed, batch=50, tilt=0.5, binary=True).rows
    job, answer = tuned(rows, seed)
    earlier = rows.at(slice(0, len(job.learn) + len(job.compare)))
    chances = earlier.taught(answer["policy"], seed).predict_proba(fresh.rows.contexts)
    means = fresh.means.clip(0, 1)
    gain = (chances * means).sum() / (fresh.chances * means).sum() - 1
    found = answer["comparisons"][0]
    return bool(found.gain_low <= gain <= found.gain_high)


def main() -> None:
    """Print the shares of false gains, and of intervals that hold the truth."""
    # What is chosen while learning is chosen on other rows, so that it cannot bias the result, and takes most time.
    level = [Explored(Exploring(0.1, 0.01, 50), 0.5, 0.0, 0.0, 1)]
    fresh = logged(20_000, 10**6, tilt=0.5)
    with patch.object(Rehearsals, "compare", lambda *_: level):
        found = [false_gains(seed) for seed in range(CASES)]
        held = [covered(seed, fresh) for seed in range(COVERED_CASES)]
    kept = np.array([one for one in found if one])
    above, better = kept.mean(axis=0).T
    print(f"nothing to gain, {len(kept)} of {CASES} tunings with numbers")
    print(f"intervals above 0: over the log {above[0]:.1%}, over one action {above[1]:.1%}")
    print(f"called better: than the log {better[0]:.1%}, than one action {better[1]:.1%}")
    print(
        f"something to gain, {COVERED_CASES} tunings: {np.mean(held):.1%} of the intervals hold the gain over the log"
    )


if __name__ == "__main__":
    main()

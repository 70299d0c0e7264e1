"""How often tuning calls a gain positive where nothing can be gained: run ``python -m benchmarks.tuning_level``.

Rewards do not depend on the action. A gain is called positive if its 95 % interval lies above 0: 2.5 % of the cases.
"""

from dataclasses import replace
from unittest.mock import patch

import numpy as np

from spuir.base.streams import generator
from spuir.evaluation.candidates import candidates
from spuir.evaluation.encoded_rows import ReadRows
from spuir.evaluation.exploration import Explored, Exploring, Rehearsals
from spuir.evaluation.halving import Results
from spuir.evaluation.tune import TuneJob
from spuir.tables.encoder import Encoder
from spuir.training.engines.local import Local
from tests.evaluation.known_rows import logged

CASES, ROWS = 400, 1_500


def called_better(seed: int) -> list[bool]:
    """Return whether one tuning calls a gain over the log, and over the best single action, positive."""
    rewards = generator(seed, "benchmarks", "tuning").random(ROWS)
    rows = replace(logged(ROWS, seed, batch=50, tilt=0.5).rows, rewards=rewards)
    job = TuneJob(
        read=ReadRows(rows, Encoder.learn({"x": [0.0, 1.0]}), 0),
        chosen=candidates(["sbucb", "puir"], 6, seed),
        results=Results(None, ""),
        seed=seed,
        engine=Local(1),
        watch=lambda *_: None,
    )
    return [one.shown for one in job.answer("simulation", None, 0.0)["comparisons"][:2]]


def main() -> None:
    """Print the shares of false gains."""
    # What is chosen while learning is chosen on other rows, so that it cannot bias the result, and takes most time.
    level = [Explored(Exploring(0.1, 0.0, 50), 0.5, 0.0, 0.0, 1)]
    with patch.object(Rehearsals, "compare", lambda *_: level):
        found = [called_better(seed) for seed in range(CASES)]
    shares = np.mean([one for one in found if one], axis=0)
    print(f"{len(found)} tunings: over the log {shares[0]:.1%}, over the best single action {shares[1]:.1%}")


if __name__ == "__main__":
    main()

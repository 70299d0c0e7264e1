"""Standardised contexts, against the formula written out."""

import numpy as np
import pytest

from spuir.features.scaling import BLOCK_NUMBERS, CLIP, Scaling

MANY = BLOCK_NUMBERS // 2 + 3
"""Rows of five columns that take several blocks, the last of them a short one."""


def scaled(scaling: Scaling, contexts: np.ndarray, factor: float) -> np.ndarray:
    z = (contexts - (scaling.origin + scaling.mean)) * (factor / scaling.scale)
    return np.clip(z, -CLIP * factor, CLIP * factor)


@pytest.mark.parametrize("n", [0, 1, 7, MANY])
@pytest.mark.parametrize(("factor", "further"), [(1.0, 0), (0.25, 1), (0.1, 3)])
def test_blocks_are_scaled_as_the_formula_says(n: int, factor: float, further: int) -> None:
    rng = np.random.default_rng(0)
    offsets = [0.0, 1.7e9, -3.0, 0.0, 1e-8]
    sample = rng.standard_t(2, (500, 5)) * [1.0, 1e5, 1e-6, 1e3, 1.0] + offsets
    scaling = Scaling.of(sample, np.ones(500))
    contexts = sample[rng.integers(500, size=n)]
    out = np.full((n, 5 + further), np.nan)
    scaling.write(contexts, factor, out)
    np.testing.assert_array_equal(out[:, :5], scaled(scaling, contexts, factor))


def test_what_is_not_finite_is_not_hidden_by_clipping() -> None:
    contexts = np.random.default_rng(1).standard_normal((MANY, 5))
    scaling = Scaling.of(contexts, np.ones(MANY))
    places = [(0, 0, np.inf), (MANY // 2, 3, -np.inf), (MANY - 1, 4, np.nan)]
    for row, column, value in places:
        contexts[row, column] = value
    found = scaling.apply(contexts)
    assert np.argwhere(np.isnan(found)).tolist() == [[row, column] for row, column, _ in places]

"""Models saved by version 0.1 load, and decide with the same probabilities."""

import json
from pathlib import Path

import numpy as np
import pytest

import spuir

FOLDER = Path(__file__).parents[1] / "fixtures" / "v0_1"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())


@pytest.mark.parametrize("name", EXPECTED)
def test_a_model_of_version_0_1_has_the_same_probabilities_and_coefficients(name):
    expected = EXPECTED[name]
    bandit = spuir.load(FOLDER / f"{name}.spuir")
    X = expected["rows"] if "rows" in expected else np.array(expected["contexts"])

    assert bandit.n_episodes_ == expected["episodes"]
    np.testing.assert_allclose(bandit.predict_proba(X), expected["probabilities"], rtol=1e-9, atol=1e-12)
    if "coefficients" in expected:
        np.testing.assert_allclose(bandit.coefficients_, expected["coefficients"], rtol=1e-9, atol=1e-12)


def test_every_policy_of_version_0_1_has_a_saved_model():
    assert {path.stem for path in FOLDER.glob("*.spuir")} == set(EXPECTED)
    assert set(spuir.list_policies()) >= set(EXPECTED) - {"live-actions", "encoder"}

"""Names of older versions."""

from pathlib import Path

import numpy as np
import pytest

import spuir
from spuir.errors import SnapshotError
from spuir.storage import migration, snapshot
from spuir.storage.migration import Renames

V0_1 = Path(__file__).parents[1] / "fixtures" / "v0_1" / "puir.spuir"


def save_with_old_names(path: Path, version: str) -> None:
    """Save the fixture as a version would that had other names for a policy, a parameter and two fields."""
    header, arrays = snapshot.read(V0_1)
    policy = header["policy"]
    policy["name"] = "imputing"
    policy["parameters"]["width"] = policy["parameters"].pop("alpha")

    def old(text: str) -> str:
        return text.replace("observed", "executed").replace("table", "moments")

    def renamed(tree):
        if isinstance(tree, dict):
            return {old(name): renamed(item) for name, item in tree.items()}
        return [renamed(item) for item in tree] if isinstance(tree, list) else old(tree) if tree in arrays else tree

    header |= {"spuir": version, "state": renamed(header["state"])}
    snapshot.write(path, header, {old(name): array for name, array in arrays.items()})


@pytest.fixture
def renames(monkeypatch) -> None:
    first = Renames(policies={"imputing": "puir"}, fields={"executed": "observed"})
    second = Renames(parameters={"width": "alpha"}, fields={"moments": "table"})
    monkeypatch.setattr(migration, "RENAMED", {(0, 1): first, (0, 3): second})


@pytest.mark.usefixtures("renames")
def test_old_names_load_with_the_same_probabilities(tmp_path: Path) -> None:
    save_with_old_names(tmp_path / "old.spuir", "0.1.7")
    bandit, same = spuir.load(tmp_path / "old.spuir"), spuir.load(V0_1)
    contexts = np.random.default_rng(0).standard_normal((5, same.n_features_in_))
    assert bandit.policy_ == same.policy_
    np.testing.assert_array_equal(bandit.predict_proba(contexts), same.predict_proba(contexts))


@pytest.mark.usefixtures("renames")
def test_a_newer_file_keeps_its_names(tmp_path: Path) -> None:
    save_with_old_names(tmp_path / "new.spuir", "0.2.0")
    with pytest.raises(spuir.errors.UnknownNameError, match="imputing"):
        spuir.load(tmp_path / "new.spuir")


def test_a_broken_version_is_refused(tmp_path: Path, renames: None) -> None:
    save_with_old_names(tmp_path / "broken.spuir", "one")
    with pytest.raises(SnapshotError, match="header of a saved bandit is complete"):
        spuir.load(tmp_path / "broken.spuir")

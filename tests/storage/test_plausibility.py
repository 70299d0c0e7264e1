"""Forged model files: sizes beyond any use and sums that no rows have are refused in one sentence, when loaded."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spuir
from spuir.core.solving import semi_definite
from spuir.errors import SnapshotError
from spuir.storage import snapshot
from tests.bandits import taught


def forge(bandit: spuir.Bandit, folder: Path, parameters: dict[str, Any], arrays: dict[str, Any]) -> Path:
    """Write a model with other parameters or arrays, and a digest that fits."""
    bandit.save(folder / "honest")
    header, content = snapshot.read(folder / "honest")
    header["policy"]["parameters"] |= parameters
    snapshot.write(folder / "forged", header, content | arrays)
    return folder / "forged"


@pytest.mark.parametrize(
    ("policy", "parameters"),
    [
        ("blts-b", {"propensity_draws": 10**9}),
        ("puir-kernel", {"n_features": 10**8}),
        ("auto", {"landmarks": 10**8}),
        ("auto", {"levels": 10**9}),
        ("spuir", {"sketch_size": 10**12}),
    ],
)
@pytest.mark.parametrize("learned", [False, True])
def test_sizes_beyond_any_use(policy: str, parameters: dict[str, Any], learned: bool, tmp_path: Path) -> None:
    bandit = taught(policy) if learned else spuir.Bandit(policy, 3)
    (name,) = parameters
    with pytest.raises(SnapshotError, match=rf"got {name}=[\d,]+, but a saved policy has at most"):
        spuir.load(forge(bandit, tmp_path, parameters, {}))


def test_sums_beyond_any_machine(tmp_path: Path) -> None:
    bandit = spuir.Bandit("puir-kernel", 5_000)
    with pytest.raises(SnapshotError, match="sums of a model have at most"):
        spuir.load(forge(bandit, tmp_path, {"n_features": 20_000}, {}))


@pytest.mark.parametrize("name", ["puir", "spuir", "auto", "blts-b", "puir-kernel", "dfm-s"])
def test_sums_that_no_rows_have(name: str, tmp_path: Path) -> None:
    given = {"click": np.ones(60), "conversion": np.ones(60), "elapsed": np.ones(60)} if name == "dfm-s" else {}
    bandit = taught(name, **given)
    bandit.save(tmp_path / "m")
    _, arrays = snapshot.read(tmp_path / "m")
    tables = [one for one in arrays if one in ("observed.table", "imputed.table", "shared", "information")]
    assert tables
    for table in tables:
        for place, value in ((0, -1e6), (1, 1e9)):  # an energy below 0; entries that are not symmetric
            wrong = arrays[table].copy()
            wrong.flat[place] = value
            with pytest.raises(SnapshotError, match="sums that no rows have, but sums over rows are positive semi"):
                spuir.load(forge(bandit, tmp_path, {}, {table: wrong}))


def test_a_matrix_by_hand() -> None:
    good = np.array([[[2.0, 1.0], [1.0, 2.0]], [[1.0, 1.0], [1.0, 1.0]]])  # eigenvalues 1, 3 and 0, 2
    assert semi_definite(good, 1e-9) and semi_definite(np.zeros((2, 3, 3)), 0.0)
    assert not semi_definite(good - 0.5 * np.eye(2), 1e-9)  # −0.5 among them
    assert semi_definite(good - 0.5 * np.eye(2), 0.6)
    assert not semi_definite(np.array([[[1.0, 0.1], [0.0, 1.0]]]), 1e-9)

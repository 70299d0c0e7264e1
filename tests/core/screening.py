"""What the tests of screening share: exact widths and winners to compare with, and every way of finding them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spuir.base.records import Floats, Mask
from spuir.core import screening, ties
from spuir.core.solving import Solved, solve
from spuir.core.ties import TIE, Winners

WAYS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "action by action": {"COST_PER_ACTION": 0.0, "COST_PER_PAIR": 0.0},
    "single, then action by action": {"COST_PER_ACTION": 0.0, "COST_PER_PAIR": 1.0},
    "single, then all together": {"COST_PER_ACTION": 1e18},
    "all together": {"COST_PER_ACTION": 1e18, "MAX_SINGLE_ERROR": 0.0},
    "context by context": {"CACHE_BYTES": 1, "MIN_CHUNK_ROWS": 1},
    "a context a block": {"BLOCK_BYTES": 1},
    "seven contexts a block, the bound given up at once": {"BLOCK_BYTES": 7 * 8 * 25, "MAX_OPEN_SHARE": 0.0},
    "seven contexts a block, the bound kept": {"BLOCK_BYTES": 7 * 8 * 25, "MAX_OPEN_SHARE": 2.0},
}
"""Settings of the screening module (and the block size of ties) that force each branch."""


def force(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Take one of the ways until the end of the test."""
    for name, value in WAYS[way].items():
        module = ties if name == "BLOCK_BYTES" else screening
        assert hasattr(module, name)
        monkeypatch.setattr(module, name, value)


def extended_widths(upper: Floats, contexts: Floats) -> Any:
    """Return ‖s‖ in the inverse of UᵀU (n,) by substitution, in the longest floating point format there is."""
    U, s = np.triu(upper).astype(np.longdouble), contexts.T.astype(np.longdouble)
    y = np.zeros_like(s)
    for i in range(len(U)):
        y[i] = (s[i] - U[:i, i] @ y[:i]) / U[i, i]
    return np.sqrt((y * y).sum(axis=0))


def turned(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a symmetric matrix of these eigenvalues."""
    turn, _ = np.linalg.qr(rng.normal(size=(len(values), len(values))))
    return (turn * values) @ turn.T


def collinear(p: int, condition: float, rng: np.random.Generator) -> np.ndarray:
    """Return the Gram matrix of rows whose first and last columns are the same but for a little noise."""
    rows = rng.normal(size=(3 * p, p))
    rows[:, 0] = rows[:, -1] + rng.normal(size=3 * p) / np.sqrt(condition)
    return rows.T @ rows + np.eye(p) / condition


def graded(p: int, condition: float, rng: np.random.Generator, downwards: bool) -> np.ndarray:
    """Return a tame matrix whose rows and columns are scaled from 1 to √condition."""
    scale = np.sqrt(np.geomspace(1.0, condition, p))
    scale = scale[::-1] if downwards else scale
    return scale[:, None] * turned(np.linspace(1.0, 2.0, p), rng) * scale


KINDS: dict[str, Callable[[int, float, np.random.Generator], np.ndarray]] = {
    "spread": lambda p, condition, rng: turned(np.geomspace(1.0, condition, p), rng),
    "one short axis": lambda p, condition, rng: turned(np.where(np.arange(p) == 0, 1.0, condition), rng),
    "one long axis": lambda p, condition, rng: turned(np.where(np.arange(p) == 0, condition, 1.0), rng),
    "diagonal": lambda p, condition, rng: np.diag(np.geomspace(1.0, condition, p)),
    "graded up": lambda p, condition, rng: graded(p, condition, rng, downwards=False),
    "graded down": lambda p, condition, rng: graded(p, condition, rng, downwards=True),
    "collinear": collinear,
}


def probes(upper: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return contexts along the singular directions of a factor, near them, anywhere, and of uneven entries."""
    p = len(upper)
    _, _, axes = np.linalg.svd(upper)
    ends = axes[[0, -1]]
    anywhere = rng.normal(size=(10, p))
    near = ends[rng.integers(2, size=10)] * (1.0 + 1e-7 * rng.normal(size=(10, p))) + 1e-4 * ends[::-1][:1]
    parts = [ends, near, anywhere, anywhere @ upper, anywhere @ upper.T @ upper, 10.0 ** rng.uniform(-9, 0, (10, p))]
    parts += [np.eye(p)[[0, -1]], axes[rng.integers(p, size=5)]]
    rows = np.concatenate(parts)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def single_case(kind: str, p: int, condition: float, seed: int = 0) -> tuple[Solved, np.ndarray, Any]:
    """Return a factored matrix, contexts of norm one, and their widths in extended precision."""
    rng = np.random.default_rng([p, int(np.log10(condition)), seed])
    psi = KINDS[kind](p, condition, rng)
    solved = solve((psi + psi.T)[None] / 2, np.zeros((1, p)))
    contexts = probes(np.triu(solved.upper[0]), rng)
    return solved, contexts, extended_widths(solved.upper[0], contexts)


def tie_table(found: Winners) -> Mask:
    """Return who wins or ties (M, n)."""
    table = np.zeros((len(found.shares), len(found.winner)), np.bool_)
    table[found.winner, np.arange(len(found.winner))] = True
    table[:, found.columns] = found.shares > 0
    return table


def check_winners(found: Winners, means: Floats, solved: Solved, alpha: float, contexts: Floats) -> int:
    """Assert that winners and ties are those of means (M, n) and exact widths; return how many contexts have ties.

    Means are −inf where ineligible. A context is passed over, and not counted, if two ways of rounding could disagree
    about a tie.
    """
    bonus = alpha * np.sqrt(screening.squared_widths(solved, contexts))
    scores = means + bonus
    top = scores.max(axis=0)
    spread = np.abs(np.where(np.isfinite(means), means, 0.0)).max(axis=0) + bonus.max(axis=0)
    doubtful = (np.abs(top - scores - TIE * np.abs(top)) < 1e-13 * spread).any(axis=0)
    expected = Winners.of(scores)
    np.testing.assert_array_equal(tie_table(found)[:, ~doubtful], tie_table(expected)[:, ~doubtful])
    np.testing.assert_array_equal(found.winner[~doubtful], expected.winner[~doubtful])
    # Columns are in order, and none is there without a tie in it.
    assert np.all(np.diff(found.columns) > 0) and np.all((found.shares > 0).sum(axis=0) > 1)
    return int((~doubtful[expected.columns]).sum())

"""What a call costs around its arithmetic: an update, text labels, ``predict``, and deciding one row at a time."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy.linalg.blas import daxpy
from scipy.linalg.lapack import dposv

from benchmarks.naive import NaivePolicy
from benchmarks.shapes import Floats, Rows, Shape, draw_rows
from benchmarks.timing import Task
from spuir import Bandit
from spuir.base.streams import generator

TEXT_LABELS = ("list", "object array", "pandas Categorical", "Arrow dictionary", "a decision's own labels")
"""Forms of a column of text labels that are raced against integer labels."""
EPISODES = 3
"""Episodes that a bandit has learned before it decides."""
ONE_ROW_CALLS = 50
"""Rows decided by one task, each in a call of its own."""


def bare_learner(shape: Shape, imputation_rate: float, discount: float) -> Callable[[Rows], Floats]:
    """Return the bare form of an update with exact imputation, ridge 1: rows in, coefficients (M, d) out.

    Products, complements, discounts and factors by the fastest calls known to us, without any check, label or record.
    """
    m, d = shape.actions, shape.dim
    others, size = 1.0 - np.eye(m), m * d * (d + 1)
    observed, imputed, theta = np.zeros((m, d * (d + 1))), np.zeros((m, d * (d + 1))), np.zeros((m, d))

    def learn(rows: Rows) -> Floats:
        nonlocal observed, imputed, theta
        order, start = rows.actions.astype(np.uint8).argsort(kind="stable"), 0
        rewards, counts = rows.rewards.take(order), np.bincount(rows.actions, minlength=m).tolist()
        seen, room = np.empty_like(observed), np.empty((max(counts), d))
        for sums, count in zip(seen, counts, strict=True):
            own = slice(start, start + count)
            S = rows.contexts.take(order[own], axis=0, out=room[:count], mode="clip")
            S.T.dot(S, sums[: d * d].reshape(d, d))
            rewards[own].dot(S, sums[d * d :])
            start += count
        hidden = others.dot(seen)
        np.matvec(hidden[:, : d * d].reshape(m, d, d), theta, out=hidden[:, d * d :])
        daxpy(observed.reshape(size), seen.reshape(size))
        daxpy(imputed.reshape(size), hidden.reshape(size), a=discount)
        observed, imputed, total = seen, hidden, seen.copy()
        daxpy(imputed.reshape(size), total.reshape(size), a=imputation_rate)
        total[:, : d * d : d + 1] += 1.0
        theta = total[:, d * d :].copy()
        for own, solution in zip(total, theta, strict=True):
            dposv(own[: d * d].reshape(d, d).T, solution, 1, 1, 1)  # by position: lower, both overwritten
        return theta

    return learn


def label_tasks(shape: Shape, make: Callable[[Any], Bandit]) -> dict[str, Task]:
    """Return tasks that learn the same episode with integer labels and with every form of text labels.

    ``make`` builds an untrained bandit for a number of actions or for labels. Every task has a bandit of its own and
    all of them receive the same actions: those that an untrained policy draws, uniformly.
    """
    names = [f"coupon {j}" for j in range(shape.actions)]
    rows, bandits = draw_rows(shape, 1), {form: make(names) for form in TEXT_LABELS}
    own = bandits["a decision's own labels"].decide(rows.contexts).actions
    text = [str(label) for label in own]
    columns: dict[str, Any] = {
        "list": text,
        "object array": np.array(text, dtype=object),
        "pandas Categorical": pd.Categorical(text, categories=names),
        "Arrow dictionary": pa.array(text).dictionary_encode(),
        "a decision's own labels": own,
    }
    codes = np.array([names.index(label) for label in text])

    def learn(made: Bandit, actions: Any) -> Task:
        return lambda: made.partial_fit(rows.contexts, actions, rows.rewards, allow_repeat=True)

    tasks = {"integers": learn(make(shape.actions), codes)}
    tasks |= {form: learn(bandits[form], columns[form]) for form in TEXT_LABELS}
    check_labels(tasks)
    return tasks


def check_labels(tasks: dict[str, Task]) -> None:
    """Assert that all forms of labels lead to the same coefficients."""
    learned: list[Any] = [task() for task in tasks.values()]
    for made in learned[1:]:
        np.testing.assert_allclose(made.coefficients_, learned[0].coefficients_, rtol=1e-12, atol=1e-12)


def bare_decision(paper: NaivePolicy, seed: int = 0) -> Callable[[Floats], int]:
    """Return the bare NumPy form of deciding one row (d,): scores, argmax and one uniform, the roots precomputed."""
    m, d, alpha = paper.n_actions, paper.dim, paper.alpha
    theta = np.array([paper.theta(j) for j in range(m)])
    roots = np.array([np.linalg.inv(np.linalg.cholesky(paper.psi(j, paper.gamma(j)))).T for j in range(m)])
    stacked = np.ascontiguousarray(roots.transpose(1, 0, 2)).reshape(d, m * d)
    rng = generator(seed, "benchmarks", "one row")

    def decide(x: Floats) -> int:
        projected = (x @ stacked).reshape(m, d)
        scores = theta @ x + alpha * np.sqrt(np.vecdot(projected, projected))
        rng.random()  # splits ties, of which there are none here
        return int(np.argmax(scores))

    return decide


def one_row_tasks(made: Bandit, paper: NaivePolicy, contexts: Floats) -> dict[str, Task]:
    """Return tasks that decide rows one by one: ours, with exact propensities, and the bare form."""
    bare = bare_decision(paper)
    alone = [contexts[i : i + 1].copy() for i in range(ONE_ROW_CALLS)]
    vectors = [row[0] for row in alone]
    expected = [bare(x) for x in vectors]
    assert [int(made.decide(row).actions[0]) for row in alone] == expected, "the bare form decides otherwise"

    def ours() -> None:
        for row in alone:
            made.decide(row)

    def plain() -> None:
        for x in vectors:
            bare(x)

    return {"decide, one row": ours, "bare NumPy, one row": plain}

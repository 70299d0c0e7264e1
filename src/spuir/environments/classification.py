"""Any labelled table as a bandit: actions are the labels, and the right one earns a reward of 1."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from spuir.base import streams
from spuir.base.parameters import COUNT, FLAG, SEED, TEXT, UNIT, Rule, optional, parameter, parameters_of
from spuir.base.records import Codes, Feedback, Floats, Mask, Rounds
from spuir.environments.base import Environment, derived
from spuir.environments.csv_files import PATH, Numbers, at, file_stamp, is_number, place_of, read_names, read_rows
from spuir.errors import InputError, MissingExtraError

FLIPS = Rule("a number in [0, 0.5]", lambda v: UNIT.test(v) and v <= 0.5)


@dataclass(frozen=True)
class Labelled:
    """A labelled table: columns (n, d), codes of the labels (n,), and the labels themselves."""

    columns: Floats
    codes: Codes
    labels: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Classification(Environment):
    """A labelled table (scikit-learn's digits, or a CSV file): reward 1 for a row's own label, 0 for others.

    Notes
    -----
    Actions are the labels of the whole table, in order (by value where all are numbers); ``labels`` has their
    names, and ``n_actions`` and ``dim`` follow from the table. Every column is standardised over the rows in use,
    and one that never changes is 0 throughout; ``intercept`` appends a column of ones.

    Rows are drawn *with replacement*: an environment keeps no position, so an episode depends on its generator alone,
    and no policy exhausts the table. The true rewards of all actions are known; ``noise`` flips each of them
    independently. The seed only chooses the rows that ``max_rows`` keeps.
    """

    n_actions: int = derived("number of labels in the table (M)")
    dim: int = derived("number of context columns (d)")
    seed: int = parameter(0, "seed of the choice of rows that max_rows keeps", SEED)
    path: str | None = parameter(
        None, "a CSV file of numbers with a label column, plain or gzip; None is scikit-learn's digits", optional(PATH)
    )
    label: str | None = parameter(None, "name of the label column of the file; None is the last", optional(TEXT))
    header: bool = parameter(True, "the first row of the file holds the names of the columns", FLAG)
    max_rows: int | None = parameter(None, "use only this many rows, chosen at random by the seed", optional(COUNT))
    intercept: bool = parameter(False, "append a column of ones to the contexts", FLAG)
    noise: float = parameter(0.0, "probability with which each action's reward is flipped", FLIPS)

    table: Labelled = field(init=False, repr=False, compare=False)

    name: ClassVar[str] = "classification"

    def _settle(self, rng: Generator) -> None:
        stamp = None
        if self.path is not None:
            self._put(path=os.fspath(self.path))
            stamp = file_stamp(self.path)
        seed = None if self.max_rows is None else self.seed
        table = prepared(self.path, self.label, self.header, self.max_rows, self.intercept, seed, stamp)
        self._put(table=table, n_actions=len(table.labels), dim=table.columns.shape[1])

    def __reduce__(self) -> Any:
        """Pickle the parameters only: the other process reads the table once instead of receiving it each time."""
        return partial(type(self), **parameters_of(self)), ()

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the actions, in order."""
        return self.table.labels

    def draw(self, n: int, rng: Generator) -> Rounds:
        """Draw n rows with replacement; the payload (n,) is the code of each one's label."""
        rows = rng.integers(len(self.table.codes), size=n)
        return Rounds(contexts=self.table.columns[rows], payload=self.table.codes[rows])

    def _hits(self, rounds: Rounds) -> Mask:
        """Return the mask (n, M) of each row's label."""
        return np.asarray(rounds.payload)[:, None] == np.arange(self.n_actions)

    def expected_rewards(self, rounds: Rounds) -> Floats:
        """Return 1 − noise for the row's label and noise for other actions (n, M)."""
        return np.where(self._hits(rounds), 1.0 - self.noise, float(self.noise))

    def feedback(self, rounds: Rounds, actions: Codes, rng: Generator) -> Feedback:
        """Return 1 for the row's label and 0 for others, each flipped with probability ``noise``."""
        executed = self._executed(rounds, actions)
        flips = rng.random((len(rounds), self.n_actions)) < self.noise
        rewards = (self._hits(rounds) ^ flips).astype(np.float64)
        return Feedback(rewards=rewards[executed], all_rewards=rewards)


@lru_cache(maxsize=8)
def prepared(
    path: str | None,
    label: str | None,
    header: bool,
    max_rows: int | None,
    intercept: bool,
    seed: int | None,
    stamp: tuple[int, int] | None,
) -> Labelled:
    """Return the standardised table; environments with equal parameters share it."""
    table = digits() if path is None else read_labelled(path, label, header, stamp)
    columns, codes = table.columns, table.codes
    if max_rows is not None and seed is not None and max_rows < len(codes):
        rng = streams.generator(seed, "environment", "rows", Classification.name)
        rows = np.sort(rng.choice(len(codes), max_rows, replace=False))
        columns, codes = columns[rows], codes[rows]
    spread = columns.std(axis=0)
    # The deviation of a constant column may be rounding error; scaled up, it would look like a signal.
    constant = np.ptp(columns, axis=0) == 0
    columns = np.where(constant, 0.0, (columns - columns.mean(axis=0)) / np.where(constant, 1.0, spread))
    if intercept:
        columns = np.column_stack([columns, np.ones(len(columns))])
    columns.flags.writeable = codes.flags.writeable = False
    return Labelled(columns, codes, table.labels)


def digits() -> Labelled:
    """Return scikit-learn's table of handwritten digits: 1,797 rows, 64 columns, 10 labels."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        rule, remedy = "the built-in table is scikit-learn's", 'run pip install "spuir[data]", or give path='
        raise MissingExtraError("environment 'classification'", "no scikit-learn", rule, remedy) from None
    table: Any = load_digits()
    return Labelled(table.data.astype(np.float64), table.target.astype(np.intp), tuple(map(str, range(10))))


@lru_cache(maxsize=2)
def read_labelled(path: str, label: str | None, header: bool, stamp: tuple[int, int] | None) -> Labelled:
    """Read a CSV file of numbers with one column of labels.

    Parameters
    ----------
    path
        The file, plain or gzip.
    label
        Name of the label column, None for the last.
    header
        Whether the first row holds names.
    stamp
        Time and size of the file: a changed file is read again.
    """
    rows = read_rows(path)
    place = -1
    if header:
        names = read_names(path, rows)
        place = -1 if label is None else place_of(path, names, label)
    elif label is not None:
        rule = "a file without a header has no names"
        raise InputError("label", repr(label), rule, "leave label out and put the labels in the last column")
    numbers, texts = Numbers(path), list[str]()
    for number, cells in rows:
        label_text = cells.pop(place).strip()
        if not label_text or not cells:
            rule, remedy = "every row has numbers and a label", "complete or drop that row"
            raise InputError(at(path, number), "no numbers" if label_text else "an empty label", rule, remedy)
        numbers.add(number, cells)
        texts.append(label_text)
    return _coded(path, numbers, texts)


def _coded(path: str, numbers: Numbers, texts: Sequence[str]) -> Labelled:
    """Return the table with labels as codes, or refuse labels that cannot be actions."""
    if not texts:
        raise InputError(f"file {path!r}", "no rows below the names", "a table needs rows", "check the file")
    known = set(texts)
    labels = sorted(known, key=float) if all(map(is_number, known)) else sorted(known)
    if len(labels) < 2 or len(labels) > max(2, len(texts) // 2):
        rule = "a label column repeats at least two labels, twice each on average"
        got = f"{len(labels)} labels in {len(texts)} rows"
        raise InputError(f"file {path!r}", got, rule, "name the label column")
    codes = {text: code for code, text in enumerate(labels)}
    return Labelled(numbers.table(), np.array([codes[text] for text in texts], dtype=np.intp), tuple(labels))

"""Rows of Criteo's conversion log (``data.txt``): reads the requested campaigns block by block, in bounded memory.

One row is one ad that was clicked: 19 cells between tabs, no header, in order of time. ``click_ts`` and ``conv_ts`` are
seconds on one clock, the second empty if nothing was bought; then ``int1`` to ``int8``, then ``cat1`` to ``cat9``,
hashes of eight hexadecimal digits; ``cat3`` is the campaign.

NumPy splits, compares and converts whole blocks of bytes. This is faster than a CSV reader, because rows of other
campaigns only need the right number of cells (ADR 18). A row that breaks a rule is left out, counted, and reported with
its line.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from string import hexdigits
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from spuir.base import streams
from spuir.base.records import Floats, Mask
from spuir.environments.csv_files import at, opened, shown
from spuir.errors import InputError, UnknownNameError

Integers = NDArray[np.int64]
Bytes = NDArray[np.uint8]

NAMES = ("click_ts", "conv_ts", *(f"int{k}" for k in range(1, 9)), *(f"cat{k}" for k in range(1, 10)))
CLICK, CONVERSION, INTS, CATEGORIES = 0, 1, slice(2, 10), slice(10, 19)
CAMPAIGN = NAMES.index("cat3")
WIDTH = len(NAMES)
FILLED = (-1, 0, -1, 0, -1, 0, 0, 0)
"""Values for empty int1 to int8, as in the code of the paper's group."""
ABSENT = -1
"""No conversion; no category."""

LARGEST_SHARE = 0.01
"""A file with a larger share of broken rows is refused."""
REPORTED = 5
"""How many broken rows a warning describes."""
BLOCK = 1 << 20
LONGEST_ROW = 1 << 16
TAB, NEWLINE, RETURN, MINUS, ZERO = b"\t\n\r-0"
DIGITS = 18
"""Digits that certainly fit into 64 bits."""
HASH = 8
HEX = np.full(256, 255, np.uint8)
HEX[list(b"0123456789abcdef")] = HEX[list(b"0123456789ABCDEF")] = range(16)


@dataclass(frozen=True, kw_only=True, eq=False)
class CampaignRows:
    """Rows of one campaign in the order of the file.

    ``lines`` (n,) their numbers in the file; ``clicked`` (n,) and ``converted`` (n,) in seconds, the latter −1 without
    a conversion; ``ints`` (n, 8), filled where they were empty; ``categories`` (n, 9), −1 where they were empty.
    """

    lines: Integers
    clicked: Integers
    converted: Integers
    ints: Integers
    categories: Integers

    def __len__(self) -> int:
        """Return n."""
        return len(self.lines)

    def take(self, rows: Any) -> Self:
        """Return some of the rows, by mask, place or slice."""
        return type(self)(**{item.name: getattr(self, item.name)[rows] for item in fields(self)})

    @classmethod
    def joined(cls, parts: Sequence["CampaignRows"]) -> Self:
        """Return the rows of several parts, one after another."""
        names = [item.name for item in fields(cls)]
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


class Problem(NamedTuple):
    """What is wrong with one row."""

    line: int
    got: str
    rule: str

    def __str__(self) -> str:
        """Return it as one clause."""
        return f"line {self.line}: {self.got}, but {self.rule}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Reading:
    """The rows of some campaigns in a file, in the order of the request.

    ``kept`` has the rows of each, at most ``max_rows``; ``counts`` (M,) are the numbers of valid rows. The file has
    ``total`` rows, of which ``broken`` were left out; ``problems`` describe the first of these. The last click of all
    campaigns was at ``last`` seconds.
    """

    kept: tuple[CampaignRows, ...]
    counts: Integers
    total: int
    broken: int
    problems: tuple[Problem, ...]
    last: int


def read_campaigns(path: str, campaigns: Sequence[str], *, max_rows: int, seed: int) -> Reading:
    """Read the rows of ``campaigns`` from a file that may be much larger than memory.

    Parameters
    ----------
    path
        The file, plain or gzip (detected from its first bytes), with Unix or Windows line ends. Skips blank lines.
    campaigns
        Their hashes. A campaign without a valid row is refused.
    max_rows
        How many rows of each campaign to keep. If there are more, this many are drawn at random, and stay in order.
    seed
        Seed of that draw.

    Notes
    -----
    Broken rows are left out with a warning that counts them and describes the first. The file is refused if more than
    1 % of all rows have missing or extra cells, or more than 1 % of the campaigns' rows have unreadable cells.
    """
    wanted = _tokens("".join(campaigns).encode())
    search = _Search(path, wanted, [_Sample(max_rows, _drawing(seed, name)) for name in campaigns])
    with opened(path) as file:
        for block in _blocks(path, file):
            search.read(block)
            if not search.whole:
                search.refuse()
    return search.result(campaigns)


def _drawing(seed: int, campaign: str) -> Generator:
    return streams.generator(seed, "environment", "criteo", "sample", campaign)


def _tokens(text: bytes) -> NDArray[np.uint64]:
    """Return consecutive hashes of eight digits as one number each."""
    return np.frombuffer(text.lower(), np.uint64)


def _blocks(path: str, file: Any) -> Iterator[Bytes]:
    """Yield the file in blocks of complete lines."""
    rest = b""
    while chunk := file.read(BLOCK):
        end = chunk.rfind(b"\n") + 1
        if end:
            yield np.frombuffer(rest + chunk[:end], np.uint8)
            rest = b""
        rest += chunk[end:]
        if len(rest) > LONGEST_ROW:
            got, rule = f"more than {LONGEST_ROW} bytes without a line end", f"a row is {WIDTH} short cells"
            raise InputError(f"file {path!r}", got, rule, "give Criteo's data.txt, out of its archive")
    if rest:
        yield np.frombuffer(rest + b"\n", np.uint8)


@dataclass(frozen=True, eq=False)
class _Lines:
    """A block of bytes split at tabs and line ends.

    ``begins`` and ``ends`` (n,) are the bounds of each line, without its line end. ``sound`` (n,) marks lines with 19
    cells, ``blank`` (n,) empty ones. ``tabs`` has the ends of the 19 cells of each sound line.
    """

    block: Bytes
    begins: Integers
    ends: Integers
    sound: Mask
    blank: Mask
    tabs: Integers

    @classmethod
    def of(cls, block: Bytes) -> "_Lines":
        marks = np.flatnonzero(block <= NEWLINE)
        kinds = block[marks]
        if (kinds < TAB).any():  # control characters are part of a cell, which will be refused
            marks, kinds = marks[kinds >= TAB], kinds[kinds >= TAB]
        last = np.flatnonzero(kinds == NEWLINE)
        ends = marks[last]
        begins = np.concatenate([[0], ends[:-1] + 1])
        # Windows ends lines with two bytes. The first line may be empty, which the second test covers.
        ends = ends - ((block[ends - 1] == RETURN) & (ends > begins))
        sound = np.diff(last, prepend=-1) == WIDTH
        tabs = marks if sound.all() else marks[(last[sound, None] - np.arange(WIDTH)[::-1]).ravel()]
        tabs = tabs.reshape(-1, WIDTH)
        tabs[:, -1] = ends[sound]
        return cls(block, begins, ends, sound, ends == begins, tabs)

    def text(self, line: int) -> bytes:
        """Return one line."""
        return self.block[self.begins[line] : self.ends[line]].tobytes()


class _Sample:
    """Rows drawn at random from a stream of unknown length: each gets a random key, and the smallest keys win."""

    def __init__(self, limit: int, rng: Generator) -> None:
        self.limit, self.count = limit, 0
        self._rng, self._keys, self._rows = rng, list[Floats](), list[CampaignRows]()
        self._held, self._highest = 0, 1.0

    def add(self, rows: CampaignRows) -> None:
        """Add rows of the stream, in blocks of any size."""
        self.count += len(rows)
        keys = self._rng.random(len(rows))
        low = keys < self._highest
        if low.any():
            self._keys.append(keys[low])
            self._rows.append(rows.take(low))
            self._held += int(low.sum())
        # Dropping rows only at twice the limit keeps copies rare, however small the blocks are.
        if self._held > 2 * self.limit:
            self._draw()

    def _draw(self) -> None:
        keys = np.concatenate(self._keys)
        kept = np.sort(np.argpartition(keys, self.limit - 1)[: self.limit])
        self._keys, self._rows = [keys[kept]], [CampaignRows.joined(self._rows).take(kept)]
        self._held, self._highest = self.limit, float(keys[kept].max())

    def rows(self) -> CampaignRows:
        """Return the rows drawn, in their order."""
        if self._held > self.limit:
            self._draw()
        return CampaignRows.joined(self._rows)


@dataclass(eq=False)
class _Search:
    """What has been read so far."""

    path: str
    wanted: NDArray[np.uint64]
    samples: Sequence[_Sample]
    lines: int = 0
    total: int = 0
    whole: int = 0
    asked: int = 0
    unread: int = 0
    last: int = 0
    problems: list[Problem] = field(default_factory=list[Problem])

    def read(self, block: Bytes) -> None:
        """Take the rows of one block."""
        split = _Lines.of(block)
        mine, codes = self._asked(split)
        lines = np.flatnonzero(split.sound)[mine]
        rows, fine = _parsed(split, mine, self.lines + 1 + lines)
        for code in np.unique(codes[fine]):
            self.samples[code].add(rows.take(fine & (codes == code)))
        self._report(split, np.concatenate([np.flatnonzero(~split.sound & ~split.blank), lines[~fine]]))
        # Rows are in the order of their clicks, so the last one of each block is enough to find the end of the log.
        seconds, known = _numbers(block, split.begins[split.sound][-1:], split.tabs[-1:, CLICK])
        self.last = max(self.last, int(seconds[known].max(initial=0)))
        self.total += int((~split.blank).sum())
        self.whole += int(split.sound.sum())
        self.asked += len(mine)
        self.unread += int((~fine).sum())
        self.lines += len(split.sound)

    def _asked(self, split: _Lines) -> tuple[Integers, Integers]:
        """Return which of the sound lines belong to a requested campaign, and its code."""
        begins, ends = split.tabs[:, CAMPAIGN - 1] + 1, split.tabs[:, CAMPAIGN]
        long = np.flatnonzero(ends - begins == HASH)
        text = split.block[begins[long, None] + np.arange(HASH)].tobytes()
        order = np.argsort(self.wanted)
        tokens = _tokens(text)
        codes = order[np.minimum(np.searchsorted(self.wanted[order], tokens), len(order) - 1)]
        hit = self.wanted[codes] == tokens
        return long[hit], codes[hit]

    def _report(self, split: _Lines, wrong: Integers) -> None:
        """Describe the first broken rows."""
        for line in np.sort(wrong)[: REPORTED - len(self.problems)]:
            self.problems.append(Problem(self.lines + int(line) + 1, *explained(split.text(int(line)))))

    @property
    def broken(self) -> int:
        """Rows that were left out."""
        return self.total - self.whole + self.unread

    def refuse(self) -> None:
        """Refuse the file with the first problem, if there is one."""
        if self.problems:
            line, got, rule = self.problems[0]
            remedy = "give Criteo's data.txt as it was published, or correct or drop such rows"
            among = f"{got} (one of {self.broken} broken rows of {self.total})"
            raise InputError(at(self.path, line), among, rule, remedy)

    def result(self, campaigns: Sequence[str]) -> Reading:
        """Return the rows, or refuse a file that is broken or lacks a campaign."""
        if self.total - self.whole > LARGEST_SHARE * self.total or self.unread > LARGEST_SHARE * self.asked:
            self.refuse()
        missing = [name for name, sample in zip(campaigns, self.samples, strict=True) if not sample.count]
        if missing:
            got, rule = f"{self.total} rows, none of {', '.join(missing)}", "every requested campaign must have rows"
            remedy = "give the complete data.txt of Criteo, whose column 13 is the campaign"
            raise UnknownNameError(f"file {self.path!r}", got, rule, remedy)
        if self.broken:
            first = "; ".join(map(str, self.problems))
            more = "; …" if self.broken > len(self.problems) else ""
            text = f"file {self.path!r}: {self.broken} of {self.total} rows are broken and left out ({first}{more})"
            warnings.warn(text, stacklevel=3)
        return Reading(
            kept=tuple(sample.rows() for sample in self.samples),
            counts=np.array([sample.count for sample in self.samples], np.int64),
            total=self.total,
            broken=self.broken,
            problems=tuple(self.problems),
            last=self.last,
        )


def _parsed(split: _Lines, mine: Integers, lines: Integers) -> tuple[CampaignRows, Mask]:
    """Return some of the sound lines as rows, and which of them (n,) break no rule."""
    tabs = split.tabs[mine]
    first = split.begins[split.sound][mine]
    begins = np.column_stack([first, tabs[:, :-1] + 1])
    times = slice(CLICK, INTS.stop)
    numbers, fine_numbers = _numbers(split.block, begins[:, times], tabs[:, times])
    hashes, fine_hashes = _hashes(split.block, begins[:, CATEGORIES], tabs[:, CATEGORIES])
    empty = begins == tabs
    clicked = numbers[:, CLICK]
    converted = np.where(empty[:, CONVERSION], ABSENT, numbers[:, CONVERSION])
    fine = (fine_numbers | empty[:, times]).all(axis=1) & (fine_hashes | empty[:, CATEGORIES]).all(axis=1)
    fine &= ~empty[:, CLICK] & (clicked >= 0) & (empty[:, CONVERSION] | (converted >= clicked))
    rows = CampaignRows(
        lines=lines,
        clicked=clicked,
        converted=converted,
        ints=np.where(empty[:, INTS], FILLED, numbers[:, INTS]),
        categories=np.where(empty[:, CATEGORIES], ABSENT, hashes),
    )
    return rows, fine


def _numbers(block: Bytes, begins: Integers, ends: Integers) -> tuple[Integers, Mask]:
    """Return cells as whole numbers, and which of them are whole numbers."""
    negative = block[begins] == MINUS
    first = (begins + negative).ravel()
    lengths = ends.ravel() - first
    values = np.zeros(first.shape, np.int64)
    fine = (lengths > 0) & (lengths <= DIGITS)
    going = np.flatnonzero(fine)
    for place in range(DIGITS):
        going = going[lengths[going] > place]
        if not len(going):
            break
        digits = block[first[going] + place] - np.uint8(ZERO)  # characters before "0" wrap around to more than 9
        fine[going[digits > 9]] = False
        values[going] = 10 * values[going] + digits
    return np.where(negative, -1, 1) * values.reshape(begins.shape), fine.reshape(begins.shape)


def _hashes(block: Bytes, begins: Integers, ends: Integers) -> tuple[Integers, Mask]:
    """Return cells of eight hexadecimal digits as numbers, and which of them are valid."""
    fine = ends - begins == HASH
    digits = HEX[block[np.where(fine, begins, 0)[..., None] + np.arange(HASH)]]
    octets = np.ascontiguousarray(16 * digits[..., ::2] + digits[..., 1::2])
    return octets.view(">u4")[..., 0].astype(np.int64), fine & (digits < 16).all(axis=-1)


def explained(line: bytes) -> tuple[str, str]:
    """Return what a broken row has, and the first rule that it breaks, reading it cell by cell."""
    cells = line.decode("utf-8", "replace").split("\t")
    if len(cells) != WIDTH:
        return f"{len(cells)} cell{'s' * (len(cells) > 1)}", f"a row has {WIDTH} cells between tabs"
    for place, (name, cell) in enumerate(zip(NAMES, cells, strict=True)):
        if place < INTS.stop and not _is_whole(cell) and (cell or place == CLICK):
            kind = "a whole number" if place >= INTS.start else "whole seconds"
            return f"{name} {shown(cell)}", f"{name} must be {kind}{'' if place == CLICK else ' or empty'}"
        if place >= INTS.stop and cell and not (len(cell) == HASH and set(cell) <= set(hexdigits)):
            return f"{name} {shown(cell)}", f"{name} must be {HASH} hexadecimal digits or empty"
    return f"a click at {cells[CLICK]} and a conversion at {cells[CONVERSION]}", "0 ≤ click_ts ≤ conv_ts must hold"


def _is_whole(cell: str) -> bool:
    """Return whether a cell is a whole number of at most 18 digits."""
    digits = cell.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) <= DIGITS

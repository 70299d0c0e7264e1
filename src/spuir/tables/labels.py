"""Labels of actions as users pass them, turned into codes and back."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spuir.base.hashing import Words, odd_numbers
from spuir.base.records import Codes, Floats, as_array
from spuir.errors import InputError, ParameterError, UnknownNameError, nearest, quoted
from spuir.tables.contexts import is_arrow

_CODE, _UNSIGNED = np.dtype(np.intp), np.dtype(np.uintp)


def hashable(label: Any) -> bool:
    """Tell whether a label can be looked up; a tuple that holds a list cannot."""
    try:
        hash(label)
    except TypeError:
        return False
    return True


def shown(label: Any) -> str:
    """Return a label for a message: one of NumPy, such as ``bandit.actions_`` has, as the plain value that it is."""
    return repr(label.item() if isinstance(label, np.generic) else label)


def _equals_itself(label: Any) -> bool:
    """Tell whether a label is found again: NaN is not, and a missing value of pandas does not even say."""
    try:
        return bool(label == label)  # noqa: PLR0124 - false of NaN alone
    except (TypeError, ValueError):
        return False


class Ramp(NamedTuple):
    """How a new action ramps up: up to ``share`` of each decision, until ``until`` episodes were learned."""

    code: int
    share: float
    until: int


@dataclass(frozen=True)
class Labels:
    """The actions by label, in code order; labels and codes are never reused.

    ``active`` marks those that may be chosen; a retired action keeps its code. ``ramps`` are those of new actions.
    """

    names: tuple[Hashable, ...]
    active: tuple[bool, ...]
    codes: dict[Hashable, int] = field(repr=False, compare=False)
    array: NDArray[Any] = field(repr=False, compare=False)
    ramps: tuple[Ramp, ...] = ()

    @classmethod
    def of(
        cls, names: Iterable[Hashable], active: Iterable[bool] | None = None, ramps: Iterable[Ramp] = ()
    ) -> "Labels":
        """Build from labels in order; None = all active."""
        listed = tuple(name.item() if isinstance(name, np.generic) else name for name in names)
        codes: dict[Hashable, int] = {}
        for code, name in enumerate(listed):
            if not hashable(name):
                raise ParameterError("actions", repr(name), "a label is hashable", "use text or numbers")
            if name in codes:
                raise ParameterError("actions", repr(name) + " twice", "labels are unique", "drop the second")
            if not _equals_itself(name):
                raise ParameterError("actions", repr(name), "a label equals itself", "use text or numbers")
            codes[name] = code
        flags = tuple(active) if active is not None else (True,) * len(listed)
        return cls(listed, flags, codes, _array(listed), tuple(ramps))

    @classmethod
    def parse(cls, actions: Any) -> "Labels":
        """Build from what a constructor was given: a number M, or labels."""
        if isinstance(actions, (int, np.integer)) and not isinstance(actions, bool):
            if actions < 1:
                raise ParameterError("actions", actions, "at least one action is needed", "pass M ≥ 1 or labels")
            return cls.of(range(int(actions)))
        single = isinstance(actions, np.ndarray) and not actions.ndim
        if single or isinstance(actions, (str, set, frozenset, Iterator)) or not isinstance(actions, Iterable):
            # A set has no order of its own, so that codes would differ from run to run; an iterator is read once.
            raise ParameterError("actions", repr(actions), "actions are a number M or a list of labels", "pass a list")
        labels = cls.of(actions)
        if not labels.names:
            raise ParameterError("actions", "an empty list", "at least one action is needed", "pass labels")
        return labels

    @cached_property
    def plain(self) -> bool:
        """Whether the labels are the codes 0…M−1 themselves."""
        return self.array.dtype.kind == "i" and self.names == tuple(range(len(self.names)))

    @cached_property
    def all_active(self) -> bool:
        """Whether no label is retired."""
        return all(self.active)

    def encode(self, actions: Any) -> Codes:
        """Return labels (n,) as codes; each distinct label of a categorical or dictionary column is looked up once."""
        if isinstance(actions, np.ndarray):
            return self._encode_array(as_array("actions", actions))
        if isinstance(actions, (list, tuple)):
            # As an array, text and numbers together would all become text.
            return self._look_up(actions)
        actions = getattr(actions, "array", actions)  # what a pandas Series holds
        if hasattr(actions, "combine_chunks"):
            actions = actions.combine_chunks()
        if hasattr(actions, "categories") and hasattr(actions, "codes"):
            return self._encode_levels(actions.categories, actions.codes)
        if hasattr(actions, "dictionary") and hasattr(actions, "indices"):
            numbers = actions.indices.fill_null(-1) if actions.null_count else actions.indices
            return self._encode_levels(actions.dictionary, numbers.to_numpy())
        return self._encode_array(np.asarray(actions))

    def _encode_levels(self, levels: Any, numbers: NDArray[Any]) -> Codes:
        """Return the codes of rows that number their ``levels``; −1 is a missing label."""
        # The batches cut from one column share its levels: the same object is looked up once.
        seen, codes_of_levels = self.__dict__.get("_seen_levels", (None, None))
        if codes_of_levels is None or seen is not levels:
            known = (self.codes.get(level, -1) if hashable(level) else -1 for level in levels.tolist())
            codes_of_levels = np.array([*known, -1], np.intp)
            self.__dict__["_seen_levels"] = (levels, codes_of_levels)
        codes = codes_of_levels.take(numbers, mode="wrap")  # −1 is the last entry
        row = int(codes.argmin()) if len(codes) else 0
        if len(codes) and codes[row] < 0:
            self.unknown(levels.tolist()[numbers[row]] if numbers[row] >= 0 else None, row)
        return codes

    def _encode_array(self, values: NDArray[Any]) -> Codes:
        if values.ndim != 1:
            raise InputError("actions", f"shape {values.shape}", "actions are one label per row", "pass a flat list")
        if self.plain and values.dtype.kind in "iu":
            codes = values if values.dtype == _CODE else values.astype(_CODE)
            # Read as unsigned, a negative code is a huge one: one look at the largest tells.
            if len(codes) and not 0 <= codes.item(codes.view(_UNSIGNED).argmax()) < len(self.names):
                row = int(np.argmax((values < 0) | (values >= len(self.names))))
                self.unknown(values[row].item(), row)
            return codes
        if self._texts is not None and values.dtype.kind == "U" and values.dtype.isnative and values.dtype.itemsize:
            codes = self._texts.codes(values)
            if codes is not None:
                return codes
        return self._look_up(values.tolist())

    @cached_property
    def _texts(self) -> "_Texts | None":
        """The labels as text to look up whole columns by, where they are all text."""
        return _Texts.of(self.array) if self.array.dtype.kind == "U" else None

    def _look_up(self, values: Sequence[Any]) -> Codes:
        try:
            return np.fromiter(map(self.codes.__getitem__, values), np.intp, len(values))
        except (KeyError, TypeError):  # an unknown label, or one that has no hash: find the row
            for row, label in enumerate(values):
                if not hashable(label) or label not in self.codes:
                    self.unknown(label, row)
            raise

    def table(self, name: str, given: Any) -> Any:
        """Return a table with one column per action in code order.

        The columns of a data frame or an Arrow table, and the entries of a series, go by their labels.
        """
        arrow = is_arrow(given)
        named: Any = given.schema.names if arrow else getattr(given, "columns", getattr(given, "index", None))
        if named is None or callable(named) or not (arrow or hasattr(given, "to_numpy")):  # Arrow's index is a method
            return given
        labels = {str(label): label for label in self.names} if arrow else {}  # Arrow's names are texts
        columns: list[Any] = [labels.get(one, one) for one in named]
        order = list(range(len(self.names)))
        if len(columns) == len(order) and set(columns) == set(self.names):
            order = [columns.index(label) for label in self.names]
        elif columns != order:  # neither named nor numbered
            rule = f"its columns are the actions {quoted(self.names)}"
            raise InputError(name, f"columns {quoted(columns)}", rule, "name them as in actions_, or pass an array")
        values = np.column_stack([np.asarray(one) for one in given.columns]) if arrow else given.to_numpy()
        return values[..., order]

    def code(self, label: Hashable) -> int:
        """Return one label's code."""
        if not hashable(label) or label not in self.codes:
            self.unknown(label, None)
        return self.codes[label]

    def unknown(self, label: Any, row: int | None, subject: str = "actions") -> None:
        """Refuse a label that no action has, with the nearest one that some action has."""
        named = {str(name): name for name in self.names}
        near = nearest(label, named)
        missing = label is None or not _equals_itself(label)
        remedy = "pass one of them" if row is None else "drop or fill that row" if missing else "add it with add_action"
        hint = f"did you mean {named[near]!r}?" if near and not missing else remedy
        place = "" if row is None else f" at row {row}"
        rule = f"the actions are {quoted(self.names)}"
        raise UnknownNameError(subject, f"{shown(label)}{place}", rule, hint)

    def added(self, label: Hashable, share: float | None = None, until: int = 0) -> "Labels":
        """Return the labels with one more; a label once used, retired or not, is refused.

        With a ``share`` it ramps up until ``until`` episodes were learned.
        """
        if hashable(label) and label in self.codes:
            raise ParameterError("label", shown(label), "a label is never reused", "choose another label")
        ramps = self.ramps if share is None else (*self.ramps, Ramp(len(self.names), float(share), until))
        return Labels.of((*self.names, label), (*self.active, True), ramps)

    def caps(self, episode: int) -> Floats | None:
        """Return the largest probability of each action (M,) in an episode, infinite if established; None = no cap.

        Each of k actions that ramp up has at most a k-th of its share.
        """
        ramping = [ramp for ramp in self.ramps if ramp.until > episode and self.active[ramp.code]]
        if not ramping:
            return None
        caps = np.full(len(self.names), np.inf)
        for code, share, _ in ramping:
            caps[code] = share / len(ramping)
        return caps

    def retired(self, label: Hashable) -> "Labels":
        """Return the labels with one that is never chosen again."""
        code = self.code(label)
        left = [on and at != code for at, on in enumerate(self.active)]
        if not any(left):
            raise ParameterError("label", shown(label), "one action must remain", "add another before removing it")
        return Labels.of(self.names, left, self.ramps)


MAX_SLOT_BITS = 16
"""A table of text labels has at most 2 to this power slots: enough for a few hundred labels."""


@dataclass(frozen=True)
class _Texts:
    """Text labels as rows of 64-bit words, two characters each, in a hash table without collisions.

    The slot of a row is the top bits of Σ word × odd number over some ``columns`` of words. What is found in a slot is
    compared with its label, word by word.
    """

    words: Words
    columns: tuple[int, ...]
    bits: int
    slots: Codes

    @classmethod
    def of(cls, labels: NDArray[Any]) -> "_Texts | None":
        """Return the labels (M,) in the smallest table found; None where two labels share a slot in every one."""
        words = _words(labels)
        every = tuple(range(words.shape[1]))
        for bits in range(max(1, (len(labels) - 1).bit_length()), MAX_SLOT_BITS + 1):
            for columns in (*((one,) for one in every), every):
                places = _places(words, columns, bits)
                if len(np.unique(places)) == len(places):
                    slots = np.zeros(2**bits, np.intp)
                    slots[places] = np.arange(len(labels))
                    return cls(words, columns, bits, slots)
        return None

    def codes(self, values: NDArray[Any]) -> Codes | None:
        """Return the code of each value (n,), None where one is not a label."""
        words = _words(values)
        codes = self.slots.take(_places(words, self.columns, self.bits), mode="clip")
        found = self.words.take(codes, axis=0)
        given, known = words.shape[1], found.shape[1]
        if given != known:  # beyond the shorter of the two, only padding may follow
            shared = min(given, known)
            longer = words if given > known else found
            if longer[:, shared:].any():
                return None
            words, found = words[:, :shared], found[:, :shared]
        return codes if words.tobytes() == found.tobytes() else None  # twice as fast as comparing arrays


def _words(texts: NDArray[Any]) -> Words:
    """Return text (n,) as rows of words (n, k)."""
    size = texts.dtype.itemsize
    if size % 8:
        size += 4
        texts = texts.astype(f"U{size // 4}")
    return np.ascontiguousarray(texts).view(np.uint64).reshape(len(texts), size // 8)


def _places(words: Words, columns: tuple[int, ...], bits: int) -> NDArray[np.int64]:
    """Return the slot among 2**bits of each row of words (n, k); a column that the rows do not have is padding."""
    terms = [words[:, column] * odd_numbers(column + 1)[column] for column in columns if column < words.shape[1]]
    keys = terms[0] if terms else np.zeros(len(words), np.uint64)
    for term in terms[1:]:
        keys += term
    keys >>= np.uint64(64 - bits)
    return keys.view(np.int64)


def _array(names: tuple[Hashable, ...]) -> NDArray[Any]:
    """Return labels as an integer or text array where they are all of that kind, else as objects."""
    if {type(name) for name in names} in ({int}, {str}):
        typed = np.array(names)
        if typed.tolist() == list(names):  # not so for integers beyond 64 bits and text that ends in a null character
            return typed
    array = np.empty(len(names), dtype=object)
    array[:] = names
    return array

"""The column ``eligible`` of a log as a mask: which actions could be chosen in each row."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from spuir.base.records import Codes, Mask
from spuir.errors import InputError
from spuir.tables.arrow import pa, pc


def listed_items(column: Any) -> tuple[Codes, Codes, Any]:
    """Return the lengths (n,) of a column of lists, −1 where missing, the row (k,) of each item, and the items."""
    lengths = pc.list_value_length(column).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.intp)
    return lengths, np.repeat(np.arange(len(lengths)), np.maximum(lengths, 0)), column.flatten()


def holds_masks(column: Any) -> bool:
    """Return whether a column ``eligible`` has masks; it has lists of labels otherwise."""
    return pa.types.is_boolean(column.type.value_type)


def check_masks(lengths: Codes, labels: Sequence[Hashable]) -> None:
    """Refuse masks whose lengths (n,) are not the number of actions; −1 stands for a row without one."""
    wrong = (lengths >= 0) & (lengths != len(labels))
    if wrong.any():
        row = int(np.argmax(wrong))
        rule = f"a mask has one entry for each of the {len(labels)} actions"
        raise InputError("eligible", f"{lengths[row]} entries at row {row}", rule, "list labels instead")


def read_mask(
    column: Any, executed: Codes, actions: Sequence[Hashable], encode: Callable[[Any], Codes], order: Sequence[Hashable]
) -> Mask:
    """Return which actions could be chosen (n, M): all where a row says nothing.

    Parameters
    ----------
    column
        The column ``eligible``: lists of labels, or masks.
    executed
        The codes (n,) of the executed actions, which must be among those that could be chosen.
    actions
        The labels by their codes; ``encode`` may append to it.
    encode
        Returns the codes (k,) of labels in an Arrow array; those below 0 are left out.
    order
        The labels in the order of the masks.
    """
    lengths, owners, items = listed_items(column)
    if holds_masks(column):
        check_masks(lengths, order)
        codes = np.tile(encode(pa.array(order)), int((lengths >= 0).sum()))
        chosen = items.fill_null(False).to_numpy(zero_copy_only=False)
    else:
        codes = encode(items) if len(items) else np.empty(0, np.intp)
        chosen = codes >= 0
    mask = np.zeros((len(lengths), len(actions)), np.bool_)
    mask[owners[chosen], codes[chosen]] = True
    mask[lengths < 0] = True
    barred = ~mask[np.arange(len(mask)), executed]
    if barred.any():
        row = int(np.argmax(barred))
        got = f"{actions[executed[row]]!r} executed but not eligible at row {row}"
        raise InputError("eligible", got, "an executed action was eligible", "correct the list, or drop that row")
    return mask

"""Several decisions with nothing but contexts of numbers: one matrix, read from a request without Python objects.

msgspec reads the body again from the log, and finds the same there. It also reads all other bodies, and makes all
refusals.
"""

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from simdjson import Parser

from spuir.base.records import Floats
from spuir.service.commands import DecisionRow
from spuir.service.settings import LARGEST_NUMBER

_START = b'{"decisions":[{"context":['
_parser = Parser()


class NumberRows(Sequence[DecisionRow]):
    """Decisions that have nothing but a context of numbers, as one ``matrix`` (n, d); a row is made when it is read."""

    def __init__(self, matrix: Floats) -> None:
        self.matrix = matrix

    def __len__(self) -> int:
        return len(self.matrix)

    @overload
    def __getitem__(self, at: int) -> DecisionRow: ...
    @overload
    def __getitem__(self, at: slice) -> list[DecisionRow]: ...
    def __getitem__(self, at: int | slice) -> DecisionRow | list[DecisionRow]:
        if isinstance(at, slice):
            return [DecisionRow(context=row) for row in self.matrix[at].tolist()]
        return DecisionRow(context=self.matrix[at].tolist())


def read_numbers(body: bytes) -> NumberRows | None:
    """Return the decisions of a body, None unless it has several and each is a context of equally many numbers."""
    start = body[: body.find(b"[", body.find(b"[") + 1) + 1]
    if start.translate(None, b" \t\r\n") != _START:
        return None
    try:
        content: Any = _parser.parse(body)
        rows: list[Any] = list(content["decisions"])
        contexts = [row["context"] for row in rows]
        widths = set(map(len, contexts))
        alone = len(content) == 1 and set(map(len, rows)) == {1}  # no other keys, and none twice
        # Lists within lists would be strung together. NumPy counts several times as fast as bytes.count.
        flat = np.count_nonzero(np.frombuffer(body, np.uint8) == ord("[")) == 1 + len(rows)
        if len(rows) < 2 or not (alone and flat) or len(widths) > 1 or 0 in widths:
            return None
        numbers = b"".join([one.as_buffer(of_type="d") for one in contexts])
    except (ValueError, TypeError, RuntimeError, KeyError, AttributeError):
        return None
    matrix = np.frombuffer(numbers).reshape(len(rows), -1)
    return NumberRows(matrix) if np.abs(matrix).max() <= LARGEST_NUMBER else None

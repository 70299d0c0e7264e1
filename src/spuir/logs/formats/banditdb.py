"""BanditDB's exports: Parquet files of rewarded interactions, and its write-ahead log of events.

Trust the propensities only where the campaign drew its actions by Thompson sampling: for LinUCB
they are a softmax of scores from which nothing was drawn.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from spuir.errors import InputError
from spuir.logs.events.event_rows import LineParser, Row, json_parser
from spuir.logs.events.event_values import BrokenLineError, as_number
from spuir.logs.events.line_reader import LineReader
from spuir.logs.formats import parquet
from spuir.logs.formats.arrays import numeric_contexts
from spuir.logs.formats.base import Faults, FileSurvey, Format, Request, head, opened, read_with_names, with_names
from spuir.tables.arrow import pa

_NAMES = {"interaction_id": "decision_id", "arm_id": "action", "predicted_at": "time", "rewarded_at": "reward_time"}
_WRITTEN = ("decision_id", "action", "reward", "time", "reward_time", "propensity")
_MARK = b"PAR1"
_EVENT = re.compile(rb'\s*\{\s*"(?:Predicted|Rewarded|Campaign\w+)"\s*:\s*\{')


class EventJoiner(LineParser):
    """Joins predictions and rewards of the write-ahead log by the id of the interaction."""

    def __init__(self, path: str, options: Mapping[str, Any], faults: Faults) -> None:
        super().__init__()
        self.path, self.skip, self._campaign = path, faults.skip, options.get("campaign")
        self._chosen = self._campaign is not None
        self._parse = json_parser()
        self._open: dict[str, dict[str, Any]] = {}
        self._closed: set[str] = set()

    def feed(self, number: int, line: bytes) -> Iterable[Row]:
        """Return the row of an interaction whose reward is on this line."""
        if not line.strip():
            return ()
        event = self._parse(line)
        kind, found = next(iter(event.items()), ("", None))
        if kind not in ("Predicted", "Rewarded") or type(found) is not dict:
            self.skip("no interaction")
            return ()
        name = found.get("interaction_id")
        if type(name) is not str:
            raise BrokenLineError(f"interaction_id is {str(name)[:40]!r}, not a text")
        if kind == "Predicted":
            self._predicted(number, name, found)
            return ()
        return self._rewarded(name, found)

    def _predicted(self, number: int, name: str, found: dict[str, Any]) -> None:
        if found.get("is_reemit") or name in self._open or name in self._closed:
            self.skip("re-emitted")
            return
        campaign = found.get("campaign_id")
        if self._campaign is None:
            self._campaign = campaign
        if campaign != self._campaign:
            if not self._chosen:
                rule = f"the log begins with {self._campaign!r}, and one campaign is one log"
                where = f"file {self.path!r}, line {number}"
                raise InputError(where, f"campaign {campaign!r}", rule, 'choose one: campaign="…"')
            self.skip("of another campaign")
            return
        context = found.get("context")
        if type(context) is not list:
            raise BrokenLineError(f"context is {str(context)[:40]!r}, not a list of numbers")
        row: dict[str, Any] = {"decision_id": name, "action": found.get("arm_id"), "time": _seconds(found)}
        shares = found.get("arm_propensities")
        if type(shares) is dict and shares:
            row["propensity"] = shares.get(row["action"])
            row |= {"eligible": list(shares), "probabilities": list(shares.values())}
        self._open[name] = row | {f"feature_{at}": as_number(x, f"context[{at}]") for at, x in enumerate(context)}

    def _rewarded(self, name: str, found: dict[str, Any]) -> Iterable[Row]:
        reward = as_number(found.get("reward"), "reward")
        row = self._open.pop(name, None)
        if row is None:
            self.skip("rewarded again" if name in self._closed else "a reward without its decision")
            return ()
        self._closed.add(name)
        return ({**row, "reward": reward, "reward_time": _seconds(found)},)

    def finish(self) -> Iterable[Row]:
        """Return nothing: what is still open was never rewarded."""
        for _ in self._open:
            self.skip("never rewarded")
        self._open.clear()
        return ()


def _seconds(found: Mapping[str, Any]) -> int | None:
    return found.get("timestamp_secs") or None


def _is_parquet(path: str) -> bool:
    return head(path, len(_MARK)) == _MARK


LINES = LineReader(parser=EventJoiner, types=lambda options: {"time": pa.int64(), "reward_time": pa.int64()})


def survey(path: str, options: Mapping[str, Any]) -> FileSurvey:
    """Return the columns of a file and its sections."""
    return with_names(parquet.survey(path, {}), _NAMES) if _is_parquet(path) else LINES.survey(path, options)


def read(path: str, request: Request) -> "Iterator[pa.RecordBatch]":
    """Yield the rewarded interactions, in the order of their rewards in a write-ahead log."""
    return read_with_names(parquet.read, path, request, _NAMES) if _is_parquet(path) else LINES.read(path, request)


def write(batches: "Iterable[pa.RecordBatch]", path: str) -> None:
    """Write canonical rows as Parquet in BanditDB's columns; context columns become feature_0, feature_1, …."""
    first, rest = opened(batches)
    features = {name: f"feature_{at}" for at, name in enumerate(numeric_contexts(first.schema))}
    parquet.write((_exported(batch, features) for batch in rest), path)


def _exported(batch: "pa.RecordBatch", features: Mapping[str, str]) -> "pa.RecordBatch":
    old = {new: name for name, new in _NAMES.items()}
    arrays: dict[str, Any] = {}
    for name in _WRITTEN:
        found = batch[name] if name in batch.schema.names else pa.nulls(batch.num_rows)
        if name in ("time", "reward_time"):
            found = found.cast(pa.timestamp("s", "UTC"), safe=False).cast(pa.int64())
        arrays[old.get(name, name)] = found.cast(pa.string() if name in ("decision_id", "action") else found.type)
    arrays["reward"], arrays["propensity"] = (arrays[name].cast(pa.float64()) for name in ("reward", "propensity"))
    return pa.RecordBatch.from_pydict(arrays | {new: batch[name].cast(pa.float64()) for name, new in features.items()})


FORMAT = Format(
    name="banditdb",
    summary="BanditDB's Parquet exports, and its write-ahead log as JSON lines",
    sniff=lambda path, first: bool(_EVENT.match(first)),
    survey=survey,
    read=read,
    write=write,
    options=("campaign", "types", "broken_share"),
)

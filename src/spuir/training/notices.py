"""What a training reports in addition to its result, in sentences for the user."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from spuir.base.column_drift import Drift
from spuir.base.counting import counted
from spuir.core.ties import TIE
from spuir.errors import quoted
from spuir.logs.columns import declaring
from spuir.logs.doctor import id_like
from spuir.logs.formats import Faults
from spuir.policies import Policy
from spuir.tables.column_encoders import CategoryEncoder
from spuir.tables.encoder import Encoder
from spuir.training.fold import EpisodeSummary

NUMERAL = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
CERTAIN = (
    "All propensities of the log are 1: it says nothing about actions that were not chosen, so that no other policy "
    "can be evaluated on it; decide with a floor (--set floor=0.02) and log the propensities of decisions."
)


def of_policy(policy: Policy) -> Iterator[str]:
    """Yield how far the policy can be learned in parallel, if not across episodes."""
    if "foldable" not in policy.traits:
        how = "in parallel shards" if "additive" in policy.traits else "in one step"
        yield (
            f"{policy.name} cannot be parallelised across episodes: parts are read in parallel, and each episode is "
            f"learned {how} after the one before."
        )


def of_keys(keys: Sequence[Any]) -> Iterator[str]:
    """Yield the order of episodes that are texts, if it is not the alphabetical order of numbered texts."""
    texts = [key for key in keys if isinstance(key, str)]
    numbered = all(re.search("[0-9]", text) for text in texts)
    if len(texts) > 1 and not (numbered and texts == sorted(texts)):
        shown = [repr(text) for text in texts]
        ends = shown if len(shown) <= 4 else [*shown[:3], "…", shown[-1]]
        yield f"Episodes are learned in this order: {', '.join(ends)}; number them if the order is wrong."


def of_encoder(encoder: Encoder) -> Iterator[str]:
    """Yield the columns without information in the sample, and those of text that look like numbers."""
    sample = f"in the first {counted(encoder.rows, 'row')}, on which the encoder was learned"
    if encoder.empty:
        yield f"Columns without a value {sample}, are left out: {quoted(encoder.empty)}."
    if encoder.constant:
        yield f"Columns with a single value {sample}, give the policy no information: {quoted(encoder.constant)}."
    for part in (part for source in encoder.sources for part in source.parts):
        if isinstance(part, CategoryEncoder) and part.levels and all(map(NUMERAL.fullmatch, part.levels)):
            yield (
                f"Column {part.column!r} is text and becomes categories, but looks like numbers; "
                f"{declaring(part.column, 'float64')} reads it as numbers, or names the first cell that is not one."
            )


def of_ids(contexts: Any) -> Iterator[str]:
    """Yield the columns of a table of the first contexts that look like ids, in the words of the doctor."""
    for one in id_like(contexts):
        yield f"{one.column}: {one.problem.removesuffix('.')}; {one.remedy}"


def of_drift(drift: Mapping[int, Drift]) -> Iterator[str]:
    """Yield the columns that have drifted from the sample, each with the first rows where they have."""
    first: dict[str, str] = {}
    for row in sorted(drift):
        for column, how in drift[row].notable():
            first.setdefault(column, f"in rows {row:,} to {row + drift[row].rows - 1:,} of the log, {how}")
    for column, how in first.items():
        yield f"Column {column!r} has drifted: {how}; check where it comes from, or train on newer rows."


def of_faults(faults: Iterable[Faults]) -> Iterator[str]:
    """Yield what the readers left out."""
    every = list(faults)
    broken = sum(one.count for one in every)
    if broken:
        first = min(next(one.first for one in every if one.first), key=lambda fault: fault.line)
        where = f"{first.path}, line {first.line}: {first.why}"
        yield f"Left out: {counted(broken, 'broken row')}, the first in {where}."
    skipped = sum((Counter(one.skipped) for one in every), Counter[str]())
    for why, count in sorted(skipped.items()):
        yield f"Left out: {counted(count, 'row')}: {why}."


def of_episodes(episodes: Sequence[EpisodeSummary]) -> Iterator[str]:
    """Yield how many rows had no reward, and what propensities of 1 mean."""
    silent = sum(summary.silent for summary in episodes)
    if silent:
        yield f"Left out: {counted(silent, 'row', 'without a reward')}."
    lowest = [summary.lowest_propensity for summary in episodes if summary.lowest_propensity is not None]
    if lowest and min(lowest) >= 1 - TIE:
        yield CERTAIN

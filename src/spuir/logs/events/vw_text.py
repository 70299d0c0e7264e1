"""The grammar of Vowpal Wabbit's text: a label and a tag, then features by namespace."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spuir.errors import InputError
from spuir.logs.events.event_values import BrokenLineError
from spuir.logs.events.event_writing import Event
from spuir.logs.events.feature_names import by_namespace, escape, unescape

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_BLANKS = re.compile(r"[ \t\r]+")
BLANK = 0.0
"""The value of a feature that a line does not name."""


@dataclass(frozen=True)
class VwLine:
    """One line: the words of its label, its tag, and its features by column."""

    label: list[str]
    tag: str | None
    features: dict[str, Any]


@dataclass(frozen=True)
class VwCost:
    """One word of a label: an action, and what is known of it; ``cost`` is None where nothing was observed."""

    action: str
    cost: float | None
    probability: float


def parse(line: bytes, *, categories: bool = True) -> VwLine:
    """Parse a line.

    Parameters
    ----------
    line
        Without its end.
    categories
        Whether ``name=value`` without a number is the text ``value`` of a column ``name``.
    """
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BrokenLineError(f"byte {line[error.start]:#04x} is not UTF-8") from None
    head, bar, rest = text.partition("|")
    words = _words(head)
    tag = None
    if bar and words and (words[-1][0] == "'" or head[-1] not in " \t"):
        bare = words.pop().removeprefix("'")
        tag = unescape(bare) if bare else None
    features: dict[str, Any] = {}
    for space in rest.split("|") if bar else ():
        _add_namespace(space, features, categories)
    return VwLine(words, tag, features)


def _words(text: str) -> list[str]:
    return [word for word in _BLANKS.split(text) if word]


def _add_namespace(text: str, features: dict[str, Any], categories: bool) -> None:
    """Add the features of one namespace; its name touches the bar, and may carry a factor for all of them."""
    words, prefix, factor = _words(text), "", 1.0
    if text[:1] not in ("", " ", "\t") and words:
        name, colon, weight = words.pop(0).partition(":")
        prefix, factor = unescape(name) + ".", _number(weight, "the weight of a namespace") if colon else 1.0
    for place, word in enumerate(words):
        name, colon, value = word.partition(":")
        level, sign, category = name.partition("=")
        if sign and not colon and categories and factor == 1:
            features[prefix + unescape(level)] = unescape(category)
            continue
        name = prefix + (unescape(name) if name else str(place))
        if not colon or _NUMBER.fullmatch(value):
            known = features.get(name, 0.0)
            number = factor * (float(value) if colon else 1.0)
            features[name] = number + known if isinstance(known, float) else number
        else:
            features[name] = unescape(value)


def _number(text: str, what: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise BrokenLineError(f"{what} is {text[:40]!r}, not a number")
    return float(text)


def cost(word: str) -> VwCost:
    """Return what ``action``, ``action:cost`` or ``action:cost:probability`` says."""
    parts = word.split(":")
    if len(parts) > 3 or not parts[0]:
        raise BrokenLineError(f"the label {word[:40]!r} is not action:cost:probability")
    if len(parts) < 3:
        return VwCost(parts[0], None, 0.0)
    probability = _number(parts[2], "the probability")
    if not 0 <= probability <= 1 + 1e-6:
        raise BrokenLineError(f"the probability is {probability}, not in [0, 1]")
    return VwCost(parts[0], _number(parts[1], "the cost") if probability > 0 else None, min(probability, 1.0))


def outcome(found: VwCost) -> dict[str, Any]:
    """Return the reward and the propensity of an observed cost."""
    return {"reward": 0.0 - (found.cost or 0.0), "propensity": found.probability}


def written(context: Mapping[str, Any]) -> str:
    """Return features by namespace, those without one first; zeros are left out, as they are for Vowpal Wabbit."""
    parts: list[str] = []
    for space, features in by_namespace(context).items():
        words = [word for name, value in features.items() if (word := _feature(name, value))]
        if words:
            parts.append(f"|{escape(space) if space else ''} {' '.join(words)}")
    return " ".join(parts) or "|"


def _feature(name: str, value: Any) -> str:
    if isinstance(value, str):
        return f"{escape(name)}={escape(value)}"
    return f"{escape(name)}:{float(value)!r}" if value else ""


def triple(action: Any, event: Event) -> str:
    """Return the label of an observed action."""
    if event.weight != 1:
        rule = "Vowpal Wabbit's text has no weights for bandit events"
        remedy = "write dsjson, which has them, or drop the column"
        raise InputError("weight", f"{event.weight:g} at row {event.row}", rule, remedy)
    return f"{action}:{0.0 - event.reward!r}:{event.propensity!r}"


def tagged(words: Iterable[str], tag: str | None) -> str:
    """Return a label with its tag, and the blank after them."""
    every = [*words, *([] if tag is None else ["'" + escape(tag)])]
    return " ".join(every) + " " if every else ""

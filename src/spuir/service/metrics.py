"""Counters and histograms of the service, written in the text format of Prometheus."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from spuir import __version__

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the buckets for durations."""
SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Upper bounds of the buckets for numbers of commands."""

Labels = tuple[str, ...]


@dataclass
class Counter:
    """A number per combination of labels that only grows."""

    name: str
    doc: str
    labels: Labels = ()
    values: dict[Labels, float] = field(default_factory=dict)

    def add(self, *labels: str, by: float = 1) -> None:
        """Count ``by`` more for these labels."""
        self.values[labels] = self.values.get(labels, 0) + by

    def lines(self, visible: Callable[[str], bool] | None) -> Iterator[str]:
        """Yield the lines of the text format; ``visible`` limits them to some experiments."""
        if shown := _shown(self.labels, self.values, visible):
            yield from _head(self.name, self.doc, "counter")
            for key in shown:
                yield f"{self.name}{_braces(self.labels, key)} {_number(self.values[key])}"


@dataclass
class Gauge:
    """Numbers that are asked for when they are read: ``read`` returns them by labels."""

    name: str
    doc: str
    read: Callable[[], dict[Labels, float]]
    labels: Labels = ()

    def lines(self, visible: Callable[[str], bool] | None) -> Iterator[str]:
        """Yield the lines of the text format; ``visible`` limits them to some experiments."""
        values = self.read()
        if shown := _shown(self.labels, values, visible):
            yield from _head(self.name, self.doc, "gauge")
            for key in shown:
                yield f"{self.name}{_braces(self.labels, key)} {_number(values[key])}"


@dataclass
class Histogram:
    """How often a value fell into each bucket, per combination of labels."""

    name: str
    doc: str
    bounds: Sequence[float]
    labels: Labels = ()
    counts: dict[Labels, list[int]] = field(default_factory=dict)
    sums: dict[Labels, float] = field(default_factory=dict)

    def observe(self, value: float, *labels: str) -> None:
        """Count one value."""
        counts = self.counts.get(labels)
        if counts is None:
            counts = self.counts[labels] = [0] * (len(self.bounds) + 1)
            self.sums[labels] = 0.0
        counts[bisect_left(self.bounds, value)] += 1
        self.sums[labels] += value

    def lines(self, visible: Callable[[str], bool] | None) -> Iterator[str]:
        """Yield the lines of the text format; ``visible`` limits them to some experiments."""
        if shown := _shown(self.labels, self.counts, visible):
            yield from _head(self.name, self.doc, "histogram")
            for key in shown:
                below = 0
                for bound, count in zip([*map(_number, self.bounds), "+Inf"], self.counts[key], strict=True):
                    below += count
                    yield f"{self.name}_bucket{_braces((*self.labels, 'le'), (*key, bound))} {below}"
                yield f"{self.name}_sum{_braces(self.labels, key)} {_number(self.sums[key])}"
                yield f"{self.name}_count{_braces(self.labels, key)} {below}"


class Metrics:
    """Everything that the service counts."""

    def __init__(self) -> None:
        route = ("method", "route")
        self.requests = Counter("spuir_requests_total", "Answered requests.", (*route, "status"))
        self.request_seconds = Histogram("spuir_request_seconds", "Time to answer a request.", SECONDS, route)
        self.decisions = Counter("spuir_decisions_total", "Decisions by outcome.", ("experiment", "outcome"))
        self.rewards = Counter("spuir_rewards_total", "Rewards by outcome.", ("experiment", "outcome"))
        self.group_size = Histogram("spuir_group_commands", "Commands per durable commit.", SIZES)
        self.commit_seconds = Histogram("spuir_commit_seconds", "Time to execute and commit a group.", SECONDS)
        self.failures = Counter("spuir_failures_total", "Unexpected errors by place.", ("place",))
        build = Gauge("spuir_build_info", "Version of spuir.", lambda: {(__version__,): 1.0}, ("version",))
        self.gauges: list[Gauge] = [build]

    def text(self, visible: Callable[[str], bool] | None = None) -> bytes:
        """Return all metrics; with ``visible`` given, only those of experiments for which it returns True."""
        families: Iterable[Counter | Gauge | Histogram] = (
            self.requests,
            self.request_seconds,
            self.decisions,
            self.rewards,
            self.group_size,
            self.commit_seconds,
            self.failures,
            *self.gauges,
        )
        return ("\n".join(line for family in families for line in family.lines(visible)) + "\n").encode()


def _shown(names: Labels, values: Iterable[Labels], visible: Callable[[str], bool] | None) -> list[Labels]:
    """Return the combinations of labels to show, in order."""
    known = sorted(values)  # at once: other threads count meanwhile
    if visible is None:
        return known
    if "experiment" not in names:
        return []
    place = names.index("experiment")
    return [key for key in known if visible(key[place])]


def _head(name: str, doc: str, kind: str) -> tuple[str, str]:
    return f"# HELP {name} {doc}", f"# TYPE {name} {kind}"


def _braces(names: Labels, values: Labels) -> str:
    if not names:
        return ""
    pairs = (f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))
    return "{" + ",".join(pairs) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))

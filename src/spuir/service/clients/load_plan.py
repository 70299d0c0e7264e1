"""What a load test sends, and what it reports."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from spuir.base.parameters import COUNT, FLAG, POSITIVE, SEED, TEXT, UNIT, check, optional, parameter
from spuir.errors import ParameterError
from spuir.service.config import is_loopback

MILLISECONDS = 1000.0


@dataclass(frozen=True, kw_only=True)
class LoadPlan:
    """What to send. ``requests`` and ``seconds`` bound it: it ends with the first of the two."""

    url: str = parameter("http://127.0.0.1:8000", "Address of the service.", TEXT)
    experiment: str = parameter("load-test", "Experiment to use; it is created if it does not exist.", TEXT)
    requests: int = parameter(10_000, "Most requests for decisions.", COUNT)
    seconds: float = parameter(30.0, "Longest time, in seconds.", POSITIVE)
    connections: int = parameter(16, "Connections that are open at the same time.", COUNT)
    batch: int = parameter(1, "Decisions per request.", COUNT)
    rate: float | None = parameter(
        None, "Requests for decisions per second, as fast as possible if it is left out.", optional(POSITIVE)
    )
    rewards: float = parameter(0.2, "Share of decisions that get a reward.", UNIT)
    repeats: float = parameter(0.0, "Share of requests that are sent twice, as by a client that retries.", UNIT)
    actions: int = parameter(20, "Actions of an experiment that is created.", COUNT)
    columns: int = parameter(50, "Numbers per context.", COUNT)
    seed: int = parameter(0, "Seed of the contexts and rewards.", SEED)
    remote: bool = parameter(False, "Allow an address on another machine.", FLAG)

    def __post_init__(self) -> None:
        check(self, "load")
        host = urlsplit(self.url).hostname or ""
        if not self.remote and not is_loopback(host):
            rule = "load is sent to this machine only, unless another one is allowed"
            raise ParameterError("url", repr(self.url), rule, "add --remote if you may put load on that machine")


@dataclass
class LoadReport:
    """What was sent and answered.

    ``seconds`` is the time of it all; ``latencies`` has the seconds of each answered request by kind, ``statuses``
    counts decisions and rewards by what became of them, and ``failures`` requests that failed by their codes.
    """

    seconds: float = 0.0
    latencies: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    statuses: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)

    @property
    def decisions(self) -> int:
        """Decisions that were recorded."""
        return self.statuses["recorded"]

    @property
    def rewards(self) -> int:
        """Rewards that were recorded."""
        return sum(self.statuses[status] for status in ("joined", "early", "late", "unknown"))

    def to_dict(self) -> dict[str, Any]:
        """Return the summary: counts, rates per second, and latencies in milliseconds."""
        return {
            "seconds": self.seconds,
            "decisions": self.decisions,
            "rewards": self.rewards,
            "decisions_per_second": self.decisions / self.seconds if self.seconds else 0.0,
            "statuses": dict(self.statuses),
            "failures": dict(self.failures),
            "requests": {kind: _summary(times, self.seconds) for kind, times in self.latencies.items()},
        }

    def __str__(self) -> str:
        summary = self.to_dict()
        lines = [
            f"{self.decisions:,} decisions and {self.rewards:,} rewards recorded in {self.seconds:.1f} s: "
            f"{summary['decisions_per_second']:,.0f} decisions per second",
            f"{'requests':<12}{'answered':>10}{'per s':>9}{'p50 ms':>9}{'p90 ms':>9}{'p99 ms':>9}{'max ms':>9}",
        ]
        for kind, row in summary["requests"].items():
            times = "".join(f"{row[name]:9.2f}" for name in ("p50", "p90", "p99", "max"))
            lines.append(f"{kind:<12}{row['answered']:>10,}{row['per_second']:>9,.0f}{times}")
        lines.append("status: " + (", ".join(f"{n:,} {name}" for name, n in self.statuses.items()) or "none"))
        lines.append("failures: " + (", ".join(f"{n:,} {code}" for code, n in self.failures.items()) or "none"))
        return "\n".join(lines)


def _summary(times: list[float], seconds: float) -> dict[str, float]:
    import numpy as np  # not for the help of a command

    milliseconds = MILLISECONDS * np.asarray(times)
    p50, p90, p99, most = np.percentile(milliseconds, [50, 90, 99, 100]).round(3).tolist()
    return {"answered": len(times), "per_second": len(times) / seconds, "p50": p50, "p90": p90, "p99": p99, "max": most}

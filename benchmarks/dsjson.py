"""How fast decision-service JSON becomes a table: ``python -m benchmarks.dsjson [megabytes]``.

The lines are like those of a news service: a visitor in two namespaces, six articles of five features each, an
outcome. The features of the articles are drawn anew for every event, so that all of them become columns; in one shape
they stay. Further shapes have lists in the context. Beside opening and reading the log runs a bare decoding of its
lines with msgspec, which builds Python objects and nothing more. Reading must reach half of its speed, in processor
time of one process; exit code 1 says that it does not. Files of 256 MiB or more would be parsed in several processes.
"""

import json
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.timing import race, ratio
from spuir.base.streams import generator
from spuir.logs import open_log

ARTICLES = 6
MEGABYTES, QUICK_MEGABYTES = 30.0, 3.0
ROUNDS, SECONDS = 5, 2.0
FLOOR = 0.5
"""The share of a bare decoding's speed that reading must reach."""


def _second_object(rng: np.random.Generator) -> dict[str, Any]:
    return {"referrer": f"site{rng.integers(5)}", "depth": int(rng.integers(9))}


STEADY = "articles that stay"

SHAPES: dict[str, Callable[[dict[str, Any], np.random.Generator], Any]] = {
    "plain": lambda context, rng: None,
    STEADY: lambda context, rng: None,
    "two objects in a namespace list": lambda context, rng: context["FromUrl"].append(_second_object(rng)),
    "a text list": lambda context, rng: context.update(tags=[f"tag{rng.integers(12)}" for _ in range(3)]),
    "an empty list": lambda context, rng: context.update(tags=[]),
    "a vector": lambda context, rng: context.update(vector=rng.random(8).round(3).tolist()),
}
"""What each shape adds to the context of an event."""


def _visitor(rng: np.random.Generator) -> dict[str, Any]:
    page = {
        "timeofday": str(rng.choice(["Morning", "Afternoon", "Night"])),
        "weather": str(rng.choice(["Sunny", "Rainy", "Snowy"])),
        "device": str(rng.choice(["phone", "desktop"])),
        "age": int(rng.integers(18, 80)),
        "visits": int(rng.integers(50)),
        "score": round(float(rng.random()), 4),
        "member": bool(rng.random() < 0.5),
    }
    history = {"buys": int(rng.integers(9)), "spend": round(float(rng.random()) * 100, 2)}
    return {"FromUrl": [page], "GUser": {"segment": f"s{rng.integers(20)}", "history": history}}


def _article(rng: np.random.Generator, number: int) -> dict[str, Any]:
    name = f"article-{number}"
    features = {
        "topic": str(rng.choice(["sports", "news", "food"])),
        "length": str(rng.choice(["short", "long"])),
        "words": int(rng.integers(100, 2000)),
        "fresh": round(float(rng.random()), 3),
        "author": f"writer{rng.integers(40)}",
    }
    return {"_tag": name, "i": {"constant": 1, "id": name}, "j": [features]}


def event(rng: np.random.Generator, number: int, shape: str = "plain") -> dict[str, Any]:
    """Draw one event as the service logs it."""
    context = _visitor(rng)
    SHAPES[shape](context, rng)
    name = str(uuid.UUID(bytes=rng.bytes(16)))
    order = (rng.permutation(ARTICLES) + 1).tolist()
    shares = [1 - 0.2 / ARTICLES * (ARTICLES - 1)] + [0.2 / ARTICLES] * (ARTICLES - 1)
    reward = float(rng.random() < 0.1)
    articles = [_article(generator(at, "article") if shape == STEADY else rng, at) for at in range(ARTICLES)]
    return {
        "_label_cost": -reward,
        "_label_probability": shares[0],
        "_label_Action": order[0],
        "_labelIndex": order[0] - 1,
        "o": [{"v": reward, "EventId": name, "ActionTaken": False}],
        "Timestamp": f"2021-02-04T{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}.2460000Z",
        "Version": "1",
        "EventId": name,
        "a": order,
        "c": {**context, "_multi": articles},
        "p": shares,
        "VWState": {"m": "0d5c1c0e0b8d4f6a9b1a/3c0c1d"},
        "_original_label_cost": -reward,
    }


def lines(megabytes: float, shape: str) -> Iterator[str]:
    """Draw lines of about this size in all; some are drawn, and these are repeated."""
    rng = generator(0, "dsjson")
    drawn = [json.dumps(event(rng, number, shape), separators=(",", ":")) for number in range(2000)]
    size = sum(map(len, drawn))
    for _ in range(max(1, round(megabytes * 1e6 / size))):
        yield from drawn


def ours(path: str) -> int:
    """Open and read a log; return its rows."""
    return sum(batch.num_rows for batch in open_log(path, format="dsjson").batches())


def bare(path: str) -> int:
    """Decode the lines of a file into Python objects; return their number."""
    decode = msgspec.json.Decoder().decode
    return len([None for line in Path(path).read_bytes().splitlines() if decode(line)])


def race_shape(shape: str, megabytes: float) -> dict[str, float]:
    """Return the speeds for a shape in MB/s, and the share of the bare decoding's that reading reaches."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "log.dsjson"))
        Path(path).write_text("".join(line + "\n" for line in lines(megabytes, shape)), encoding="utf-8")
        size = Path(path).stat().st_size / 1e6
        if ours(path) != bare(path):
            raise ValueError("the readers do not agree on the number of rows")
        clocks = race({"spuir": lambda: ours(path), "bare": lambda: bare(path)}, rounds=ROUNDS, seconds=SECONDS)
    speeds = {name: 1e3 * size / clock.median for name, clock in clocks.items()}
    return speeds | {"share": ratio(clocks["bare"], clocks["spuir"])}


def measure(megabytes: float, say: Callable[[str], None]) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Return the speeds for every shape, and the shares that have floors."""
    table: dict[str, dict[str, float]] = {}
    for shape in SHAPES:
        say(f"dsjson: {shape}")
        table[shape] = race_shape(shape, megabytes)
    return table, {f"dsjson/share/{shape}": row["share"] for shape, row in table.items()}


def main(megabytes: float) -> int:
    """Print every shape; return the exit code."""
    table, _ = measure(megabytes, lambda text: None)
    for shape, row in table.items():
        verdict = "pass" if row["share"] >= FLOOR else "fail"
        speeds = f"spuir {row['spuir']:.0f} MB/s and bare {row['bare']:.0f} MB/s"
        print(f"{shape}: {speeds}, share {row['share']:.2f} ({verdict})")
    print(f"at least {FLOOR:g} of a bare decoding's speed is needed, in processor time of one process")
    return int(min(row["share"] for row in table.values()) < FLOOR)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else MEGABYTES))

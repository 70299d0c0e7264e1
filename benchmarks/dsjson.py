"""How fast decision-service JSON becomes a table: ``python -m benchmarks.dsjson [megabytes]``.

The lines are like those of a news service: a visitor in two namespaces, six articles of five features each, an
outcome. Beside our reader runs what one would write in an hour: ``json.loads``, a recursive flattening into dicts,
and a table of these.
"""

import json
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.timing import race, ratio
from spuir.base.streams import generator
from spuir.logs.formats.base import Faults, Request
from spuir.logs.formats.dsjson import FORMAT

ARTICLES = 6
ROUNDS, SECONDS = 3, 10.0
NEEDED = 50.0
"""Megabytes a second and core that reading must reach."""


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


def event(rng: np.random.Generator, number: int) -> dict[str, Any]:
    """Draw one event as the service logs it."""
    name = str(uuid.UUID(bytes=rng.bytes(16)))
    order = (rng.permutation(ARTICLES) + 1).tolist()
    shares = [1 - 0.2 / ARTICLES * (ARTICLES - 1)] + [0.2 / ARTICLES] * (ARTICLES - 1)
    reward = float(rng.random() < 0.1)
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
        "c": {**_visitor(rng), "_multi": [_article(rng, at) for at in range(ARTICLES)]},
        "p": shares,
        "VWState": {"m": "0d5c1c0e0b8d4f6a9b1a/3c0c1d"},
        "_original_label_cost": -reward,
    }


def lines(megabytes: float) -> Iterator[str]:
    """Draw lines of about this size in all; some are drawn, and these are repeated."""
    rng = generator(0, "dsjson")
    drawn = [json.dumps(event(rng, number), separators=(",", ":")) for number in range(2000)]
    size = sum(map(len, drawn))
    for _ in range(max(1, round(megabytes * 1e6 / size))):
        yield from drawn


def ours(path: str) -> int:
    """Read a file with spuir; return its rows."""
    survey = FORMAT.survey(path, {}) if FORMAT.survey else None
    if survey is None or FORMAT.read is None:
        return 0
    names = tuple(survey.schema.names)
    request = Request(schema=survey.schema, columns=names, section=survey.sections[0], faults=Faults())
    return sum(batch.num_rows for batch in FORMAT.read(path, request))


def _flat(value: Any, prefix: str, found: dict[str, Any]) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            if not key.startswith("_"):
                _flat(inner, f"{prefix}{key}.", found)
    elif isinstance(value, list):
        for inner in value:
            _flat(inner, prefix, found)
    else:
        found[prefix[:-1]] = value


def naive(path: str) -> int:
    """Read a file with the standard library; return its rows."""
    rows: list[dict[str, Any]] = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            given = json.loads(line)
            names = [action["_tag"] for action in given["c"]["_multi"]]
            row = {
                "decision_id": given["EventId"],
                "time": given["Timestamp"],
                "action": names[given["_labelIndex"]],
                "reward": -given["_label_cost"],
                "propensity": given["_label_probability"],
                "probabilities": [given["p"][given["a"].index(at + 1)] for at in range(len(names))],
                "eligible": names,
                "policy_version": given["VWState"]["m"],
            }
            _flat(given["c"], "", row)
            rows.append(row)
    return pa.Table.from_pylist(rows).num_rows


def main(megabytes: float) -> None:
    """Print both speeds and their ratio."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "log.dsjson"))
        Path(path).write_text("".join(line + "\n" for line in lines(megabytes)), encoding="utf-8")
        size = Path(path).stat().st_size / 1e6
        rows = ours(path)
        if rows != naive(path):
            raise ValueError("the readers do not agree on the number of rows")
        clocks = race({"spuir": lambda: ours(path), "json": lambda: naive(path)}, rounds=ROUNDS, seconds=SECONDS)
    print(f"{size:.1f} MB, {rows:,} events of {1e6 * size / rows:,.0f} bytes, one core")
    for name, clock in clocks.items():
        print(f"{name:>6}: {1e3 * size / clock.median:6.1f} MB/s median, {1e3 * size / clock.best:6.1f} best")
    print(f" ratio: {ratio(clocks['json'], clocks['spuir']):6.2f}; at least {NEEDED:g} MB/s are needed")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 30.0)

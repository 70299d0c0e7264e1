"""One seed in, named independent generators out.

A stream is addressed by a path of names, as in ``generator(seed, "environment", "noise", 3)``. The same
seed and path give the same numbers on every machine; a new consumer with a name of its own never shifts
the others.
"""

import secrets
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.random import Generator

from spuir.errors import ParameterError, SnapshotError

Seed = int | Generator | None


def _is_integer(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def as_seed(random_state: Seed) -> int:
    """Return a non-negative integer seed: the integer itself, one drawn from a Generator, or a fresh one."""
    if random_state is None:
        return secrets.randbits(64)
    if isinstance(random_state, Generator):
        return int(random_state.integers(2**63))
    if _is_integer(random_state) and random_state >= 0:
        return int(random_state)
    raise ParameterError(
        "random_state", repr(random_state), "a seed is None, an integer ≥ 0 or a numpy Generator", "pass one of these"
    )


def generator(seed: int, *path: str | int) -> Generator:
    """Return the generator that belongs to ``path`` under ``seed``."""
    # Each name goes in with its length, so that ("a", "b/c") and ("a/b", "c") are different streams.
    text = "".join(f"{len(name)}:{name}" for name in map(str, path))
    digest = blake2b(text.encode(), digest_size=16).digest()
    key = tuple(int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4))
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


def get_state(rng: Generator) -> dict[str, Any]:
    """Return a generator's position as JSON-ready data (its large integers as text)."""
    state = rng.bit_generator.state
    return {
        "kind": state["bit_generator"],
        "state": str(state["state"]["state"]),
        "inc": str(state["state"]["inc"]),
        "has_uint32": int(state["has_uint32"]),
        "uinteger": int(state["uinteger"]),
    }


def set_state(saved: dict[str, Any]) -> Generator:
    """Return a generator at the position that :func:`get_state` described."""
    bits = np.random.PCG64()
    try:
        bits.state = {
            "bit_generator": saved["kind"],
            "state": {"state": int(saved["state"]), "inc": int(saved["inc"])},
            "has_uint32": int(saved["has_uint32"]),
            "uinteger": int(saved["uinteger"]),
        }
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        rule = "a stream is saved as the position of a PCG64 generator"
        raise SnapshotError("saved stream", repr(saved)[:80], rule, "load with a seed to start afresh") from error
    return np.random.Generator(bits)

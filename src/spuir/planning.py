"""Recommended batch size, episodes and sketch size for a given amount of work, and what each choice costs.

Flops count one addition or one multiplication each; a symmetric product of n rows and d columns costs n·d². They
are leading terms, made for comparing choices, not for predicting seconds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from math import ceil, log, sqrt
from typing import Any

from spuir.base.parameters import COUNT, NUMBER, check_value
from spuir.core.imputing import GROUP
from spuir.core.statistics import GATHER_BYTES
from spuir.policies.sketched import HASH_BYTES

BATCH_CONSTANT = 25.0
"""C_B in B = C_B·√(T/d), the value that the paper verifies."""

SKETCH_SHARE = 0.1
"""Share of the batch beyond which the paper sees no gain from a larger sketch."""

ROW_PRICE, HASH_PRICE, MOMENT_PRICE, SKETCH_PRICE = 30.0, 28.0, 45.0, 1.6
"""Measured times in units of one flop of a large symmetric product: to group one number of a row by its action,
to hash it into one block, to pass over it for the moments that the sketch keeps exact, and one flop of the small
products of sketched rows. They are accurate to a factor of about 1.5, which is enough for a recommendation."""

WORTHWHILE = 1.25
"""A sketch is recommended where learning is at least this many times as fast as with exact sums."""

FLOAT_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one way of learning and deciding costs in one episode, in flops and bytes.

    ``decide_flops`` with every width computed; ``least_decide_flops`` where the shared bound of imputing
    policies settles every context with one quadratic form.
    """

    choice: str
    meaning: str
    learn_flops: float
    decide_flops: float
    least_decide_flops: float
    state_bytes: int
    work_bytes: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A recommendation for T steps, d context columns and M actions, with its reasons and its costs.

    ``sketch_size`` is the size to use if you sketch, ``least_sketch_size`` the smallest that theory
    supports. ``sketch_advised`` is the size at which sketching pays, or None where it does not.
    """

    steps: int
    dim: int
    actions: int
    batch_size: int
    episodes: int
    sketch_size: int
    least_sketch_size: int
    sketch_blocks: int
    sketch_advised: int | None
    reasons: tuple[str, ...]
    costs: tuple[Cost, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON-ready data."""
        return asdict(self)


def plan(steps: int, dim: int, actions: int, *, sketch_blocks: int = 1) -> Plan:
    """Recommend B, N and c for T ``steps``, d = ``dim`` and M = ``actions``.

    Notes
    -----
    B = 25·√(T/d) balances the two terms of the regret bound (10): the policy's error grows with B, the
    sketch's with 1/B. N = T/B, rounded up. c is the largest of d·ln d (the theory's order), a tenth of B
    (where the paper's rewards level off) and d + 1 (fewer rows cannot have full rank), rounded up to a
    multiple of D = ``sketch_blocks``. At the paper's setting the first two agree; for larger batches they
    differ, and theory needs only the first.
    """
    for name, value in (("steps", steps), ("dim", dim), ("actions", actions), ("sketch_blocks", sketch_blocks)):
        check_value(name, value, COUNT, "give a whole number of at least 1")
        check_value(name, value, NUMBER, "give a smaller number")
    balanced = balanced_batch(steps, dim)
    batch = min(steps, balanced)
    episodes = ceil(steps / batch)
    bounds = {"d·ln d": ceil(dim * log(dim)), "a tenth of B": ceil(SKETCH_SHARE * batch), "d + 1": dim + 1}
    binding = max(bounds, key=lambda name: bounds[name])
    size, least = (
        sketch_blocks * ceil(rows / sketch_blocks) for rows in (bounds[binding], max(bounds["d·ln d"], dim + 1))
    )
    gains = {c: sketch_gain(batch, dim, actions, c, sketch_blocks) for c in (size, least)}
    advised = next((c for c, gain in gains.items() if gain >= WORTHWHILE), None)
    named = ", ".join(f"{name} = {value:,}" for name, value in bounds.items())
    rounded = f", rounded up to a multiple of D = {sketch_blocks}" if sketch_blocks > 1 else ""
    capped = f", more than T: B = {batch:,}" if batch < balanced else ""
    reasons = (
        f"B = {BATCH_CONSTANT:g}·√(T/d) = {balanced:,} balances the terms of the regret bound{capped}; "
        f"N = T/B = {episodes:,}.",
        f"c = {size:,}, set by {binding}: the largest of {named}{rounded}.",
        _advice(batch, actions, size, advised, gains),
    )
    return Plan(
        steps=steps,
        dim=dim,
        actions=actions,
        batch_size=batch,
        episodes=episodes,
        sketch_size=size,
        least_sketch_size=least,
        sketch_blocks=sketch_blocks,
        sketch_advised=advised,
        reasons=reasons,
        costs=costs(batch, dim, actions, tuple(gains), sketch_blocks),
    )


def balanced_batch(steps: int, dim: int) -> int:
    """Return B = 25·√(T/d), which may exceed T."""
    return max(1, round(BATCH_CONSTANT * sqrt(steps / dim)))


def _advice(batch: int, actions: int, size: int, advised: int | None, gains: Mapping[int, float]) -> str:
    """Say whether to sketch, at which size, and why."""
    if advised is not None:
        gain = f"about {gains[advised]:.1f} times as fast as exact, including the time to move rows"
        speed = f"learning is then {gain}"
        if advised == size:
            return f"Sketch: {speed}; use spuir with sketch_size={advised}."
        return (
            f"Sketch only at c = {advised:,} (d·ln d, the order that theory asks for, {advised / batch:.1%} of B): "
            f"{speed}, while c = {size:,} gains too little; compare the reward with puir's before relying on it."
        )
    if size >= batch:
        return f"Do not sketch: c = {size:,} is not smaller than B = {batch:,}, so nothing would be sketched; use puir."
    return (
        "Do not sketch: exact sums cost B·d² for all actions together and sketched ones about 2·M·c·d², so that a "
        f"sketch gains only where B is well above 2·M·c = {2 * actions * size:,}; use puir, which is exact."
    )


def costs(batch: int, dim: int, actions: int, sketches: Iterable[int], blocks: int = 1) -> tuple[Cost, ...]:
    """Return the cost of each way: no imputation, the paper's imputation, ours by the complement, sketched."""
    b, d, m = batch, dim, actions
    factor = m * (d**3 / 3 + 2 * d * d)
    observed = b * d * d + 2 * b * d
    imputed_rows = (m - 1) * b * (d * d + 4 * d) + 2 * m * d * d
    exact = observed + _complement_flops(d, m) + 4 * m * d * d
    rows, sums = FLOAT_BYTES * b * (d + 1), FLOAT_BYTES * m * (d * d + d)
    # Rows are gathered in pieces by action, or hashed in pieces with a word, a bucket, a place and a sign each.
    gathered = min(FLOAT_BYTES * b * d, GATHER_BYTES) + 2 * FLOAT_BYTES * b
    hashing = FLOAT_BYTES * b + (3 * FLOAT_BYTES + 4) * min(b, HASH_BYTES // (FLOAT_BYTES * d) + 1)
    both = 2 * sums + FLOAT_BYTES * d * d
    dense, bounded = b * m * (d * d + 4 * d), b * (d * d + 2 * m * d)
    paper = "every imputed row summed, as the paper writes it"
    table: list[tuple[str, str, float, int, int, int]] = [
        ("sbucb", "no imputation", observed, dense, sums, gathered),
        ("puir, row by row", paper, observed + imputed_rows, dense, 2 * sums, 2 * rows),
        ("puir", "exact imputation by the complement", exact, bounded, both, gathered + sums),
    ]
    for c in sketches:
        hashed = 2 * blocks * b * (d + 1) + 4 * b * d + 2 * m * c * d * d + 4 * m * c * d + 4 * m * d * d
        work = hashing + 2 * FLOAT_BYTES * m * c * (d + 1)
        if c < b:
            table.append((f"spuir, c = {c}", "a sketched batch", hashed, bounded, both, work))
        else:
            table.append((f"spuir, c = {c}", "c ≥ B: the batch is not sketched", exact, bounded, both, gathered + sums))
    return tuple(
        Cost(
            choice=choice,
            meaning=meaning,
            learn_flops=learn + factor,
            decide_flops=dense,
            least_decide_flops=least,
            state_bytes=state,
            work_bytes=work,
        )
        for choice, meaning, learn, least, state, work in table
    )


def _complement_flops(dim: int, actions: int) -> float:
    """Return the flops of all M complement sums: a product with 11ᵀ − I, of groups and then among the groups."""
    width = dim * dim + dim
    if actions <= GROUP:
        return 2 * (actions - 1) * actions * width
    groups = ceil(actions / GROUP)
    return (2 * (GROUP - 1) * actions + actions + groups) * width + _complement_flops(dim, groups)


def sketch_gain(batch: int, dim: int, actions: int, size: int, blocks: int = 1) -> float:
    """Return how many times faster than exact a sketched learning step should be, at the measured prices."""
    if size >= batch:
        return 1.0
    factor = actions * (dim**3 / 3 + 2 * dim * dim)
    exact = factor + batch * dim * (dim + ROW_PRICE) + _complement_flops(dim, actions)
    passes = batch * dim * (HASH_PRICE * blocks + MOMENT_PRICE)
    return exact / (factor + passes + SKETCH_PRICE * 2 * actions * size * dim * dim)

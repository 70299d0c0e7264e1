"""Training stays within its memory forecast, for many actions and for wide contexts."""

import tracemalloc

import pyarrow as pa
import pytest

from spuir.base.streams import generator
from spuir.errors import ParameterError
from spuir.policies import make_policy
from spuir.training import train
from spuir.training.memory import amount, block_rows, check_fits, forecast, row_bytes


def table_of(rows: int, actions: int, dim: int) -> pa.Table:
    """Return a log of these sizes."""
    rng = generator(0, "tests", "memory")
    contexts = {f"x{place}": rng.standard_normal(rows) for place in range(dim)}
    return pa.table({"action": rng.integers(actions, size=rows), "reward": rng.standard_normal(rows), **contexts})


@pytest.mark.parametrize("name", ["puir", "sbucb", "spuir", "bexp3"])
@pytest.mark.parametrize(("actions", "dim", "rows"), [(2_500, 8, 600), (2, 400, 900), (3, 5, 20_000)])
def test_the_peak_is_below_the_forecast(name: str, actions: int, dim: int, rows: int) -> None:
    table = table_of(rows, actions, dim)
    tracemalloc.start()
    try:
        trained = train(table, name, batch_size=rows // 3, actions=list(range(actions)), workers=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    needed = trained.needed
    assert peak < needed.total
    # The forecast of the model is not much too large either: at most three times the peak.
    if needed.table > 2**20:
        assert needed.tables * needed.table < 3 * peak


@pytest.mark.parametrize("limit", [None, 5 * 2**20])
@pytest.mark.parametrize("name", ["spuir", "puir", "bexp3"])
def test_open_sketches_and_sums_are_in_the_forecast(
    name: str, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty scattered episodes, all open at once: a sketch each, a table each, or their rows."""
    monkeypatch.setattr("spuir.training.memory.BLOCK_ROWS", 1_000)
    monkeypatch.setattr("spuir.training.group.SORT_BYTES", 2**16)
    monkeypatch.setattr("spuir.training.group.MIN_FRAGMENTS", 10**9)  # grouped for memory only, not for speed
    monkeypatch.setattr("spuir.logs.open.TABLE_ROWS", 10_000)
    rows, dim = (25_000, 4) if name == "spuir" else (8_000, 30)
    table = table_of(rows, 3, dim).append_column("episode", pa.array(generator(1, "memory").integers(20, size=rows)))
    policy = make_policy(name, **({"sketch_size": 600, "preset": "paper"} if name == "spuir" else {}))
    train(table.slice(0, 500), policy, workers=1)  # what is imported on the way is not of interest
    tracemalloc.start()
    try:
        trained = train(table, policy, workers=1, memory_limit=limit)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < trained.needed.total <= (limit or 2**40)
    assert trained.needed.total < 4 * peak + trained.needed.reading
    if name == "spuir":
        assert any("grouping" in notice for notice in trained.notices) == (limit is not None)


def test_wide_rows_are_read_in_smaller_blocks() -> None:
    assert block_rows(50) == 65_536
    assert block_rows(2_000) * row_bytes(2_000) <= 32 * 2**20


def test_too_large_is_refused_with_the_arithmetic_and_the_remedies() -> None:
    needed = forecast(make_policy("puir"), 10_000, 2_000, largest=1_000, open_episodes=3, workers=2)
    assert needed.table == 8 * 10_000 * (2_000**2 + 2_000 + 2)
    with pytest.raises(
        ParameterError, match=r"7 tables of 10,000 actions × \(2,000² \+ 2,000 \+ 2\) numbers = 2,087"
    ) as refusal:
        check_fits(needed, 16 * 2**30)
    for remedy in ("16.0 GiB to use", "fewer actions", "fewer features", "--memory", "sketch"):
        assert remedy in str(refusal.value)


def test_amounts_read_well() -> None:
    assert [amount(size) for size in (5, 2_048, 3 * 2**20, 1.5 * 2**30)] == ["5 B", "2 KiB", "3 MiB", "1.5 GiB"]

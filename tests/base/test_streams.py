import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import kstest

from spuir.base import streams
from spuir.errors import ParameterError

FIRST_DRAWS = ["0x1.e6518982d7bbap-2", "0x1.5cc58d635efb0p-4", "0x1.8619d2d35de80p-5"]
"""Of rows 0 and 1, and of the id "x", with seed 0 in episode 0."""


def test_the_same_seed_and_path_give_the_same_numbers_on_every_machine() -> None:
    first = streams.generator(7, "environment", "noise", 3)
    second = streams.generator(7, "environment", "noise", 3)
    np.testing.assert_array_equal(first.random(5), second.random(5))
    # Written down once: a change here changes every published number.
    assert streams.generator(0, "policy").integers(0, 1000, 5).tolist() == [150, 546, 387, 243, 409]


@given(
    st.lists(st.lists(st.text(max_size=4), max_size=3).map(tuple), min_size=2, max_size=2, unique=True),
    st.integers(0, 2**64),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_different_paths_give_different_numbers(paths, seed) -> None:
    one, two = (streams.generator(seed, *path).integers(2**63) for path in paths)
    assert one != two


def test_names_do_not_run_together() -> None:
    paths = [("a", "b/c"), ("a/b", "c"), ("a/b/c",), ("ab", "/c"), ("a", "b", "c"), ("1:a",), ()]
    drawn = {int(streams.generator(0, *path).integers(2**63)) for path in paths}
    assert len(drawn) == len(paths)


def test_a_number_and_its_text_name_the_same_stream_whatever_its_type() -> None:
    drawn = {int(streams.generator(0, "episode", name).integers(2**63)) for name in (3, "3", np.int64(3))}  # type: ignore[arg-type]
    assert len(drawn) == 1


def test_streams_are_uncorrelated() -> None:
    # 45 correlations of 20,000 pairs, each within 5 standard errors: errs with probability below 3e-5.
    draws = np.array([streams.generator(1, "stream", i).normal(size=20_000) for i in range(10)])
    correlations = np.asarray(np.corrcoef(draws))[np.triu_indices(10, 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(20_000)


@pytest.mark.parametrize("seed", [0, 5, np.int64(9), np.uint8(3), 2**100])
def test_an_integer_is_its_own_seed(seed) -> None:
    assert streams.as_seed(seed) == int(seed)
    assert type(streams.as_seed(seed)) is int


def test_a_generator_gives_a_seed_and_moves_on() -> None:
    one, two = np.random.default_rng(0), np.random.default_rng(0)
    assert streams.as_seed(one) == streams.as_seed(two)
    assert streams.as_seed(one) != streams.as_seed(np.random.default_rng(0))


def test_no_seed_is_a_fresh_one() -> None:
    assert streams.as_seed(None) != streams.as_seed(None)


@pytest.mark.parametrize("seed", [-1, 1.0, True, "0", np.float64(1), [1], np.random.RandomState(0)])
def test_anything_else_is_refused(seed) -> None:
    with pytest.raises(ParameterError, match="a seed is None, an integer ≥ 0 or a numpy Generator") as caught:
        streams.as_seed(seed)
    assert caught.value.got == repr(seed)


# ---- draws of decisions ---------------------------------------------------------------------------------------


def test_the_draws_of_rows_do_not_depend_on_how_calls_split_them() -> None:
    whole = streams.Draws.numbered(3, 2, 0, 10)
    parts = [streams.Draws.numbered(3, 2, first, 5) for first in (0, 5)]
    np.testing.assert_array_equal(whole.uniforms, np.concatenate([part.uniforms for part in parts]))
    np.testing.assert_array_equal(whole.normals(1, 4), np.concatenate([part.normals(1, 4) for part in parts]))
    np.testing.assert_array_equal(whole.normals(1, 4, slice(5, 10)), parts[1].normals(1, 4))


def test_an_id_has_its_own_draw_wherever_it_stands() -> None:
    one = streams.Draws.identified(3, 2, ["a", "b", 7]).uniforms
    other = streams.Draws.identified(3, 2, ["7", "a"]).uniforms
    assert (one[0], one[2]) == (other[1], other[0]) and one[0] != one[1]


@pytest.mark.parametrize("change", [(4, 2, 0), (3, 3, 0), (3, 2, 1)])
def test_another_seed_episode_or_row_has_another_draw(change: tuple[int, int, int]) -> None:
    assert streams.Draws.numbered(3, 2, 0, 1).uniforms != streams.Draws.numbered(*change, 1).uniforms


@pytest.mark.parametrize("count", [0, 1, streams.FEW, streams.FEW + 1, 40])
@pytest.mark.parametrize(
    "draws",
    [
        streams.Draws.numbered(3, 5, 2**40, 50),
        streams.Draws.identified(3, 5, range(50)),
        streams.Draws.of(streams.generator(3), 50),
    ],
    ids=["numbered", "identified", "generator"],
)
def test_some_rows_have_the_draws_that_they_have_among_all(draws: streams.Draws, count: int) -> None:
    rows = streams.generator(1).permutation(50)[:count]
    np.testing.assert_array_equal(draws.uniforms_at(rows), draws.uniforms[rows])


def test_a_row_number_is_not_an_id() -> None:
    assert streams.Draws.numbered(3, 2, 7, 1).uniforms != streams.Draws.identified(3, 2, [7]).uniforms


def test_the_draws_are_fixed_forever() -> None:
    # Logs are recomputed from these: a change of the bits would break every log that exists.
    numbered, identified = streams.Draws.numbered(0, 0, 0, 2), streams.Draws.identified(0, 0, ["x"])
    assert [float(one).hex() for one in (*numbered.uniforms, *identified.uniforms)] == FIRST_DRAWS


@pytest.mark.parametrize(
    "values",
    [
        streams.Draws.numbered(1, 0, 0, 40_000).uniforms,
        streams.Draws.identified(1, 0, range(40_000)).uniforms,
        streams.Draws.numbered(1, 9, 0, 400).normals(1, 100).ravel(),
        streams.Draws.of(streams.generator(5), 40_000).uniforms,
    ],
    ids=["rows", "ids", "normals", "generator"],
)
def test_draws_are_distributed_as_they_say(values: np.ndarray) -> None:
    # Kolmogorov-Smirnov with a fixed seed: it would fail for one seed in 10,000.
    uniforms = values if values.min() >= 0 else ndtr(values)
    assert kstest(uniforms, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(uniforms[:-1], uniforms[1:])[0, 1]) < 5 / np.sqrt(len(uniforms))


def test_lanes_are_independent() -> None:
    draws = streams.Draws.numbered(1, 0, 0, 20_000)
    table = np.corrcoef(
        [draws.uniforms, draws.normals(1, 1)[:, 0], draws.normals(2, 1)[:, 0], draws.normals(2, 2)[:, 1]]
    )
    # Six correlations of 20,000 rows: five standard errors, false alarms below 4e-6.
    assert np.abs(table - np.eye(4)).max() < 5 / np.sqrt(20_000)

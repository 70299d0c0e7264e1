"""What every registered feature map promises, and the two that leave the contexts alone."""

from dataclasses import FrozenInstanceError, fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spuir.base import streams
from spuir.base.packing import pack, unpack
from spuir.errors import ParameterError, SpuirError, UnknownNameError
from spuir.features import FEATURES, FeatureMap, list_features, make_features

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "identity": ("identity", {}),
    "identity + 1": ("identity", {"intercept": True}),
    "intercept": ("intercept", {}),
    "fourier": ("fourier", {"n_features": 20, "bandwidth": 0.7}),
    "fourier auto": ("fourier", {"n_features": 20}),
    "fourier + raw + 1": ("fourier", {"n_features": 20, "raw": True, "intercept": True}),
    "nystroem + 1": ("nystroem", {"landmarks": 20, "intercept": True}),
    "identity, scaled + 1": ("identity", {"scale": True, "intercept": True}),
    "fourier, scaled + raw + 1": ("fourier", {"n_features": 20, "bandwidth": "median", "raw": True, "scale": True}),
}


@pytest.fixture(params=CASES, name="features")
def _features(request) -> FeatureMap:
    name, parameters = CASES[request.param]
    return make_features(name, **parameters)


def batch(n=60, dim=4, n_actions=3, seed=0):
    rng = streams.generator(seed, "test", "features")
    contexts = rng.normal(0.1, 0.5, (n, dim))
    actions = rng.integers(n_actions, size=n)
    return contexts, actions, np.sin(contexts[:, 0] * (actions + 1)) + 0.1 * rng.standard_normal(n)


def ready(features, dim=4):
    state = features.init(dim, streams.generator(1, "map"))
    return features.fix(state, *batch(dim=dim), None)


def test_every_registered_map_is_tested():
    assert {name for name, _ in CASES.values()} == set(list_features()) == set(FEATURES.names())


def test_width_names_and_columns_agree(features):
    state = ready(features)
    columns = features.apply(state, batch()[0])
    names = features.names(state, list("abcd"))
    assert columns.shape == (60, features.width(4)) == (60, len(names))
    assert columns.dtype == np.float64 and columns.flags.c_contiguous
    assert len(set(names)) == len(names)
    if features.intercept:
        assert names[-1] == "intercept" and (columns[:, -1] == 1.0).all()


def test_same_seed_same_map_and_fixing_is_final(features):
    contexts = batch()[0]
    first, second = ready(features), ready(features)
    np.testing.assert_array_equal(features.apply(first, contexts), features.apply(second, contexts))
    assert features.fixed(first)
    assert features.fix(first, *batch(seed=5), None) is first


def test_a_map_survives_packing_bit_for_bit(features):
    contexts = batch(seed=2)[0]
    for state in (features.init(4, streams.generator(1, "map")), ready(features)):
        back = unpack(type(state), *pack(state))
        assert features.fixed(back) == features.fixed(state)
        np.testing.assert_array_equal(features.apply(back, contexts), features.apply(state, contexts))


@settings(max_examples=25, deadline=None)
@given(cut=st.integers(0, 60), step=st.integers(1, 9))
@pytest.mark.parametrize("case", CASES)
def test_a_row_gives_the_same_in_every_block(case, cut, step):
    name, parameters = CASES[case]
    features = make_features(name, **parameters)
    state, contexts = ready(features), batch()[0]
    whole = features.apply(state, contexts)
    np.testing.assert_allclose(features.apply(state, contexts[cut:]), whole[cut:], rtol=0, atol=1e-12)
    np.testing.assert_allclose(features.apply(state, contexts[::step]), whole[::step], rtol=0, atol=1e-12)


LAYOUTS = {
    "Fortran": np.asfortranarray,
    "float32": lambda x: x.astype(np.float32),
    "strided": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
}


@pytest.mark.parametrize("convert", LAYOUTS.values(), ids=LAYOUTS)
def test_layout_and_dtype_do_not_matter_and_inputs_are_not_written(features, convert):
    contexts = batch()[0].astype(np.float32).astype(np.float64)
    actions, rewards = batch()[1:]
    weights = np.linspace(0.5, 2.0, 60)
    given_contexts = convert(contexts)
    before = [part.copy() for part in (given_contexts, actions, rewards, weights)]
    for part in (given_contexts, actions, rewards, weights):
        part.flags.writeable = False
    state = features.init(4, streams.generator(1, "map"))
    expected = features.apply(features.fix(state, contexts, actions, rewards, weights), contexts)
    fixed = features.fix(state, given_contexts, actions, rewards, weights)
    np.testing.assert_array_equal(features.apply(fixed, given_contexts), expected)
    for part, copy in zip((given_contexts, actions, rewards, weights), before, strict=True):
        np.testing.assert_array_equal(part, copy)


def test_no_rows_give_no_rows(features):
    assert features.apply(ready(features), np.empty((0, 4))).shape == (0, features.width(4))


def test_identity_returns_the_array_itself():
    contexts = batch()[0]
    features = make_features("identity")
    assert features.apply(ready(features), contexts) is contexts
    assert features.names(ready(features), ["a", "b"]) == ["a", "b"]


def test_intercept_comes_last_and_moves_nothing():
    contexts = batch()[0]
    for features in (make_features("intercept"), make_features("identity", intercept=True)):
        columns = features.apply(ready(features), contexts)
        np.testing.assert_array_equal(columns[:, :4], contexts)
        np.testing.assert_array_equal(columns[:, 4], 1.0)
        assert features.names(ready(features), list("abcd")) == [*"abcd", "intercept"]


def test_parameters_are_frozen_and_documented(features):
    with pytest.raises(FrozenInstanceError):
        features.intercept = False
    assert all(item.metadata["doc"] for item in fields(features))
    assert features == type(features)(**{item.name: getattr(features, item.name) for item in fields(features)})


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("identity", {"intercept": "yes"}),
        ("intercept", {"intercept": False}),
        ("fourier", {"n_features": 0}),
        ("fourier", {"n_features": 2.5}),
        ("fourier", {"bandwidth": 0.0}),
        ("fourier", {"bandwidth": -1}),
        ("fourier", {"bandwidth": float("nan")}),
        ("fourier", {"bandwidth": "mean"}),
        ("nystroem", {"scale": False}),
        ("fourier", {"raw": 1}),
        ("fourier", {"ridge": -0.5}),
    ],
)
def test_a_bad_parameter_is_named_with_its_value(name, parameters):
    (key, value), *_ = parameters.items()
    with pytest.raises(ParameterError) as caught:
        make_features(name, **parameters)
    assert key in str(caught.value) and repr(value) in str(caught.value)


def test_wrong_names_are_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match="fourier"):
        make_features("furier")
    with pytest.raises(ParameterError, match="bandwidth"):
        make_features("fourier", bandwith=2.0)


@pytest.mark.parametrize("dim", [0, -1, 2.0, True])
def test_a_bad_dimension_is_refused(features, dim):
    with pytest.raises(SpuirError, match="dim"):
        features.init(dim, streams.generator(0, "map"))
    with pytest.raises(SpuirError, match="dim"):
        features.width(dim)

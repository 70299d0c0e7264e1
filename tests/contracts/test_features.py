"""What every registered feature map promises to a policy: fixed once, the same for a row in every block."""

from dataclasses import fields

import numpy as np
import pytest

from spuir.base import streams
from spuir.base.packing import pack, unpack
from spuir.errors import InputError, ParameterError, SpuirError
from spuir.features import list_features, make_features

CASES = {
    "identity": ("identity", {}),
    "identity and 1": ("identity", {"intercept": True}),
    "intercept": ("intercept", {}),
    "fourier": ("fourier", {"n_features": 16, "bandwidth": 0.9}),
    "fourier auto": ("fourier", {"n_features": 16}),
    "fourier auto, raw and 1": ("fourier", {"n_features": 16, "raw": True, "intercept": True, "ridge": 4.0}),
    "identity, scaled": ("identity", {"scale": True}),
    "fourier, scaled": ("fourier", {"n_features": 16, "scale": True}),
    "fourier median": ("fourier", {"n_features": 16, "bandwidth": "median", "raw": True, "scale": True}),
    "nystroem": ("nystroem", {"landmarks": 16}),
    "nystroem, few rows and 1": ("nystroem", {"landmarks": 400, "intercept": True, "bandwidth_factor": 1.5}),
}
SUSPECTS = (None, -1, 0, 1.5, np.nan, np.inf, "nonsense", 3, [1])


@pytest.fixture(params=CASES.values(), ids=list(CASES))
def features(request):
    name, parameters = request.param
    return make_features(name, **parameters)


def rows(n=300, seed=0, dim=4):
    rng = streams.generator(seed, "contract", "features")
    X = rng.normal(0.2, 0.6, (n, dim))
    actions = rng.integers(3, size=n)
    return X, actions, np.sin(2 * X[:, 0] + actions) + 0.1 * rng.standard_normal(n)


def drawn(features, seed=1, dim=4):
    return features.init(dim, streams.generator(seed, "map"))


def same(features, left, right):
    X = rows(seed=9)[0]
    return np.array_equal(features.apply(left, X), features.apply(right, X))


def test_the_set_tested_is_the_set_registered():
    assert {name for name, _ in CASES.values()} == set(list_features())


def test_a_map_is_fixed_once(features):
    """After the first batch it is final: later batches, calls and packing give the same columns, bit for bit."""
    start = drawn(features)
    first = features.fix(start, *rows(), None)
    assert features.fixed(first)
    assert same(features, features.fix(first, *rows(seed=5), None), first)
    assert same(features, first, first)
    assert same(features, unpack(type(first), *pack(first)), first)
    assert same(features, features.fix(drawn(features), *rows(), None), first)


def test_fixing_changes_neither_the_draw_nor_the_inputs(features):
    start, given = drawn(features), rows()
    before = pack(start)
    copies = [part.copy() for part in given]
    for part in given:
        part.flags.writeable = False
    features.fix(start, *given, None)
    assert pack(start)[0] == before[0]
    for name, array in pack(start)[1].items():
        np.testing.assert_array_equal(array, before[1][name])
    for part, copied in zip(given, copies, strict=True):
        np.testing.assert_array_equal(part, copied)


def test_what_is_fixed_depends_on_the_rows_alone(features):
    """Not on their order, on the names of the actions, or on copies given as weights."""
    X, actions, rewards = rows()
    plain = features.fix(drawn(features), X, actions, rewards, None)
    order = streams.generator(3, "order").permutation(len(X))
    shuffled = features.fix(drawn(features), X[order], actions[order], rewards[order], None)
    renamed = features.fix(drawn(features), X, np.array([2, 0, 1])[actions], rewards, None)
    copies = streams.generator(4, "copies").integers(0, 3, size=len(X))
    every = np.repeat(np.arange(len(X)), copies)
    weighted = features.fix(drawn(features), X, actions, rewards, copies.astype(float))
    copied = features.fix(drawn(features), X[every], actions[every], rewards[every], None)
    assert same(features, shuffled, plain) and same(features, renamed, plain) and same(features, copied, weighted)


def test_a_row_is_mapped_alone(features):
    state, X = features.fix(drawn(features), *rows(), None), rows(seed=2)[0]
    whole = features.apply(state, X)
    for part in (slice(0, 1), slice(7, 60), slice(299, None, -7)):
        # Rounding of a product, which the projection on small eigenvalues multiplies by up to a thousand.
        np.testing.assert_allclose(features.apply(state, X[part]), whole[part], rtol=0, atol=1e-12)
    assert whole.shape == (300, features.width(4))
    assert len(set(features.names(state, list("abcd")))) == features.width(4)
    assert features.apply(state, X[:0]).shape == (0, features.width(4))


def test_another_seed_draws_another_map(features):
    random = bool(pack(drawn(features))[1])
    assert same(features, drawn(features, seed=1), drawn(features, seed=1))
    assert same(features, drawn(features, seed=1), drawn(features, seed=2)) != random


def test_states_of_another_map_are_refused(features):
    features.check_state(drawn(features), 4)
    other = make_features("identity" if pack(drawn(features))[1] else "fourier")
    with pytest.raises(ParameterError):
        features.check_state(drawn(other), 4)
    if pack(drawn(features))[1]:
        with pytest.raises(ParameterError):
            features.check_state(drawn(features, dim=3), 4)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_not_fixed_upon(features, value):
    X, actions, rewards = rows()
    X[41, 2] = value
    if features.fixed(drawn(features)):
        assert features.fix(drawn(features), X, actions, rewards, None) is not None
        return
    with pytest.raises(InputError, match=rf"{value} at row 41, column 2"):
        features.fix(drawn(features), X, actions, rewards, None)


def test_every_parameter_has_a_rule(features):
    for item in fields(features):
        rule = item.metadata["rule"]
        wrong = [value for value in SUSPECTS if not rule.test(value)]
        assert wrong and item.metadata["doc"]
        for value in wrong:
            with pytest.raises(SpuirError) as caught:
                type(features)(**{item.name: value})
            assert all(part in str(caught.value) for part in (item.name, repr(value), rule.clause))

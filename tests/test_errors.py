import copy
import inspect
import multiprocessing

import pytest

from spuir import errors
from spuir.errors import SpuirError, did_you_mean, listed, nearest, quoted

FAMILY = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, SpuirError)]
BUILT_IN = {
    "ParameterError": ValueError,
    "InputError": ValueError,
    "RepeatedEpisodeError": ValueError,
    "UnknownNameError": LookupError,
    "NotFittedError": AttributeError,
    "ShardError": ValueError,
    "NumericalError": ArithmeticError,
    "SnapshotError": ValueError,
    "SnapshotFileError": OSError,
    "MissingSnapshotError": FileNotFoundError,
    "MissingExtraError": ImportError,
    "ServiceError": RuntimeError,
}


def refusal(kind: type[SpuirError]) -> SpuirError:
    parts = ("ridge", -1, "it must be > 0", "use 1")
    return kind("invalid", *parts) if kind is errors.ServiceError else kind(*parts)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", FAMILY)
def test_a_refusal_is_one_sentence_of_four_parts(kind: type[SpuirError]) -> None:
    error = refusal(kind)
    assert str(error) == "ridge: got -1, but it must be > 0; use 1."
    assert (error.subject, error.got, error.rule, error.remedy) == ("ridge", "-1", "it must be > 0", "use 1")
    assert "ridge: got -1" in repr(error)


def test_a_question_ends_as_one() -> None:
    assert str(SpuirError("policy", "'pui'", "no policy has that name", "did you mean 'puir'?")).endswith("'puir'?")


@pytest.mark.parametrize("kind", FAMILY)
def test_a_refusal_can_be_copied(kind: type[SpuirError]) -> None:
    error = refusal(kind)
    back = copy.copy(error)
    assert type(back) is kind
    assert str(back) == str(error)
    assert back.remedy == error.remedy


def test_a_refusal_of_the_service_keeps_its_code() -> None:
    back = copy.copy(errors.ServiceError("conflict", "id", "'a'", "it was used before", "use another", "decisions[3]"))
    assert (back.code, back.where) == ("conflict", "decisions[3]")


def test_a_refusal_crosses_process_boundaries() -> None:
    parts = ("file", "nothing", "it must exist", "check the path")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        error = pool.apply(errors.MissingSnapshotError, parts)
    assert type(error) is errors.MissingSnapshotError
    assert str(error) == "file: got nothing, but it must exist; check the path."


def test_each_is_also_the_built_in_that_a_caller_would_catch() -> None:
    assert {kind.__name__ for kind in FAMILY} - {"SpuirError"} == set(BUILT_IN)
    for name, built_in in BUILT_IN.items():
        assert issubclass(getattr(errors, name), built_in)


def test_a_missing_attribute_is_one_for_hasattr() -> None:
    class Owner:
        @property
        def coefficients_(self) -> None:
            raise errors.NotFittedError("coefficients_", "no episode yet", "they exist after fit", "call fit first")

    assert not hasattr(Owner(), "coefficients_")


@pytest.mark.parametrize(("name", "near"), [("aplha", "alpha"), ("BETA", "Beta"), (3, None), ("zzz", None)])
def test_the_nearest_name_ignores_case(name, near):
    assert nearest(name, ["alpha", "Beta"]) == near


def test_a_hint_names_the_nearest_or_all_names():
    assert did_you_mean("aplha", ["alpha", "beta"]) == "did you mean 'alpha'?"
    assert did_you_mean("x", ["alpha", "beta"], "parameters") == "the parameters are alpha, beta"


def test_lists_of_names_say_what_they_leave_out():
    assert listed(["b", "a"]) == "b, a"
    assert listed([]) == "none"
    assert listed(range(11)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 …"
    assert quoted(["1", 1]) == "'1', 1"

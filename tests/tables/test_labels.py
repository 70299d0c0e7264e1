"""Tables and labels from users: every form that is understood, every form that is refused."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from spuir.errors import InputError, ParameterError, UnknownNameError
from spuir.tables.contexts import as_table, column_names
from spuir.tables.labels import Labels

ROWS = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


class TestTables:
    @pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int8, np.uint64, np.bool_])
    @pytest.mark.parametrize("order", ["C", "F"])
    def test_numeric_arrays_are_not_copied(self, dtype: Any, order: Any) -> None:
        X = np.array(ROWS, dtype=dtype, order=order)
        X.flags.writeable = False
        assert as_table(X, None) is X

    @pytest.mark.parametrize(
        "X",
        [
            ROWS,
            tuple(map(tuple, ROWS)),
            [np.array(row) for row in ROWS],
            pd.DataFrame(ROWS),
            pd.DataFrame({"a": [1, 3, 5], "b": [2.0, 4.0, 6.0]}),
            pd.DataFrame({"a": pd.array([1, 3, 5], dtype="Int64"), "b": [2.0, 4.0, 6.0]}),
            np.array(ROWS, dtype=object),
        ],
        ids=["lists", "tuples", "list of arrays", "frame", "mixed frame", "nullable frame", "objects"],
    )
    def test_other_tables_become_numeric_arrays(self, X: Any) -> None:
        table = as_table(X, None)
        assert isinstance(table, np.ndarray) and table.dtype.kind in "fi"
        np.testing.assert_array_equal(table, ROWS)

    @pytest.mark.parametrize("make", [sparse.csr_array, sparse.csr_matrix, sparse.coo_array, sparse.csc_array])
    def test_sparse_tables_become_csr(self, make: Any) -> None:
        table = as_table(make(np.array(ROWS)), None)
        assert table.format == "csr"
        np.testing.assert_array_equal(table.toarray(), ROWS)

    def test_columns_of_a_frame_are_matched_by_name(self) -> None:
        X = pd.DataFrame(ROWS, columns=["b", "a"])
        assert column_names(X) == ["b", "a"]
        np.testing.assert_array_equal(as_table(X, ["a", "b"]), np.array(ROWS)[:, ::-1])
        np.testing.assert_array_equal(as_table(X, ("b", "a")), ROWS)
        assert column_names(np.array(ROWS)) is None

    @pytest.mark.parametrize(
        ("X", "text"),
        [
            (pd.DataFrame(ROWS, columns=["a", "c"]), "without 'b'"),
            (pd.DataFrame([[1, 2, 3]], columns=["a", "b", "c"]), "column 'c'"),
            (pd.DataFrame([[1, 2]], columns=["a", "a"]), "column 'a' twice"),
            (pd.DataFrame([[1, 2, 3]], columns=["b", "a", "b"]), "column 'b' twice"),
        ],
    )
    def test_other_columns_are_refused(self, X: Any, text: str) -> None:
        with pytest.raises(InputError, match=text):
            as_table(X, ["a", "b"])

    @pytest.mark.parametrize(
        ("X", "text"),
        [
            ([1.0, 2.0], r"shape \(2,\)"),
            (3.0, r"shape \(\)"),
            (None, r"shape \(\)"),
            (np.ones((1, 2, 3)), r"shape \(1, 2, 3\)"),
            ([[1.0, 2.0], [3.0]], "different lengths"),
            ([["1", "2"]], "must be numbers"),
            (np.array([[1 + 2j, 0]]), "complex"),
            (np.array([["2020-01-01", "2020-01-02"]], dtype="M8[D]"), "datetime"),
            (pd.DataFrame({"a": ["x"], "b": [1]}), "must be numbers"),
            (sparse.csr_array(np.array([[1 + 2j, 0]])), "complex"),
            (np.ones((3, 0)), "at least one column"),
        ],
        ids=str,
    )
    def test_what_is_no_table_of_numbers_is_refused(self, X: Any, text: str) -> None:
        with pytest.raises(InputError, match=text):
            as_table(X, None)


class TestLabels:
    @pytest.mark.parametrize(
        ("given", "names", "kind"),
        [
            (3, (0, 1, 2), "i"),
            (np.int64(2), (0, 1), "i"),
            (["a", "b"], ("a", "b"), "U"),
            (("a", "b"), ("a", "b"), "U"),
            (np.array(["x", "y"]), ("x", "y"), "U"),
            (np.array([7, 5]), (7, 5), "i"),
            (pd.Series(["x", "y"]), ("x", "y"), "U"),
            (["a", 1, None], ("a", 1, None), "O"),
            ([("a", 1), ("b", 2)], (("a", 1), ("b", 2)), "O"),
            ([0.5, 1.5], (0.5, 1.5), "O"),
            ([2**70, 1], (2**70, 1), "O"),
            (range(5, 7), (5, 6), "i"),
        ],
        ids=str,
    )
    def test_labels_keep_their_order_and_kind(self, given: Any, names: tuple[Any, ...], kind: str) -> None:
        labels = Labels.parse(given)
        assert labels.names == names and labels.active == (True,) * len(names)
        assert labels.array.shape == (len(names),) and labels.array.dtype.kind == kind
        assert labels.array.tolist() == list(names)
        assert labels.encode(list(names)).tolist() == list(range(len(names)))
        assert labels.encode(labels.array).tolist() == list(range(len(names)))
        assert labels.encode(names[::-1]).tolist() == list(range(len(names)))[::-1]

    @pytest.mark.parametrize(
        "given",
        [0, -1, True, 2.0, None, "ab", [], ["a", "a"], [1, True], [[1], [2]], {"a", "b"}, iter("ab"), [float("nan")]],
    )
    def test_other_actions_are_refused(self, given: Any) -> None:
        with pytest.raises(ParameterError):
            Labels.parse(given)

    def test_plain_labels_are_their_own_codes(self) -> None:
        labels, codes = Labels.parse(3), np.array([2, 0, 1])
        assert labels.plain and not Labels.parse([1, 0]).plain and not Labels.parse(["0", "1"]).plain
        assert labels.encode(codes) is codes
        assert labels.encode([2.0, np.int8(1)]).tolist() == [2, 1]
        assert labels.encode(np.array([2, 1], np.uint8)).dtype == np.intp

    @pytest.mark.parametrize(
        ("actions", "text"),
        [
            (np.array([0, 3]), "3 at row 1"),
            (np.array([-1]), "-1 at row 0"),
            ([0, "x"], "'x' at row 1"),
            ([0.5], "0.5 at row 0"),
            ([None], "None at row 0"),
            ([[0]], r"\[0\] at row 0"),
        ],
    )
    def test_an_unknown_label_is_named_with_its_row(self, actions: Any, text: str) -> None:
        with pytest.raises(UnknownNameError, match=text):
            Labels.parse(3).encode(actions)

    def test_the_nearest_label_is_suggested(self) -> None:
        labels = Labels.parse(["coupon", "voucher"])
        with pytest.raises(UnknownNameError, match="did you mean 'coupon'"):
            labels.encode(["cupon"])
        with pytest.raises(UnknownNameError, match="add_action"):
            labels.encode(["xyz"])
        with pytest.raises(UnknownNameError, match="pass one of them"):
            labels.code("xyz")
        for missing in (None, np.nan, pd.NA):
            with pytest.raises(UnknownNameError, match=r"at row 1.*drop or fill that row"):
                labels.encode(["coupon", missing])

    @pytest.mark.parametrize("actions", [2, "a", np.ones((2, 2), int)], ids=str)
    def test_actions_are_one_flat_column(self, actions: Any) -> None:
        with pytest.raises(InputError, match="one label per row"):
            Labels.parse(3).encode(actions)

    def test_labels_grow_and_retire_and_are_never_reused(self) -> None:
        labels = Labels.parse(["a", "b"]).added("c")
        assert labels.names == ("a", "b", "c") and labels.encode(["c"]).tolist() == [2]
        less = labels.retired("b")
        assert less.active == (True, False, True) and less.names == labels.names
        assert less.encode(["b"]).tolist() == [1]  # late rows are still learnt
        assert labels.active == (True, True, True)
        for again in ("a", "b"):
            with pytest.raises(ParameterError, match="never reused"):
                less.added(again)
        with pytest.raises(ParameterError, match="one action must remain"):
            less.retired("a").retired("c")
        with pytest.raises(UnknownNameError):
            less.retired("zzz")


TEXTS = st.lists(
    st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=7), min_size=1, max_size=12, unique=True
)


class TestWholeColumns:
    @given(names=TEXTS, seed=st.integers(0, 99), wider=st.booleans())
    def test_text_arrays_have_the_codes_of_their_labels(self, names: list[str], seed: int, wider: bool) -> None:
        codes = np.random.default_rng(seed).integers(len(names), size=20)
        values = np.array([names[code] for code in codes], dtype=f"U{9 if wider else max(map(len, names)) or 1}")
        np.testing.assert_array_equal(Labels.of(names).encode(values), codes)

    @pytest.mark.parametrize("count", [1, 2, 50, 300, 2_000])
    def test_many_labels_are_found_and_others_are_not(self, count: int) -> None:
        labels = Labels.of([f"coupon {j:05d}" for j in range(count)])
        codes = np.random.default_rng(0).integers(count, size=200)
        np.testing.assert_array_equal(labels.encode(labels.array[codes]), codes)
        with pytest.raises(UnknownNameError, match=r"'coupon 99999' at row 200"):
            labels.encode(np.array([*labels.array[codes], "coupon 99999"]))

    def test_no_rows_have_no_codes(self) -> None:
        labels = Labels.of(["mail", "call"])
        for column in ([], labels.array[:0], pd.Categorical([], categories=["call"]), pa.array([], pa.string())):
            assert labels.encode(column).tolist() == []

    def test_levels_seen_before_belong_to_one_set_of_labels(self) -> None:
        column = pd.Categorical(["mail", "none", "mail"], categories=["mail", "none"])
        other = pd.Categorical(["none", "mail"], categories=["none", "mail"])
        labels, turned = Labels.of(["mail", "none"]), Labels.of(["none", "mail"])
        for _ in range(2):
            assert labels.encode(column).tolist() == [0, 1, 0] and turned.encode(column).tolist() == [1, 0, 1]
            assert labels.encode(other).tolist() == [1, 0]
        few = Labels.of(["mail"])
        for _ in range(2):
            with pytest.raises(UnknownNameError, match=r"'none' at row 1"):
                few.encode(column)
        assert few.encode(column[::2]).tolist() == [0, 0]  # a level that no row has need not be known
        assert few.added("none").encode(column).tolist() == [0, 1, 0]

    @pytest.mark.parametrize("wrong", ["mai", "mail ", "mailmailmail", "", "Mail"])
    def test_a_text_that_only_resembles_a_label_is_unknown(self, wrong: str) -> None:
        with pytest.raises(UnknownNameError, match=r"at row 1"):
            Labels.of(["mail", "call"]).encode(np.array(["mail", wrong, "call"]))

    @pytest.mark.parametrize(
        "column",
        [
            lambda names: names,
            np.array,
            lambda names: np.array(names, dtype=object),
            pd.Series,
            lambda names: pd.Categorical(names, categories=["call", "none", "mail"]),
            lambda names: pd.Series(names, dtype="category"),
            lambda names: pa.array(names).dictionary_encode(),
            lambda names: pa.chunked_array([names[:2], names[2:]]).dictionary_encode(),
            pa.array,
        ],
        ids=["list", "text", "objects", "series", "categorical", "categories", "dictionary", "chunks", "arrow"],
    )
    def test_every_kind_of_column_has_the_same_codes(self, column: Any) -> None:
        names = ["mail", "call", "call", "mail", "call"]
        assert Labels.of(["call", "mail"]).encode(column(names)).tolist() == [1, 0, 0, 1, 0]

    @pytest.mark.parametrize("column", [pd.Categorical(["a", None]), pa.array(["a", None]).dictionary_encode()])
    def test_a_missing_label_is_named(self, column: Any) -> None:
        with pytest.raises(UnknownNameError, match=r"got None at row 1.*drop or fill"):
            Labels.of(["a", "b"]).encode(column)

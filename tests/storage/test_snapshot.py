import errno
import json
import math
import os
import stat
import struct
import sys
import tracemalloc
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from spuir import errors
from spuir.base import packing
from spuir.base.records import State
from spuir.errors import MissingSnapshotError, SnapshotError, SnapshotFileError
from spuir.storage import snapshot

HEADER = {"policy": "puir", "alpha": 0.1, "labels": ["a", "β"], "none": None, "nested": {"deep": [1, -0.0, True]}}
ARRAYS = {
    "gram": np.arange(24.0).reshape(2, 3, 4),
    "counts": np.array([1, 2, 3]),
    "mask": np.array([True, False, True]),
    "empty": np.zeros((0, 40)),
    "scalar": np.array(math.inf),
}
NAMES = ["bool", "uint8", "int8", "int32", "int64", "uint32", "uint64", "float32", "float64"]


def sealed(text: bytes, data: bytes = b"", *, magic=b"\x89SPUIR\r\n", version=1, length: int | None = None) -> bytes:
    """A file whose digest is right, whatever it claims."""
    body = struct.pack("<8sQQ", magic, version, len(text) if length is None else length) + text + data
    return body + blake2b(body, digest_size=32).digest()


def claim(*arrays: Any, header: Any = None) -> bytes:
    return json.dumps({"header": header or {}, "arrays": list(arrays)}).encode()


def refused(path: Path, raw: bytes, match: str) -> SnapshotError:
    path.write_bytes(raw)
    with pytest.raises(SnapshotError, match=match) as caught:
        snapshot.read(path)
    assert str(path) in caught.value.subject
    assert caught.value.remedy
    return caught.value


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    snapshot.write(tmp_path / "state", HEADER, ARRAYS)
    return tmp_path / "state"


# ---------------------------------------------------------------- round trip


def test_what_is_read_is_what_was_written(saved: Path) -> None:
    header, arrays = snapshot.read(saved)
    assert header == HEADER
    assert math.copysign(1, header["nested"]["deep"][1]) == -1
    assert list(arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array, strict=True)


@given(
    hnp.arrays(st.sampled_from(NAMES), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0)),
    st.booleans(),
)
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_arrays_of_any_dtype_layout_and_byte_order_come_back_bit_for_bit(tmp_path, array, big) -> None:
    given_array = array.astype(array.dtype.newbyteorder(">")) if big else array
    for layout in (given_array, np.asfortranarray(given_array), given_array[::-1] if array.ndim else given_array):
        snapshot.write(tmp_path / "any", {}, {"x": layout})
        back = snapshot.read(tmp_path / "any")[1]["x"]
        assert back.shape == layout.shape
        assert back.dtype == array.dtype
        assert back.tobytes() == layout.astype(array.dtype).tobytes()


def test_returned_arrays_are_writable_and_independent(saved: Path) -> None:
    first, second = snapshot.read(saved)[1], snapshot.read(saved)[1]
    first["gram"][:] = -1
    first["mask"][:] = False
    assert not np.shares_memory(first["gram"], first["counts"])
    np.testing.assert_array_equal(second["gram"], ARRAYS["gram"])
    np.testing.assert_array_equal(snapshot.read(saved)[1]["mask"], ARRAYS["mask"])


def test_writing_never_changes_its_arguments(tmp_path: Path) -> None:
    array = np.arange(6.0).reshape(2, 3)[:, ::-1]
    array.flags.writeable = False
    header = {"a": [1]}
    snapshot.write(tmp_path / "x", header, {"x": array})
    assert header == {"a": [1]}


@pytest.mark.parametrize("kind", [str, Path])
def test_the_path_is_taken_exactly(tmp_path: Path, kind, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("plain", "with.dots.npz", "ünï code"):
        snapshot.write(kind(name), {}, {})
    assert sorted(os.listdir(tmp_path)) == sorted(["plain", "with.dots.npz", "ünï code"])


def test_equal_content_gives_equal_bytes(tmp_path: Path) -> None:
    for name in "ab":
        snapshot.write(tmp_path / name, HEADER, ARRAYS)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_array_data_are_aligned(saved: Path) -> None:
    raw = saved.read_bytes()
    assert raw.index(ARRAYS["gram"].tobytes()) % 64 == 0
    assert (len(raw) - 32) % 64 == 0


# ---------------------------------------------------------------- versions


def test_older_formats_load(saved: Path, monkeypatch) -> None:
    monkeypatch.setattr(snapshot, "FORMAT_VERSION", snapshot.FORMAT_VERSION + 1)
    assert snapshot.read(saved)[0] == HEADER


def test_newer_formats_are_refused_with_both_versions(tmp_path: Path) -> None:
    error = refused(tmp_path / "x", sealed(claim(), version=7), "format version 7")
    assert f"formats 1 to {snapshot.FORMAT_VERSION}" in error.rule and "upgrade" in error.remedy
    error = refused(tmp_path / "x", sealed(claim(), version=0), "format version 0")
    assert "upgrade" not in error.remedy


# ---------------------------------------------------------------- damage


@given(st.data())
@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_changed_byte_is_noticed(saved: Path, data) -> None:
    raw = bytearray(saved.read_bytes())
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= data.draw(st.integers(1, 255))
    target = saved.with_name("flipped")
    target.write_bytes(raw)
    with pytest.raises(SnapshotError):
        snapshot.read(target)


def test_any_truncation_or_extension_is_noticed(saved: Path) -> None:
    raw, target = saved.read_bytes(), saved.with_name("cut")
    for length in [*range(0, len(raw), 7), len(raw) - 1]:
        target.write_bytes(raw[:length])
        with pytest.raises(SnapshotError, match="bytes"):
            snapshot.read(target)
    for extra in (b"\0", b"\0" * 64, raw):
        refused(target, raw + extra, "describes a file of")


def test_an_empty_a_missing_and_a_foreign_file_and_a_folder(tmp_path: Path) -> None:
    refused(tmp_path / "x", b"", "got 0 bytes")
    refused(tmp_path / "x", b"PK\x03\x04" + bytes(100), "begins with")
    with pytest.raises(SnapshotError, match="regular file"):
        snapshot.read(tmp_path)
    with pytest.raises(SnapshotError, match="check the path") as caught:
        snapshot.read(tmp_path / "absent")
    assert isinstance(caught.value, MissingSnapshotError)
    assert isinstance(caught.value, FileNotFoundError)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SnapshotError, match="regular file"):
        snapshot.read(tmp_path / "pipe")


# ---------------------------------------------------------------- hostility


HOSTILE = {
    "more elements than any memory": (claim(["x", "float64", [2**59]]), b"", "describes a file of"),
    "a size beyond 64 bits": (claim(["x", "float64", [2**40, 2**40]]), b"", "less than 2"),
    "a huge size beside a zero": (claim(["x", "float64", [0, 2**62]]), b"", "less than 2"),
    "a product that wraps to 0 in 64 bits": (claim(["x", "uint8", [2**32, 2**32]]), b"", "less than 2"),
    "a negative size": (claim(["x", "float64", [-1]]), b"", "integers ≥ 0"),
    "two negative sizes": (claim(["x", "uint8", [-8, -8]]), bytes(64), "integers ≥ 0"),
    "a size that is a float": (claim(["x", "float64", [8.0]]), bytes(64), "integers ≥ 0"),
    "a size that is a flag": (claim(["x", "float64", [True]]), bytes(64), "integers ≥ 0"),
    "too many axes": (claim(["x", "uint8", [1] * 33]), bytes(64), "at most 32"),
    "an object dtype": (claim(["x", "object", [8]]), bytes(64), "dtypes are"),
    "a dtype with fields": (claim(["x", [["a", "<f8"]], [8]]), bytes(64), "dtypes are"),
    "a raw dtype string": (claim(["x", "<f8", [8]]), bytes(64), "dtypes are"),
    "a name with a space": (claim(["x y", "uint8", [64]]), bytes(64), "names match"),
    "an empty name": (claim(["", "uint8", [64]]), bytes(64), "names match"),
    "a name with a line end": (claim(["x\n", "uint8", [64]]), bytes(64), "names match"),
    "a name twice": (claim(["x", "uint8", [64]], ["x", "uint8", [64]]), bytes(128), "unique"),
    "an entry too short": (claim(["x", "uint8"]), b"", "a name, a dtype and a shape"),
    "an entry that is a text": (claim("xyz"), b"", "a name, a dtype and a shape"),
    "too many arrays": (claim(*[[f"x{i}", "uint8", [0]] for i in range(10_001)]), b"", "at most 10000"),
    "no directory": (b'{"header":{}}', b"", "header and arrays"),
    "a list for a header": (b"[]", b"", "header and arrays"),
    "a user header that is a list": (b'{"header":[],"arrays":[]}', b"", "header is an object"),
    "a directory that is an object": (b'{"header":{},"arrays":{}}', b"", "arrays a list"),
    "a key twice": (b'{"header":{"a":1,"a":2},"arrays":[]}', b"", "a key twice"),
    "not a number": (b'{"header":{"a":NaN},"arrays":[]}', b"", "finite"),
    "infinity": (b'{"header":{"a":-Infinity},"arrays":[]}', b"", "finite"),
    "a number that overflows": (b'{"header":{"a":1e999},"arrays":[]}', b"", "finite"),
    "an endless integer": (b'{"header":{"a":' + b"9" * 10_000 + b'},"arrays":[]}', b"", "JSON"),
    "no JSON": (b"{", b"", "JSON"),
    "no text": (b"\xff\xfe\x00", b"", "JSON"),
    "nesting without end": (b'{"header":{"a":' + b"[" * 200_000, b"", "deep nesting"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_sealed_file_with_hostile_claims_is_refused(tmp_path: Path, case: str) -> None:
    text, data, match = HOSTILE[case]
    refused(tmp_path / "x", sealed(text, data), match)


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**24 + 1, 10_000])
def test_a_header_longer_than_its_file_is_refused(tmp_path: Path, length: int) -> None:
    refused(tmp_path / "x", sealed(claim(), length=length), f"a header of {length} bytes")


def test_a_header_beyond_the_limit_is_refused_even_if_the_file_has_it(tmp_path: Path) -> None:
    with open(tmp_path / "x", "wb") as file:
        file.write(struct.pack("<8sQQ", b"\x89SPUIR\r\n", 1, 2**24 + 1))
        file.truncate(2**26)
    with pytest.raises(SnapshotError, match="at most 16777216"):
        snapshot.read(tmp_path / "x")


def test_nothing_is_allocated_from_a_claim(tmp_path: Path) -> None:
    for i, raw in enumerate(
        [
            sealed(claim(["x", "float64", [2**27]])),
            sealed(claim(["x", "float64", [2**60]])),
            sealed(claim(), length=2**63),
        ]
    ):
        (tmp_path / str(i)).write_bytes(raw)
    # A sparse file that is as large as it claims, but whose digest is wrong: read in small pieces.
    text = claim(["x", "float64", [2**24]])
    text += b" " * (-(24 + len(text)) % 64)
    with open(tmp_path / "sparse", "wb") as file:
        file.write(struct.pack("<8sQQ", b"\x89SPUIR\r\n", 1, len(text)) + text)
        file.truncate(24 + len(text) + 2**27 + 32)
    for name in ("0", "1", "2", "sparse"):
        tracemalloc.start()
        try:
            with pytest.raises(SnapshotError):
                snapshot.read(tmp_path / name)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 4 * 2**20, name


def test_a_byte_that_is_neither_true_nor_false_becomes_true(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(sealed(claim(["m", "bool", [3]]), b"\x00\x01\x02" + bytes(61)))
    mask = snapshot.read(tmp_path / "x")[1]["m"]
    np.testing.assert_array_equal(mask.view(np.uint8), [0, 1, 1])


def test_loading_never_imports_or_unpickles() -> None:
    for module in (snapshot, packing):
        source = Path(str(module.__file__)).read_text()
        assert not {"pickle", "marshal", "import_module", "eval(", "exec("} & set(source.replace("(", "( ").split())
        assert "pickle" not in source


# ---------------------------------------------------------------- writing


@pytest.mark.parametrize(
    ("header", "arrays", "match"),
    [
        ({"a": math.nan}, {}, "finite JSON"),
        ({"a": 10**5000}, {}, "JSON"),
        ({"a": object()}, {}, "finite JSON"),
        ({"a": {1: 0, "1": 1}}, {}, "a key twice"),
        ([], {}, "header is an object"),
        ({}, {"x": np.array([None])}, "dtypes are"),
        ({}, {"x": np.zeros(1, complex)}, "dtypes are"),
        ({}, {"x": np.ma.zeros(1)}, "dtypes are"),
        ({}, {"x": [1.0]}, "dtypes are"),
        ({}, {"no good": np.zeros(1)}, "names match"),
        ({"a": "x" * 2**24}, {}, "at most"),
    ],
)
def test_what_could_not_be_read_is_not_written(saved: Path, header, arrays, match) -> None:
    before = saved.read_bytes()
    with pytest.raises(SnapshotError, match=match):
        snapshot.write(saved, header, arrays)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == ["state"]


def test_a_full_disk_keeps_the_old_file_and_leaves_no_other(saved: Path) -> None:
    resource = pytest.importorskip("resource")
    before = saved.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))  # writes beyond 64 KiB fail half way
    try:
        with pytest.raises(SnapshotFileError, match="free space") as caught:
            snapshot.write(saved, {}, {"big": np.ones(1 << 15)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert isinstance(caught.value, OSError)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.EFBIG
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == ["state"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_at_any_step_keeps_the_old_file(saved: Path, monkeypatch, failing, error) -> None:
    before = saved.read_bytes()

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(snapshot.os, failing, fail)
    with pytest.raises((SnapshotFileError, KeyboardInterrupt)):
        snapshot.write(saved, {"new": True}, {})
    monkeypatch.undo()
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == ["state"]


def test_the_file_reaches_the_disk_before_it_takes_the_name_and_the_folder_after(saved: Path, monkeypatch) -> None:
    steps: list[str] = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(handle: int) -> None:
        steps.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        real_fsync(handle)

    def replace(old: str, new: str) -> None:
        steps.append("rename")
        assert Path(old).parent == Path(new).parent
        real_replace(old, new)

    monkeypatch.setattr(snapshot.os, "fsync", fsync)
    monkeypatch.setattr(snapshot.os, "replace", replace)
    snapshot.write(saved, {}, {})
    assert steps == ["file", "rename", "folder"]


def test_a_folder_that_cannot_be_flushed_is_told_and_the_new_file_is_whole(saved: Path, monkeypatch) -> None:
    real_fsync = os.fsync

    def fsync(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EIO, "Input/output error")
        real_fsync(handle)

    monkeypatch.setattr(snapshot.os, "fsync", fsync)
    with pytest.raises(SnapshotFileError, match="Input/output error"):
        snapshot.write(saved, {"new": True}, {})
    assert snapshot.read(saved)[0] == {"new": True}
    assert os.listdir(saved.parent) == ["state"]


def test_the_mode_of_a_file_is_kept(saved: Path) -> None:
    saved.chmod(0o640)
    snapshot.write(saved, {}, {})
    assert saved.stat().st_mode & 0o777 == 0o640


def test_a_folder_that_is_the_target_is_refused_and_a_missing_one_is_made(tmp_path: Path) -> None:
    for path in (tmp_path, f"{tmp_path}/"):
        with pytest.raises(SnapshotFileError, match="got a folder, but a saved model is one file; name a file in it"):
            snapshot.write(path, {}, {})
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(MissingSnapshotError, match="the file must exist"):
        snapshot.read(tmp_path / "no" / "file")
    snapshot.write(tmp_path / "no" / "file", {}, {})
    assert snapshot.read(tmp_path / "no" / "file")[0] == {}


# ---------------------------------------------------------------- records


@dataclass(frozen=True, kw_only=True)
class Sums:
    gram: NDArray[np.float64]
    weight: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Map:
    dim: int


@dataclass(frozen=True, kw_only=True)
class Fourier(Map):
    frequencies: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Hashed(Map):
    signs: NDArray[np.int64]
    inner: Map | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Full(State):
    observed: Sums
    imputed: Sums | None = None
    feature: Map = Map(dim=0)
    either: Sums | Map | None = None
    shards: tuple[Sums, ...] = ()
    pair: tuple[int, NDArray[np.bool_]] = (0, np.zeros(0, bool))
    maybe: NDArray[np.int64] | None = None
    rate: float | str = 0.1
    kind: Literal["a", "b"] = "a"
    fixed: bool = False
    cache: Any = field(default=None, metadata={"saved": False})
    doubled: int = field(init=False, default=0)


def sums(seed: int) -> Sums:
    return Sums(gram=np.random.default_rng(seed).normal(size=(2, 3, 3)), weight=seed / 3)


FULL = Full(
    n_actions=2,
    dim=3,
    episode=5,
    observed=sums(1),
    imputed=sums(2),
    feature=Fourier(dim=3, frequencies=np.ones((3, 4))),
    either=Hashed(dim=3, signs=np.array([1, -1]), inner=Fourier(dim=1, frequencies=np.zeros((1, 1)))),
    shards=(sums(3), sums(4)),
    pair=(7, np.array([True, False])),
    maybe=np.array([4]),
    rate=-math.inf,
    kind="b",
    fixed=True,
    cache=object(),
)


def same(left: Any, right: Any) -> None:
    assert type(left) is type(right)
    if isinstance(left, np.ndarray):
        np.testing.assert_array_equal(left, right, strict=True)
    elif isinstance(left, tuple):
        assert len(left) == len(right)
        for a, b in zip(left, right, strict=True):
            same(a, b)
    elif hasattr(left, "__dataclass_fields__"):
        for name, item in left.__dataclass_fields__.items():
            if item.metadata.get("saved", True):
                same(getattr(left, name), getattr(right, name))
    else:
        assert left == right


@pytest.mark.parametrize("record", [FULL, Full(n_actions=1, dim=1, observed=sums(0))], ids=["full", "defaults"])
def test_a_record_survives_the_file(tmp_path: Path, record: Full) -> None:
    meta, arrays = snapshot.pack(record)
    snapshot.write(tmp_path / "x", {"state": meta}, arrays)
    header, arrays = snapshot.read(tmp_path / "x")
    back = snapshot.unpack(Full, header["state"], arrays)
    same(back, record)
    assert back.cache is None
    assert back.derived is not record.derived


def test_paths_name_the_arrays_and_no_class_is_kept() -> None:
    meta, arrays = snapshot.pack(FULL)
    expected = "observed.gram imputed.gram feature.frequencies either.signs either.inner.frequencies shards.0.gram "
    assert sorted(arrays) == sorted((expected + "shards.1.gram pair.1 maybe rate").split())
    assert not {"Full", "Sums", "Map", "Fourier", "Hashed", "cache", "derived"} & set(json.dumps(meta).split('"'))
    assert arrays["observed.gram"] is FULL.observed.gram


def test_numpy_numbers_become_plain_ones() -> None:
    meta, _ = snapshot.pack(Sums(gram=np.zeros(1), weight=np.float32(0.5)))  # pyright: ignore[reportArgumentType]
    assert type(meta["weight"]) is float
    meta, _ = snapshot.pack(Map(dim=np.int64(3)))  # pyright: ignore[reportArgumentType]
    assert type(meta["dim"]) is int


def test_a_field_added_since_takes_its_default() -> None:
    meta, arrays = snapshot.pack(FULL)
    del meta["maybe"], meta["rate"], meta["observed"]["weight"]
    back = snapshot.unpack(Full, meta, arrays)
    assert (back.maybe, back.rate, back.observed.weight) == (None, 0.1, 0.0)


def change(meta: dict[str, Any], path: str, value: Any) -> None:
    *folders, last = path.split(".")
    for name in folders:
        meta = meta[name]
    meta[last] = value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("n_actions", "2"),
        ("n_actions", 2.0),
        ("n_actions", True),
        ("n_actions", None),
        ("fixed", 1),
        ("kind", "c"),
        ("observed", None),
        ("observed", 3),
        ("observed", {}),
        ("observed", {"gram": "observed.gram", "weight": 0.0, "code": "x"}),
        ("observed.gram", "imputed.gram"),
        ("observed.gram", None),
        ("observed.gram", [[0.0]]),
        ("shards", {}),
        ("pair", [1]),
        ("pair", [1, "pair.1", 2]),
        ("pair", [False, "pair.1"]),
        ("feature", {"dim": 3, "unknown": 1}),
        ("extra", 1),
    ],
)
def test_meta_that_does_not_fit_the_hints_is_refused(path: str, value: Any) -> None:
    meta, arrays = snapshot.pack(FULL)
    change(meta, path, value)
    with pytest.raises(SnapshotError, match="saved record"):
        snapshot.unpack(Full, meta, arrays)


@pytest.mark.parametrize("wrong", [np.zeros(3, np.float32), np.zeros(3, int), np.zeros(3, bool)])
def test_an_array_of_another_dtype_is_refused(wrong: NDArray[Any]) -> None:
    meta, arrays = snapshot.pack(FULL)
    with pytest.raises(SnapshotError, match=r"observed\.gram"):
        snapshot.unpack(Full, meta, {**arrays, "observed.gram": wrong})
    with pytest.raises(SnapshotError, match="hint"):
        snapshot.unpack(Full, meta, {**arrays, "rate": wrong})


@dataclass(frozen=True)
class Twin(Sums):
    """The same fields as its parent: hints cannot tell them apart."""


@dataclass(frozen=True)
class Loose:
    value: Any


@dataclass(frozen=True)
class Bare:
    value: tuple  # pyright: ignore[reportMissingTypeArgument]


@dataclass(frozen=True)
class Untold:
    value: "NoSuchName"  # pyright: ignore[reportUndefinedVariable]  # noqa: F821


@dataclass(frozen=True)
class Positive:
    value: int

    def __post_init__(self) -> None:
        if self.value <= 0:
            raise errors.ParameterError("value", self.value, "it must be > 0", "raise it")


@dataclass(frozen=True)
class Chain:
    next: "Chain | None" = None


@pytest.mark.parametrize(
    "record",
    [
        Full(n_actions=1, dim=1, observed=Twin(gram=np.zeros(1))),
        Loose({"a": 1}),
        Loose([1]),
        Loose(sums(1)),
        Bare((1, 2)),
        Untold(1),
        Sums(gram=np.zeros(3, np.float32)),  # pyright: ignore[reportArgumentType]
        Sums(gram=np.ma.zeros(3)),  # pyright: ignore[reportArgumentType]
        Map(dim="three"),  # pyright: ignore[reportArgumentType]
        np.zeros(3),
        3,
    ],
)
def test_a_record_that_hints_could_not_rebuild_is_refused_when_packed(record: Any) -> None:
    with pytest.raises(SnapshotError, match=r"hint|class|fields"):
        snapshot.pack(record)


def test_plain_values_pass_where_anything_is_hinted() -> None:
    for value in (1, 0.5, "x", None, True):
        assert snapshot.unpack(Loose, *snapshot.pack(Loose(value))) == Loose(value)


def test_a_record_that_refuses_its_values_names_the_cause() -> None:
    with pytest.raises(SnapshotError, match="must accept its saved fields") as caught:
        snapshot.unpack(Positive, {"value": 0}, {})
    assert isinstance(caught.value.__cause__, errors.ParameterError)


def test_endless_nesting_of_records_is_refused() -> None:
    meta: dict[str, Any] = {"next": None}
    for _ in range(sys.getrecursionlimit() + 10):
        meta = {"next": meta}
    with pytest.raises(SnapshotError, match="deep nesting"):
        snapshot.unpack(Chain, meta, {})


@given(st.recursive(st.none(), lambda inner: st.builds(Chain, inner), max_leaves=5))
@example(Chain(Chain(Chain())))
@settings(max_examples=20, deadline=None, derandomize=True)
def test_recursive_records_round_trip(chain: Chain | None) -> None:
    record = Chain(chain)
    assert snapshot.unpack(Chain, *snapshot.pack(record)) == record


def test_a_kind_of_record_is_rebuilt_once(monkeypatch) -> None:
    rebuilt: list[type] = []
    unpack = packing.unpack

    def count(cls: type, *rest: Any) -> Any:
        rebuilt.append(cls)
        return unpack(cls, *rest)

    monkeypatch.setattr(packing, "unpack", count)
    monkeypatch.setattr(packing, "_rebuilt", set())
    for value in (Loose(1), Loose(2), Loose(0.5), Loose(1.5)):
        packing.pack(value)
    assert rebuilt == [Loose, Loose]
    with pytest.raises(SnapshotError, match="another class"):
        packing.pack(Loose(math.inf))
    with pytest.raises(SnapshotError, match="hint"):
        packing.pack(Full(n_actions=1, dim=1, observed=sums(0), kind="c"))  # pyright: ignore[reportArgumentType]

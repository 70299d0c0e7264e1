"""The file of keys: hashes only, readable by its owner only, and noticed when it changes."""

import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from spuir.errors import InputError, ParameterError, ServiceError, UnknownNameError
from spuir.service.keys import KeyRing, create_key, read_keys, revoke_key


def bearer(token: str) -> bytes:
    return f"Bearer {token}".encode()


def test_a_key_opens_and_its_text_is_nowhere(tmp_path) -> None:
    path = tmp_path / "keys.json"
    key, token = create_key(path, ["decide", "reward"], experiments=["shop"], rate=5, label="web")
    content = path.read_text()
    assert token not in content
    assert token.split("_", 2)[2] not in content
    assert key.hash in content
    ring = KeyRing(path)
    found = ring.find(bearer(token))
    assert found is not None and found == key
    assert found.may("decide") and found.may("reward") and not found.may("read") and not found.may("admin")
    assert found.covers("shop") and not found.covers("other")


@pytest.mark.skipif(os.name != "posix", reason="file modes are those of POSIX")
def test_only_the_owner_can_read_the_file(tmp_path) -> None:
    path = tmp_path / "keys.json"
    create_key(path, ["read"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    create_key(path, ["read"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give files away")
def test_the_owner_of_the_file_stays_when_root_changes_it(tmp_path) -> None:
    path = tmp_path / "keys.json"
    key, _ = create_key(path, ["read"])
    os.chown(path, 12345, 54321)
    revoke_key(path, key.id)  # the service, which runs as that user, has to be able to read it
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 54321)


@pytest.mark.skipif(os.name != "posix", reason="file modes are those of POSIX")
def test_a_change_of_its_rights_is_noticed(tmp_path) -> None:
    path = tmp_path / "keys.json"
    create_key(path, ["read"])
    ring = KeyRing(path)
    assert not ring.refresh()
    time.sleep(0.01)
    path.chmod(0o640)
    assert ring.refresh()


def test_keys_that_are_made_at_once_are_all_kept(tmp_path) -> None:
    path = tmp_path / "new folder" / "keys.json"
    with ThreadPoolExecutor(8) as pool:
        made = [key.id for key, _ in pool.map(lambda _: create_key(path, ["read"]), range(48))]
        list(pool.map(lambda number: revoke_key(path, number), made[:16]))
    assert {key.id for key in read_keys(path)} == set(made[16:])
    assert os.listdir(path.parent) == ["keys.json"]


def test_two_keys_differ(tmp_path) -> None:
    tokens = {create_key(tmp_path / "keys.json", ["read"])[1] for _ in range(5)}
    assert len(tokens) == 5
    assert all(len(token.split("_", 2)[2]) == 43 for token in tokens)


def test_changes_of_the_file_are_noticed(tmp_path) -> None:
    path = tmp_path / "keys.json"
    key, token = create_key(path, ["read"])
    ring = KeyRing(path)
    assert not ring.refresh()
    _, second = create_key(path, ["admin"])
    assert ring.find(bearer(second)) is None
    assert ring.refresh()
    assert ring.find(bearer(second)) is not None
    revoke_key(path, key.id)
    ring.refresh()
    assert ring.find(bearer(token)) is None
    path.unlink()
    ring.refresh()
    assert len(ring) == 0


def test_a_damaged_file_is_refused_and_the_known_keys_stay(tmp_path) -> None:
    path = tmp_path / "keys.json"
    _, token = create_key(path, ["read"])
    ring = KeyRing(path)
    path.write_text('{"keys": [')
    with pytest.raises(InputError, match="restore it from a backup"):
        ring.refresh()
    assert ring.find(bearer(token)) is not None
    with pytest.raises(InputError):
        KeyRing(path)


@pytest.mark.parametrize(
    "header", [None, b"", b"Bearer", b"bearer x", b"Bearer spuir__", b"Basic x", b"Bearer \xff", b"Bearer a b"]
)
def test_other_headers_are_no_keys(tmp_path, header: bytes | None) -> None:
    create_key(tmp_path / "keys.json", ["read"])
    assert KeyRing(tmp_path / "keys.json").find(header) is None


def test_wrong_rights_are_refused(tmp_path) -> None:
    path = tmp_path / "keys.json"
    with pytest.raises(ParameterError, match="at least one role"):
        create_key(path, [])
    with pytest.raises(UnknownNameError, match="did you mean 'reward'"):
        create_key(path, ["rewards"])
    with pytest.raises(ParameterError, match="rate"):
        create_key(path, ["read"], rate=0)
    with pytest.raises(ServiceError, match="got 'Web shop', but a name has"):
        create_key(path, ["read"], experiments=["shop", "Web shop"])
    with pytest.raises(UnknownNameError, match="no such key"):
        revoke_key(path, "000000000000")
    assert read_keys(path) == []
    assert not path.exists()

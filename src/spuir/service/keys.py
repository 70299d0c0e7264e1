"""API keys: who may call the service, for what, and on which experiments.

A key is a random text of 256 bits, so that one SHA-256 hash protects it: nobody can guess its way back from the hash.
The file of keys holds hashes only, and a key is shown once, when it is made. Keys are compared in constant time and
never logged.
"""

import hashlib
import hmac
import os
import re
import secrets
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from spuir.errors import InputError, ParameterError, SpuirError, UnknownNameError, did_you_mean
from spuir.service.settings import check_name
from spuir.storage.atomic import write_atomically

ROLES = {
    "decide": "ask for decisions and activate them",
    "reward": "report rewards",
    "read": "read experiments, decisions, versions, the log and the metrics",
    "admin": "everything",
}
"""What a key may do, by role. A key may have several roles."""

TOKEN = re.compile(r"spuir_([0-9a-f]{12})_([A-Za-z0-9_-]{43})\Z")


class ApiKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One key as the file holds it: its rights and the hash of its text."""

    id: str
    hash: str
    roles: tuple[str, ...]
    label: str = ""
    experiments: tuple[str, ...] | None = None
    """The experiments it is limited to; None for all."""
    rate: float | None = None
    """Requests per second; None for the limit of the server."""
    created: str = ""

    def may(self, role: str) -> bool:
        """Tell whether the key has a role; an admin has every role."""
        return role in self.roles or "admin" in self.roles

    def covers(self, experiment: str) -> bool:
        """Tell whether the key may see an experiment."""
        return self.experiments is None or experiment in self.experiments


ANYBODY = ApiKey(id="local", hash="", roles=("admin",), label="no keys are configured")
"""Who calls a server without keys, which listens on this machine only."""


class _KeyFile(msgspec.Struct, forbid_unknown_fields=True):
    """The content of a file of keys."""

    keys: list[ApiKey]


class KeyRing:
    """The keys of a file; :meth:`refresh` notices changes, so that a revoked key stops working without a restart."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._seen: tuple[int, ...] | None = None
        self._keys: dict[str, ApiKey] = {}
        self.refresh()

    def __len__(self) -> int:
        return len(self._keys)

    def refresh(self) -> bool:
        """Read the file again if it changed, and return whether it did. A file that is gone holds no keys.

        Raises
        ------
        InputError
            The file is damaged. The keys that were read before stay valid.
        """
        try:
            status = self.path.stat()
            # The time of the last change of its rights counts too: a file may have been unreadable before.
            seen = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size)
        except FileNotFoundError:
            seen = None
        if seen == self._seen:
            return False
        self._seen = seen
        self._keys = {key.id: key for key in read_keys(self.path)}
        return True

    def find(self, authorization: bytes | None) -> ApiKey | None:
        """Return the key of an ``Authorization: Bearer …`` header, or None if there is no such key."""
        scheme, _, token = (authorization or b"").partition(b" ")
        try:
            found = TOKEN.match(token.decode("ascii")) if scheme.lower() == b"bearer" else None
        except UnicodeDecodeError:
            found = None
        if found is None:
            return None
        key = self._keys.get(found[1])
        # An unknown id takes the time of a known one: something is hashed and compared for both.
        same = hmac.compare_digest(_hash(token), (key or ANYBODY).hash or "0" * 64)
        return key if same else None


def read_keys(path: str | Path) -> list[ApiKey]:
    """Return the keys of a file; a file that does not exist has none."""
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        return []
    except OSError as failure:
        raise InputError("keys", path, f"it cannot be read ({failure.strerror})", "check its permissions") from None
    if not content:
        return []
    try:
        keys = msgspec.json.decode(content, type=_KeyFile).keys
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        rule = f"it is a file that spuir serve keys wrote ({wrong})"
        raise InputError("keys", path, rule, "restore it from a backup, or delete it and create new keys") from None
    for key in keys:
        _check_roles(key.roles)
    return keys


def create_key(
    path: str | Path,
    roles: Sequence[str],
    *,
    experiments: Sequence[str] | None = None,
    rate: float | None = None,
    label: str = "",
) -> tuple[ApiKey, str]:
    """Add a key to a file, which is made if it does not exist; return the key and its text, which is not kept."""
    if not roles:
        raise ParameterError("role", "none", "a key has at least one role", f"choose from {', '.join(ROLES)}")
    _check_roles(roles)
    if rate is not None and not 0 < rate < float("inf"):
        raise ParameterError("rate", rate, "it must be a finite number > 0", "leave it out for the server's limit")
    for name in experiments or ():
        check_name(name)  # a key for a name that no experiment can have would see nothing, without a word
    number = secrets.token_hex(6)
    token = f"spuir_{number}_{secrets.token_urlsafe(32)}"
    key = ApiKey(
        id=number,
        hash=_hash(token.encode()),
        roles=tuple(dict.fromkeys(roles)),
        label=label,
        experiments=None if experiments is None else tuple(dict.fromkeys(experiments)),
        rate=rate,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    with _alone(path):
        _write(path, [*read_keys(path), key])
    return key, token


def revoke_key(path: str | Path, number: str) -> ApiKey:
    """Remove a key from a file by its id, and return it."""
    with _alone(path):
        keys = {key.id: key for key in read_keys(path)}
        if number not in keys:
            raise UnknownNameError("key", repr(number), f"{path} has no such key", did_you_mean(number, keys, "ids"))
        gone = keys.pop(number)
        _write(path, keys.values())
    return gone


def _check_roles(roles: Iterable[str]) -> None:
    for role in roles:
        if role not in ROLES:
            raise UnknownNameError("role", repr(role), "a key cannot have it", did_you_mean(role, ROLES, "roles"))


def _hash(token: bytes) -> str:
    return hashlib.sha256(token).hexdigest()


@contextmanager
def _alone(path: str | Path) -> Iterator[None]:
    """Let one process at a time read and replace a file of keys.

    It locks the folder: a lock on the file itself would end when the file is replaced, and a file of its own, made by
    root, would keep the owner out.
    """
    try:
        folder = Path(path).absolute().parent
        folder.mkdir(parents=True, exist_ok=True)
        if sys.platform == "win32":  # which cannot lock a folder
            yield
            return
        import fcntl

        held = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield
        finally:
            os.close(held)
    except OSError as failure:
        rule = f"it cannot be written ({failure.strerror})"
        raise SpuirError("keys", path, rule, "choose another file with --key-file") from None


def _write(path: str | Path, keys: Iterable[ApiKey]) -> None:
    """Write a file of keys that its owner alone can read, who stays the same when root writes it."""
    content = msgspec.json.format(msgspec.json.encode(_KeyFile(list(keys))), indent=2)
    # The file that replaces this one takes over its mode before it has content.
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    os.chmod(path, 0o600)
    owner = os.stat(path)
    write_atomically(path, content + b"\n")
    if hasattr(os, "chown") and os.stat(path).st_uid != owner.st_uid:
        os.chown(path, owner.st_uid, owner.st_gid)

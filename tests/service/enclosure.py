"""Runs Python in the enclosure that a systemd unit describes, without systemd: its system calls, and no code in data.

``python enclosure.py UNIT ARGUMENT…`` replaces itself by Python with these arguments.
"""

import ctypes
import errno
import os
import re
import subprocess
import sys
from pathlib import Path

ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
PR_SET_MDWE = 65


def calls_of(words: list[str]) -> set[str]:
    """Return the system calls that words of a filter stand for, as systemd itself lists them."""
    found: set[str] = set()
    for word in words:
        if not word.startswith("@"):
            found.add(word)
            continue
        command = ["systemd-analyze", "syscall-filter", word]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[1:]
        found |= calls_of([line.strip() for line in listed if line.strip() and not line.strip().startswith("#")])
    return found


def allowed_by(unit: str) -> set[str]:
    """Return the system calls that a unit allows: a line with ~ takes some away again."""
    allowed: set[str] = set()
    for given in re.findall(r"^SystemCallFilter=(.*)$", unit, re.MULTILINE):
        calls = calls_of(given.lstrip("~").split())
        allowed = allowed - calls if given.startswith("~") else allowed | calls
    return allowed


def enclose(unit: str) -> None:
    """Give up every other system call, for this process and those that it starts."""
    filters = ctypes.CDLL("libseccomp.so.2")
    filters.seccomp_init.restype = ctypes.c_void_p
    made = ctypes.c_void_p(filters.seccomp_init(REFUSE))
    for name in sorted(allowed_by(unit)):
        number = filters.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:  # calls of other processors are not known here
            filters.seccomp_rule_add(made, ALLOW, number, 0)
    assert filters.seccomp_load(made) == 0
    if "MemoryDenyWriteExecute=yes" in unit:
        ctypes.CDLL(None).prctl(PR_SET_MDWE, 1, 0, 0, 0)  # kernels before 6.3 do not know it


if __name__ == "__main__":
    enclose(Path(sys.argv[1]).read_text(encoding="utf-8"))
    os.execv(sys.executable, [sys.executable, *sys.argv[2:]])

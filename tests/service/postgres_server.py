"""A PostgreSQL server of the tests' own: a new cluster in a temporary folder, on loopback and a private socket."""

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

USER = "postgres"


@dataclass
class Server:
    """A running server; ``stop`` and ``start`` are what fail-over tests need."""

    programs: Path
    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}"

    def _run(self, program: str, *arguments: str) -> None:
        # PostgreSQL refuses to run as root: Debian's package brings a user for it.
        command = [str(self.programs / program), *arguments]
        who = ["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups", "--"] if os.geteuid() == 0 else []
        subprocess.run(who + command, check=True, capture_output=True, timeout=60, cwd=self.folder)

    def create(self) -> None:
        self._run("initdb", "-D", str(self.folder / "data"), "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync")

    def start(self) -> None:
        options = f"-c listen_addresses=127.0.0.1 -p {self.port} -k {self.folder} -c fsync=on"
        data, log = str(self.folder / "data"), str(self.folder / "log")
        self._run("pg_ctl", "-D", data, "-l", log, "-w", "-t", "55", "-o", options, "start")

    def stop(self, mode: str = "immediate") -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", mode, "-w", "-t", "30", "stop")

    def new_database(self, name: str) -> str:
        """Return the URL of a new database."""
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", USER, name)
        return f"{self.url}/{name}"


def programs() -> Path | None:
    """Return the folder of PostgreSQL's programs, the newest; None if there is none that can run here."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    on_path = shutil.which("initdb")
    folder = found[-1].parent if found else None if on_path is None else Path(on_path).resolve().parent
    if folder is not None and os.geteuid() == 0:
        try:
            pwd.getpwnam(USER)
        except KeyError:
            return None
    return folder


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    """Run a server in a folder until the block ends."""
    where = programs()
    assert where is not None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        shutil.chown(folder, USER, USER)
    server = Server(where, folder, port)
    server.create()
    server.start()
    try:
        yield server
    finally:
        server.stop()

"""Starts ``spuir serve`` in a fraction of the time: a process that has loaded everything makes a copy for each start.

Each line of its input is the arguments of one start, as JSON; it answers with the number of the new process. An empty
line waits for the end of that process. A copy is a process like any other, and can be killed as one.
"""

import json
import os
import sys

from spuir.cli import main
from spuir.service import engine, server, stores  # noqa: F401 - loaded before any copy is made
from spuir.service.versions import learner_process  # noqa: F401


def serve(arguments: list[str]) -> None:
    """Be the service, and end with it."""
    with open("server.log", "ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    main(["serve", *arguments])


def main_loop() -> None:
    """Make copies until the input ends."""
    child = 0
    for line in sys.stdin:
        if not line.strip():
            os.waitpid(child, 0)
            print(child, flush=True)
            continue
        child = os.fork()
        if not child:
            serve(json.loads(line))
        print(child, flush=True)


if __name__ == "__main__":
    main_loop()

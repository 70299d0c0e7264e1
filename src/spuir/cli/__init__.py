"""The command line: one module per command, imported when it is called."""

from spuir.cli.app import main

__all__ = ["main"]

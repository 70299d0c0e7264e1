"""Structured logs: one JSON object per line on the error stream."""

import logging
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

FIELDS = ("request_id", "trace_id", "method", "route", "status", "seconds", "key", "experiment")
"""What a message may carry besides its text, given as ``extra=``."""


class JsonFormatter(logging.Formatter):
    """Writes a message as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a message."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name in FIELDS if (value := getattr(record, name, None)) is not None}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def set_up_logs(level: str) -> None:
    """Send the messages of the service and of its HTTP server to the error stream as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name in ("spuir", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level.upper())

"""The processors that this process may use."""

import os


def cores() -> int:
    """Return how many cores this process may use: all, or those that it was restricted to."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

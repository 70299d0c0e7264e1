"""What results depend on besides parameters: versions, the commit, the machine."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from threadpoolctl import threadpool_info

from spuir import __version__

HERE = Path(__file__).parent


def versions() -> dict[str, str]:
    """Return the versions of everything that results depend on."""
    return {
        "spuir": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


def blas() -> str:
    """Return the linear algebra libraries that are loaded, with their versions."""
    libraries = {
        f"{item['internal_api']} {item.get('version')}" for item in threadpool_info() if item["user_api"] == "blas"
    }
    return ", ".join(sorted(libraries))


def machine() -> dict[str, Any]:
    """Return the processor, cores, memory in GB and system of this machine."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory_gb": memory(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def processor() -> str:
    """Return the processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def memory() -> float | None:
    """Return the size of the main memory in GB, or None where the system does not say."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (AttributeError, ValueError, OSError):
        return None


def commit(folder: Path = HERE) -> dict[str, Any]:
    """Return the commit that ``folder`` is checked out at, and whether files differ from it; None for both without one.

    An installed copy that lies inside another repository does not count as part of that repository.
    """
    tracked = _git(folder, "ls-files", "--error-unmatch", "__init__.py") is not None
    name = _git(folder, "rev-parse", "HEAD") if tracked else None
    changes = _git(folder, "status", "--porcelain", "--", ".") if tracked else None
    return {"commit": name or None, "dirty": None if changes is None else bool(changes)}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def now() -> str:
    """Return the time, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")

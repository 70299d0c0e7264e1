"""Where real tables are: the folder in SPUIR_DATA, else ../shared/data beside the repository."""

import os
from pathlib import Path


def data_folder() -> Path:
    """Return the folder of real data; the files in it may be absent."""
    given = os.environ.get("SPUIR_DATA")
    return Path(given) if given else Path(__file__).resolve().parents[2] / "shared" / "data"

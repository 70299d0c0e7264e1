"""Row maps that shrink a batch, by name. To add one: its file, and one line here."""

from spuir.base.registry import Registry
from spuir.sketches.base import Sketch

SKETCHES = Registry(
    "sketch",
    {
        "identity": "spuir.sketches.identity:IdentitySketch",
        "sjlt": "spuir.sketches.sjlt:SJLT",
        "gaussian": "spuir.sketches.gaussian:Gaussian",
    },
)


def list_sketches() -> list[str]:
    """Return the names of the registered sketches."""
    return SKETCHES.names()


def make_sketch(name: str, *, size: int, blocks: int = 1) -> Sketch:
    """Build the sketch called ``name`` with ``size`` (c) rows, in ``blocks`` (D) blocks where it has any."""
    return SKETCHES.get(name)(size=size, blocks=blocks)

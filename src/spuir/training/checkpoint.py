"""Where training stands, on disk: what a killed run leaves is taken up by the next one with the same settings."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spuir.bandit import Bandit, load
from spuir.base.hashing import digest
from spuir.errors import SpuirError
from spuir.storage.atomic import write_atomically
from spuir.training.fold import Learnt


def fingerprint(*settings: Any) -> str:
    """Return a mark of everything that the result depends on."""
    return digest(json.dumps(settings, sort_keys=True, default=repr))


class Progress:
    """The last saved state of a run beside its future model: ``<out>.progress``, a folder that goes with success.

    A state is a saved bandit named by the episodes that it has learnt, and a JSON file that names it: the bandit is
    written first, the JSON replaced at one stroke, so that a kill at any point leaves a whole state.
    """

    def __init__(self, out: Path, mark: str) -> None:
        self.folder = out.with_name(out.name + ".progress")
        self.mark = mark

    @property
    def scratch(self) -> Path:
        """Where rows may be written again, grouped by episode."""
        return self.folder / "rows"

    @property
    def begun(self) -> bool:
        """Whether an earlier run left a state, of whichever settings."""
        return (self.folder / "progress.json").exists()

    def load(self) -> tuple[Bandit, list[Learnt]] | None:
        """Return the bandit and the table so far; None without a state of the same settings.

        A state of the same settings that cannot be read is refused.
        """
        try:
            told = json.loads((self.folder / "progress.json").read_text(encoding="utf-8"))
            if told["mark"] != self.mark:
                return None
            return load(self.folder / told["model"]), [Learnt(**line) for line in told["episodes"]]
        except SpuirError:
            raise
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def save(self, bandit: Bandit, learnt: Sequence[Learnt]) -> None:
        """Save the state after the episodes in ``learnt``."""
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"episode-{len(learnt):09d}.spuir"
        bandit.save(self.folder / name)
        told = {"mark": self.mark, "model": name, "episodes": [line.to_dict() for line in learnt]}
        write_atomically(self.folder / "progress.json", json.dumps(told).encode())
        for old in self.folder.glob("episode-*.spuir"):
            if old.name != name:
                old.unlink()

    def clear(self) -> None:
        """Remove everything that was only for going on."""
        for folder in (self.scratch, self.folder):
            if folder.is_dir():
                for path in folder.iterdir():
                    if path.is_file():
                        path.unlink()
                folder.rmdir()

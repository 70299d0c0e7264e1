"""The state of a training on disk, from which an interrupted run resumes when it is started again."""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from shutil import rmtree

from spuir.bandit import Bandit, load
from spuir.errors import ParameterError, SpuirError
from spuir.storage.atomic import write_atomically
from spuir.storage.snapshot import is_replaceable
from spuir.training.fold import EpisodeSummary

SAVE_SECONDS = 20.0
"""Time between two saves."""


class Checkpoint:
    """The last saved state of a run beside its model: ``<out>.progress``, a folder that is removed at the end.

    A state is a saved bandit, named by the number of its episodes, and a JSON file that names it. The bandit is
    written first and the JSON file is replaced atomically: a kill at any point leaves a complete state. Without
    ``out`` nothing is saved.

    Parameters
    ----------
    out
        Where the model will be saved.
    settings
        The digest of everything that the model depends on; states of other settings are ignored.
    """

    def __init__(self, out: Path | None, settings: str) -> None:
        self.folder = None if out is None else folder_of(out)
        self.settings = settings
        self._saved = time.monotonic()

    @property
    def exists(self) -> bool:
        """Whether an earlier run left a state, with any settings."""
        return self.folder is not None and (self.folder / "progress.json").exists()

    def load(self) -> tuple[Bandit, list[EpisodeSummary]] | None:
        """Return the saved bandit and its episodes; None without a state of the same settings.

        Raises
        ------
        SpuirError
            A state of the same settings cannot be read.
        """
        if self.folder is None:
            return None
        try:
            state = json.loads((self.folder / "progress.json").read_text(encoding="utf-8"))
            if state["mark"] != self.settings:
                return None
            return load(self.folder / state["model"]), [EpisodeSummary(**line) for line in state["episodes"]]
        except SpuirError:
            raise
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @property
    def due(self) -> bool:
        """Whether the last save was long ago."""
        return time.monotonic() - self._saved > SAVE_SECONDS

    def save(self, bandit: Bandit, episodes: Sequence[EpisodeSummary]) -> None:
        """Save the state after these episodes."""
        self._saved = time.monotonic()
        if self.folder is None:
            return
        name = f"episode-{len(episodes):09d}.spuir"
        bandit.save(self.folder / name)
        state = {"mark": self.settings, "model": name, "episodes": [asdict(line) for line in episodes]}
        write_atomically(self.folder / "progress.json", json.dumps(state).encode())
        for old in self.folder.glob("episode-*.spuir"):
            if old.name != name:
                old.unlink()

    def clear(self) -> None:
        """Remove the saved state."""
        if self.folder is not None:
            rmtree(self.folder, ignore_errors=True)


def folder_of(out: Path) -> Path:
    """Return the folder of the checkpoint of a model."""
    return out.with_name(out.name + ".progress")


def check_writable(out: Path) -> None:
    """Raise, before hours of work, if the model cannot be saved there."""
    if not out.name or out.is_dir():
        raise ParameterError("out", out, "a model is one file", "name a file, such as model.spuir")
    try:
        taken = not is_replaceable(out)
        folder_of(out).exists()
    except (OSError, RuntimeError) as error:
        raise ParameterError("out", out, f"it cannot be written ({error})", "name another file") from None
    if taken or (out.exists() and not out.is_file()):
        raise ParameterError("out", out, "it exists and is not a saved model", "name another file, or remove that one")
    folder = next(above for above in out.absolute().parents if above.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        rule = "is not a folder" if not folder.is_dir() else "cannot be written to"
        raise ParameterError("out", out, f"{str(folder)!r} {rule}", "save the model elsewhere")

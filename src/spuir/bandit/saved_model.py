"""A model that can be written to a file, with a digest of what it has learned."""

import json
from dataclasses import replace
from os import PathLike, fspath
from typing import Any

from spuir.bandit.live_actions import LiveActions
from spuir.base.hashing import digest
from spuir.errors import SnapshotError
from spuir.storage import model_file, snapshot


class SavedModel(LiveActions):
    """A model with its policy, which can be saved."""

    def save(
        self,
        path: str | PathLike[str],
        metadata: dict[str, Any] | None = None,
        training: dict[str, Any] | None = None,
        overwrite: bool = False,
    ) -> None:
        """Write everything needed to resume to exactly that path, atomically.

        Parameters
        ----------
        path
            Any name; ``.spuir`` is customary.
        metadata, training
            Notes as JSON data: the user's, which are :attr:`metadata_` afterwards, and how the model was trained. None
            keeps those of the last save or load.
        overwrite
            Whether to replace a file that is not a saved model. A saved model is replaced in any case.
        """
        if not overwrite and not snapshot.is_replaceable(path):
            rule = "that file exists and is not a saved model"
            raise SnapshotError("path", repr(fspath(path)), rule, "choose another path, or pass overwrite=True")
        with self._lock:
            header, arrays = model_file.describe(self.policy_, self._model, self._seed, self._rows.used)
            given = {"created": model_file.now(), "metadata": metadata, "training": training}
            notes = replace(self._notes, **{name: note for name, note in given.items() if note is not None})
            header, arrays = model_file.annotated(header, arrays, notes, self.last_info_)
        snapshot.write(path, header, arrays)
        self._notes = notes

    def to_bytes(self) -> bytes:
        """Return a model file as bytes, without notes, times and row numbers: equal for equal models."""
        with self._lock:
            return snapshot.to_bytes(*model_file.describe(self.policy_, self._model, self._seed, {}))

    def digest(self) -> str:
        """Return a digest of everything that was learned, equal for equal models whatever version saved them."""
        with self._lock:
            header, arrays = model_file.describe(self.policy_, self._model, self._seed, {})
        del header["spuir"]
        content = [item for name, array in sorted(arrays.items()) for item in (name, str(array.dtype), array)]
        return digest(json.dumps(header, sort_keys=True), *content)

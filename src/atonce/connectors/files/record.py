"""How every file stood when its batch read it: `atonce-files/N` beside Spark's checkpoint, durable before batch N.

Spark keeps path and time of what it has seen, and no length. One file per batch, whole or not at all; every so often
all earlier ones become one (`N.compact`) before they are removed, so that dying anywhere leaves each entry somewhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from atonce.connectors.files.listing import State
from atonce.errors import RefusedError
from atonce.spark.checkpoint.files import Files

FOLDER = "atonce-files"
LOOSE_FILES = 50
"""So many records of single batches are kept before they become one."""
_VERSION = "v1"
_COMPACT = ".compact"


class FileRecord:
    def __init__(self, files: Files) -> None:
        self._files = files
        numbers = [name for name in files.names(FOLDER) if name.removesuffix(_COMPACT).isdigit()]
        self._compacts = sorted(int(name.removesuffix(_COMPACT)) for name in numbers if name.endswith(_COMPACT))
        self._loose = sorted(int(name) for name in numbers if not name.endswith(_COMPACT))

    def is_empty(self) -> bool:
        return not self._compacts and not self._loose

    def up_to(self, batch_id: int) -> dict[str, State]:
        """Every file of batches up to this one."""
        found: dict[str, State] = {}
        whole = max(self._compacts, default=-1)
        if self._compacts:
            found.update(self._read(f"{whole}{_COMPACT}") or {})
        for number in self._loose:
            if whole < number <= batch_id:
                found.update(self.of(number) or {})
        return found

    def of(self, batch_id: int) -> dict[str, State] | None:
        """The files of one batch; None when they were not kept."""
        return self._read(str(batch_id)) if batch_id in self._loose else None

    def keep(self, batch_id: int, states: Mapping[str, State], before: Mapping[str, State]) -> None:
        """Durable when this returns. `before`: every file of earlier batches."""
        if sum(number < batch_id for number in self._loose) >= LOOSE_FILES:
            self.keep_whole(batch_id - 1, before)
        self._write(str(batch_id), states)
        if batch_id not in self._loose:
            self._loose.append(batch_id)

    def keep_whole(self, batch_id: int, states: Mapping[str, State]) -> None:
        """Everything up to this batch in one file; what it replaces goes."""
        self._write(f"{batch_id}{_COMPACT}", states)
        for number in [each for each in self._loose if each <= batch_id]:
            self._files.remove(f"{FOLDER}/{number}")
            self._loose.remove(number)
        for number in [each for each in self._compacts if each < batch_id]:
            self._files.remove(f"{FOLDER}/{number}{_COMPACT}")
            self._compacts.remove(number)
        if batch_id not in self._compacts:
            self._compacts.append(batch_id)

    def _write(self, name: str, states: Mapping[str, State]) -> None:
        lines = [json.dumps([state.length, state.time_ms, path]) for path, state in states.items()]
        self._files.write(f"{FOLDER}/{name}", "\n".join([_VERSION, *lines]))

    def _read(self, name: str) -> dict[str, State] | None:
        text = self._files.read(f"{FOLDER}/{name}")
        if text is None:
            return None
        version, _, body = text.partition("\n")
        if version != _VERSION:
            raise RefusedError(
                f"{FOLDER}/{name} in the checkpoint has version {version!r}; only {_VERSION!r} is understood. Next: "
                "run this pipeline with the version of AtOnce that wrote it, or a newer one."
            )
        try:
            entries = [json.loads(line) for line in body.splitlines()]
            return {path: State(length, time_ms) for length, time_ms, path in entries}
        except (ValueError, TypeError):
            raise RefusedError(
                f"{FOLDER}/{name} in the checkpoint is torn, as a power cut leaves it, so how its files stood when "
                "they were read is unknown. Nothing was delivered. Next: restore the checkpoint, or begin again with "
                "`atonce reset`."
            ) from None

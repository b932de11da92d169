"""The disk that holds checkpoints: small files, each written whole, every write a step at which its process may die."""

from __future__ import annotations

import copy
from typing import Any

from tests.simulation.pipeline.fibers import Turns


class VirtualDisk:
    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.roots: dict[str, dict[str, str]] = {}
        self.writes = 0

    def at(self, root: str, spark: Any) -> VirtualFiles:
        return VirtualFiles(self, root)

    def kept(self, root: str) -> dict[str, str]:
        """A copy of everything below a root, as a backup has it."""
        return copy.copy(self.roots.get(root, {}))

    def written(self) -> None:
        self._turns.step()
        self.writes += 1


class VirtualFiles:
    """`Files` of one checkpoint."""

    def __init__(self, disk: VirtualDisk, root: str) -> None:
        self._disk = disk
        self._root = root

    @property
    def _files(self) -> dict[str, str]:
        return self._disk.roots.setdefault(self._root, {})

    def read(self, path: str) -> str | None:
        return self._files.get(path)

    def write(self, path: str, text: str) -> None:
        self._disk.written()
        self._files[path] = text

    def names(self, path: str) -> list[str]:
        below = f"{path}/" if path else ""
        return sorted({name[len(below) :].split("/")[0] for name in self._files if name.startswith(below)})

    def remove(self, path: str) -> None:
        self._disk.written()
        self._files.pop(path, None)

    def move_root(self, new_name: str) -> str:
        self._disk.written()
        target = f"{self._root.rpartition('/')[0]}/{new_name}"
        self._disk.roots[target] = self._disk.roots.pop(self._root, {})
        return target

"""A task's process that stands still, as on a machine that swaps, and goes on later as if no time had passed."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from atonce.connectors.contract import NotFired
from atonce.verify.scene import Scene


class Paused:
    """Spark's Python workers of the instance under test. They run again at the end of the run at the latest."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.pids: list[int] = []
        scene.after.append(self.resume)

    def pause(self) -> None:
        """`NotFired`: no worker was there."""
        for pid in self._scene.subject.workers():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                self.pids.append(pid)
        if not self.pids:
            raise NotFired("no Python worker was running at that moment")
        self._scene.history.mark("paused", f"{len(self.pids)} Python workers")

    def resume(self) -> None:
        woken = 0
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
                woken += 1
        self.pids = []
        if woken:
            self._scene.history.mark("resumed", f"{woken} Python workers")

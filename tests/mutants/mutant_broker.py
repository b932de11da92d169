"""A mutant in the place of the embedded broker: the same handle, another program."""

from __future__ import annotations

import sys
from pathlib import Path

from atonce.broker.embedded import _READY, _START_S, Broker
from atonce.local.child import Child

_PROGRAM = str(Path(__file__).with_name("broker_mutants.py"))


class MutantBroker(Broker):
    def __init__(self, mutant: str) -> None:
        super().__init__()
        self._mutant = mutant

    def start(self) -> Broker:
        if self.running:
            return self
        command = [sys.executable, _PROGRAM, self._mutant, "broker", "--data", str(self.data), "--listen", self._listen]
        self._child = Child(command, log=self.log)
        try:
            line = self._child.wait_for_line(_READY, _START_S)
        except BaseException:
            self._child.stop()
            raise
        self._servers = line.removeprefix(_READY)
        self._listen = self._servers
        return self

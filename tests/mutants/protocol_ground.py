"""Embedded brokers of transaction protocol 1 that take whatever comes into a transaction, as Kafka below 3.6 does.

Run as a program, `protocol_ground.py broker --data … --listen …`, it is one whose producer ids have few epochs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from atonce.broker.embedded import _READY, _START_S, Broker
from atonce.local.child import Child
from atonce.verify.faults.catalogue import Need
from atonce.verify.ground.harness import Embedded

SETTINGS = {"transaction.version": "1", "transaction.partition.verification.enable": "false"}
LAST_EPOCH = 9
"""Where a real producer id has 32,766: a few batches instead of days."""


class Unverified(Embedded):
    title = "embedded broker, transaction protocol 1, unverified"

    def __init__(self, broker: Broker | None = None) -> None:
        super().__init__(broker or Broker(settings=SETTINGS))

    def needs_met(self) -> set[Need]:
        return super().needs_met() | {Need.UNVERIFIED}


class FewEpochs(Unverified):
    title = "embedded broker, transaction protocol 1, unverified, few epochs"

    def __init__(self) -> None:
        super().__init__(_FewEpochs())


class _FewEpochs(Broker):
    def start(self) -> Broker:
        if self.running:
            return self
        command = [sys.executable, str(Path(__file__)), "broker", "--data", str(self.data), "--listen", self._listen]
        for name, value in SETTINGS.items():
            command += ["--set", f"{name}={value}"]
        self._child = Child([word for word in command if word], log=self.log)
        try:
            line = self._child.wait_for_line(_READY, _START_S)
        except BaseException:
            self._child.stop()
            raise
        self._servers = self._listen = line.removeprefix(_READY)
        return self


if __name__ == "__main__":
    from atonce.coordinator.transactions import end, transactions

    end.LAST_CLIENT_EPOCH = transactions.LAST_CLIENT_EPOCH = LAST_EPOCH
    from atonce.cli.main import main

    main()

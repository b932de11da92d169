"""Progress shown to lag tools when the ledger is elsewhere: plain offset commits of the group, never read back."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping

from atonce.client.cluster import Cluster
from atonce.client.offsets import commit
from atonce.connectors.kafka.ledger import mirror_offsets
from atonce.delivery.progress import Progress
from atonce.errors import AtOnceError

NOTE = "atonce mirror: the ledger of this pipeline is with its output"


class GroupMirror:
    """Commits the newest progress in the background; what fails is overtaken by the next batch."""

    def __init__(self, group: str, servers: str, config: Mapping[str, str]) -> None:
        self._group = group
        self._cluster = Cluster(servers, config)
        self._wake = threading.Condition()
        self._newest: Progress | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="atonce-mirror", daemon=True)
        self._thread.start()

    def __call__(self, progress: Progress) -> None:
        with self._wake:
            self._newest = progress
            self._wake.notify()

    def close(self, within_s: float = 5.0) -> None:
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(within_s)
        self._cluster.close()

    def _run(self) -> None:
        while True:
            with self._wake:
                while self._newest is None:
                    if self._closing:
                        return
                    self._wake.wait()
                progress, self._newest = self._newest, None
            if progress.positions:
                # A lag that is one batch old harms nobody, so trouble here never stops a delivery.
                with contextlib.suppress(AtOnceError):
                    commit(self._cluster, self._group, mirror_offsets(progress.positions, NOTE))

"""The broker from Python: a child process that dies with its parent."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from atonce.broker.address import find_running
from atonce.errors import UsageError
from atonce.local.child import Child
from atonce.local.private import make_private_directory
from atonce.local.scratch import scratch_directory

_READY = "ready on "
# A large log after a crash: only its tail is scanned, but many partitions take their time.
_START_S = 60.0


class Broker:
    """`with Broker(data=…) as broker: broker.servers`. Without `data` it keeps nothing.

    data      where the logs are kept; None: a scratch directory that is removed at the end
    listen    HOST:PORT; port 0 picks a free one; None: what the setting `listeners` says
    settings  broker and topic settings by Kafka's names

    `kill` is SIGKILL: for tests of what survives. `restart` starts again on the same address and data.
    """

    def __init__(
        self,
        data: Path | str | None = None,
        listen: str | None = "127.0.0.1:0",
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._temporary = data is None
        self.data = scratch_directory("broker") if data is None else Path(data)
        self._listen = listen
        self._settings = {name: _text(value) for name, value in (settings or {}).items()}
        self._child: Child | None = None
        self._servers = ""

    @property
    def servers(self) -> str:
        """HOST:PORT, for a client's `bootstrap.servers`."""
        if not self._servers:
            raise UsageError("the broker was not started: use `with Broker(…) as broker:` or call start()")
        return self._servers

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.running

    @property
    def log(self) -> Path:
        """What the broker says on standard error."""
        return self.data / "broker.log"

    def start(self) -> Broker:
        if self.running:
            return self
        make_private_directory(self.data)
        self.log.touch(0o600)
        command = [
            sys.executable,
            "-m",
            "atonce.cli.main",
            "broker",
            "--data",
            str(self.data),
        ]
        if self._listen is not None:
            command += ["--listen", self._listen]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        self._child = Child(command, log=self.log, scratch=self.data if self._temporary else None)
        try:
            line = self._child.wait_for_line(_READY, _START_S)
        except BaseException:
            self._child.stop()
            raise
        self._servers = line.removeprefix(_READY)
        if self._listen is not None:
            self._listen = self._servers  # the same address after a restart
        return self

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        code = self._child.stop() if self._child is not None else 0
        self._child = None
        return code

    def kill(self) -> None:
        """SIGKILL, at once."""
        self._running().kill()
        self._child = None

    def restart(self) -> None:
        """Stop if it runs, then start on the same address and data."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: alive, and answering nothing."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def _running(self) -> Child:
        if self._child is None:
            raise UsageError("the broker is not running")
        return self._child

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._temporary:
            shutil.rmtree(self.data, ignore_errors=True)


def _text(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


__all__ = ["Broker", "find_running"]

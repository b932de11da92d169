"""One warm process for AtOnce pipelines, seen from the verifier's side."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from atonce.errors import EXIT_USAGE, AtOnceError
from atonce.local.child import Child

WARM_S = 120.0


class SubjectFailed(AtOnceError):
    """A subject process did not come up: nothing was verified."""

    exit_code = EXIT_USAGE


class Listener:
    """Where subject processes connect to."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._waiting: dict[str, Callable[[socket.socket], None]] = {}
        self._thread = threading.Thread(target=self._accept, name="atonce-verify-control", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        host, port = self._server.getsockname()[:2]
        return f"{host}:{port}"

    def expect(self, token: str, take: Callable[[socket.socket], None]) -> None:
        self._waiting[token] = take

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with contextlib.suppress(OSError, ValueError, KeyError):
                hello = json.loads(_line(connection))
                self._waiting.pop(hello["token"])(connection)

    def close(self) -> None:
        self._server.close()


def _line(connection: socket.socket) -> str:
    """One line, byte by byte: what follows belongs to the process's own reader."""
    data = bytearray()
    while not data.endswith(b"\n"):
        got = connection.recv(1)
        if not got:
            raise ConnectionError("closed before it said who it is")
        data += got
    return data.decode()


class SubjectProcess:
    """Started cold, warm after some seconds, then given one run after the other until it is killed."""

    def __init__(
        self, listener: Listener, launcher: Sequence[str], master: str, conf: dict[str, str], log: Path
    ) -> None:
        token = secrets.token_hex(8)
        self.log = log
        self.on_event: Callable[[dict[str, Any]], bool] = lambda _: True
        """Gets every event; True lets the pipeline go on."""
        self.on_end: Callable[[dict[str, Any]], None] = lambda _: None
        self._connected = threading.Event()
        self._warm = threading.Event()
        self._connection: socket.socket | None = None
        self.busy = False
        listener.expect(token, self._take)
        command = [*launcher, listener.address, token, master, json.dumps(conf)]
        words = " ".join(shlex.quote(word) for word in command)
        self._child = Child(["/bin/sh", "-c", f"exec {words} >>{shlex.quote(str(log))} 2>&1"], env=_environment())

    def _take(self, connection: socket.socket) -> None:
        self._connection = connection
        self._connected.set()
        threading.Thread(target=self._read, args=(connection,), name="atonce-verify-events", daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in connection.makefile("r", encoding="utf-8"):
                message = json.loads(line)
                if message["event"] == "warm":
                    self._warm.set()
                elif message["event"] == "step":
                    if self.on_event(message):
                        self.go()
                else:
                    self.busy = False
                    self.on_end(message)

    def go(self) -> None:
        self._send({"go": True})

    def _send(self, message: dict[str, Any]) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.sendall(json.dumps(message).encode() + b"\n")

    @property
    def alive(self) -> bool:
        return self._child.running

    @property
    def is_warm(self) -> bool:
        return self._warm.is_set()

    def wait_warm(self) -> None:
        deadline = time.monotonic() + WARM_S
        while not self._warm.wait(0.1):
            if not self.alive or time.monotonic() > deadline:
                raise SubjectFailed(f"the subject's Spark did not start. Its last words:\n{self.last_words()}")

    def run(self, pipeline: Path) -> None:
        self.wait_warm()
        self.busy = True
        self._send({"order": "run", "pipeline": str(pipeline)})

    def look(self, pipeline: Path, records: Path, result: Path, only: Sequence[str]) -> dict[str, Any]:
        """What kind of pipeline it is; see look.py."""
        self.wait_warm()
        answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.on_end = answers.put
        self.busy = True
        paths = {"pipeline": str(pipeline), "records": str(records), "result": str(result)}
        self._send({"order": "look", "only": list(only), **paths})
        try:
            return answers.get(timeout=WARM_S)
        except queue.Empty:
            raise SubjectFailed(f"the pipeline's plan could not be looked at in {WARM_S:g} s") from None

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-1500:].strip() if self.log.exists() else ""

    def _family(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self._child.leash_pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def workers(self) -> list[int]:
        """Spark's forked Python workers: children of the daemon, never the driver or the daemon itself."""
        found = []
        for process in self._family():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                words = process.cmdline()
                parent = process.parent()
                if _is_daemon(words) and parent is not None and _is_daemon(parent.cmdline()):
                    found.append(process.pid)
        return found

    def signal(self, what: int) -> None:
        for process in self._family():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(what)

    def kill_driver(self) -> None:
        """Everything but the workers. Who watches over them is made to stand still, or it would end them, too."""
        self.busy = False
        spared = set(self.workers())
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child.leash_pid, signal.SIGSTOP)
        for process in self._family():
            if process.pid not in spared:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
        if self._connection is not None:
            self._connection.close()

    def kill(self) -> None:
        self.busy = False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child.leash_pid, signal.SIGCONT)
        self.signal(signal.SIGKILL)
        self._child.kill()
        if self._connection is not None:
            self._connection.close()


def _environment() -> dict[str, str]:
    """A JVM that lives for seconds and is then killed does not repay optimising its code: a third less CPU without."""
    given = os.environ.get("JDK_JAVA_OPTIONS", "")
    return {**os.environ, "JDK_JAVA_OPTIONS": f"{given} -XX:TieredStopAtLevel=1".strip()}


def _is_daemon(words: Sequence[str]) -> bool:
    return any("daemon" in word for word in words) and "pyspark.worker" in words


LAUNCHER = (sys.executable, "-m", "atonce.verify.subject.worker")

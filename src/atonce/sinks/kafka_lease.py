"""The lease: the driver grants each (attempt, output partition) the right to write, once.

Python tasks cannot see a stage retry, a second attempt's first batch can look like a retry and be acked, and between
the answer to EndTxn and the marker a broker still takes the old epoch's next sequence. So a sender asks the driver
before its first byte to a partition. A second request for the same partition means a second attempt: under
effectively-once the batch is aborted and runs again, under at-most-once the second attempt writes nothing.

The connection is also the leash: when it breaks, or the driver closes it, the task stops writing.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import select
import socket
import threading
import time
from dataclasses import dataclass

from atonce.errors import AttemptAborted

_CONNECT_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class LeaseAddress:
    """What a task needs to ask; travels to it inside the sender."""

    host: str
    port: int
    secret: str
    round: str
    """One attempt at one batch."""


class LeaseServer:
    """In the driver. One round at a time is open; requests of any other are denied."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._host = host
        self._secret = secrets.token_hex(16)
        self._lock = threading.Lock()
        self._round = ""
        self._granted: set[tuple[str, int]] = set()
        self._leashes: set[socket.socket] = set()
        self.contested: tuple[str, int] | None = None
        """A partition that was asked for twice in this round."""
        self.first_grant_at: float | None = None
        """When the first right to write was given (monotonic): the transaction begins here, not earlier."""
        self._server = socket.create_server(("" if host not in ("127.0.0.1", "localhost") else host, 0))
        self._port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, name="atonce-lease", daemon=True).start()

    def open(self, round_id: str) -> LeaseAddress:
        with self._lock:
            self._drop_all()
            self._round, self._granted = round_id, set()
            self.contested, self.first_grant_at = None, None
        return LeaseAddress(self._host, self._port, self._secret, round_id)

    def revoke(self) -> None:
        """End the round: whoever still holds a leash stops writing, and nobody gets another."""
        with self._lock:
            self._round = ""
            self._drop_all()

    def close(self) -> None:
        self.revoke()
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # a close alone does not wake the thread that accepts
        self._server.close()

    def _drop_all(self) -> None:
        for leash in self._leashes:
            with contextlib.suppress(OSError):
                leash.shutdown(socket.SHUT_RDWR)
        self._leashes.clear()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), name="atonce-leash", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rw") as stream, contextlib.suppress(OSError, ValueError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for line in stream:
                request = json.loads(line)
                if not secrets.compare_digest(str(request.get("secret", "")), self._secret):
                    return
                stream.write("granted\n" if self._grant(request, connection) else "denied\n")
                stream.flush()
        with self._lock:
            self._leashes.discard(connection)

    def _grant(self, request: dict[str, object], connection: socket.socket) -> bool:
        target = (str(request["topic"]), int(str(request["partition"])))
        with self._lock:
            if request["round"] != self._round or not self._round:
                return False
            if target in self._granted:
                self.contested = self.contested or target
                return False
            self._granted.add(target)
            self._leashes.add(connection)
            if self.first_grant_at is None:
                self.first_grant_at = time.monotonic()
            return True


class Lease:
    """In the task. One connection for all partitions that this task writes."""

    def __init__(self, address: LeaseAddress) -> None:
        self._address = address
        try:
            self._socket = socket.create_connection((address.host, address.port), timeout=_CONNECT_TIMEOUT_S)
        except OSError as error:
            raise AttemptAborted(
                f"the driver's lease server at {address.host}:{address.port} is gone: {error}"
            ) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rw")

    def ask(self, topic: str, partition: int) -> bool:
        request = {
            "secret": self._address.secret,
            "round": self._address.round,
            "topic": topic,
            "partition": partition,
        }
        try:
            self._stream.write(json.dumps(request) + "\n")
            self._stream.flush()
            answer = self._stream.readline()
        except OSError:
            answer = ""
        return answer == "granted\n"

    def broken(self) -> bool:
        """The driver never speaks unasked, so anything to read is the end of the connection."""
        try:
            readable, _, _ = select.select([self._socket], [], [], 0)
        except (OSError, ValueError):
            return True
        return bool(readable)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.close()
            self._socket.close()

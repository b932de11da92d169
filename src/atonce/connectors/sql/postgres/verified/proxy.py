"""A small PostgreSQL-aware proxy: it sees every COMMIT and can cut before it arrives, or after it is done."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from dataclasses import dataclass, field

from atonce.connectors.contract import NotFired

_SSL_REQUEST, _GSS_REQUEST = 80877103, 80877104


@dataclass(slots=True, eq=False)
class CommitRule:
    """One-shot: the nth COMMIT, before it reaches the database or after the database has answered it."""

    nth: int
    after: bool
    seen: int = 0
    fired_at: float | None = None
    struck: str = ""
    _fired: threading.Event = field(default_factory=threading.Event)

    def matches(self) -> bool:
        if self._fired.is_set():
            return False
        self.seen += 1
        return self.seen == self.nth

    def fire(self) -> None:
        self.fired_at = time.time()
        self.struck = f"COMMIT {self.nth}, connection reset {'after' if self.after else 'before'} it was done"
        self._fired.set()

    def wait(self, timeout_s: float) -> None:
        if not self._fired.wait(timeout_s):
            raise NotFired(f"COMMIT {self.nth} never came within {timeout_s:g} s ({self.seen} were seen)")

    def release(self) -> None:
        return None


class PostgresProxy:
    """Listens on a port of its own; one thread per direction and connection."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self._server = socket.create_server(("127.0.0.1", 0))
        self._rules: list[CommitRule] = []
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.commits = 0
        threading.Thread(target=self._accept, name="atonce-verify-pg", daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._server.getsockname()[1])

    def cut_at_commit(self, *, nth: int, after: bool) -> CommitRule:
        rule = CommitRule(nth, after)
        with self._lock:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        with self._lock:
            self._rules = []
            self.commits = 0

    def close(self) -> None:
        self._server.close()
        for connection in list(self._open):
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = _connected(self._upstream)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        link = _Link(self, client, server)
        self._open |= {client, server}
        threading.Thread(target=link.backward, daemon=True).start()
        try:
            link.forward()
        finally:
            link.close()
            self._open -= {client, server}

    def pick(self) -> CommitRule | None:
        with self._lock:
            self.commits += 1
            for rule in self._rules:
                if rule.matches():
                    return rule
        return None


class _Link:
    def __init__(self, proxy: PostgresProxy, client: socket.socket, server: socket.socket) -> None:
        self.proxy, self.client, self.server = proxy, client, server
        self.swallow = threading.Event()
        """Set after a COMMIT whose answer is to be lost: what the server says goes nowhere."""
        self.answered = threading.Event()

    def close(self) -> None:
        for connection in (self.client, self.server):
            # Shut down first: a plain close would wait for the thread that still reads from it.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def forward(self) -> None:
        with contextlib.suppress(OSError):
            while True:  # start-up messages carry no type byte
                head = _read(self.client, 8)
                size, code = struct.unpack(">ii", head)
                if code in (_SSL_REQUEST, _GSS_REQUEST):
                    self.client.sendall(b"N")  # encrypted, we would see no COMMIT
                    continue
                self.server.sendall(head + _read(self.client, size - 8))
                break
            while True:
                head = _read(self.client, 5)
                body = _read(self.client, struct.unpack_from(">i", head, 1)[0] - 4)
                if not _is_commit(head[:1], body):
                    self.server.sendall(head + body)
                    continue
                rule = self.proxy.pick()
                if rule is None:
                    self.server.sendall(head + body)
                elif not rule.after:
                    rule.fire()
                    return
                else:
                    self.swallow.set()
                    self.server.sendall(head + body)
                    if head[:1] == b"P":  # a prepared COMMIT runs with the messages that follow
                        self.server.sendall(_rest_of_extended(self.client))
                    self.answered.wait(10)
                    rule.fire()
                    return

    def backward(self) -> None:
        with contextlib.suppress(OSError):
            while chunk := self.server.recv(65536):
                if self.swallow.is_set():
                    if b"COMMIT\0" in chunk or b"Z\0\0\0\5" in chunk:
                        self.answered.set()
                    continue
                self.client.sendall(chunk)
        self.answered.set()
        with contextlib.suppress(OSError):
            self.client.shutdown(socket.SHUT_RDWR)


def _connected(at: tuple[str, int]) -> socket.socket:
    """Over TCP, or through the socket file in a directory, as libpq does."""
    if not at[0].startswith("/"):
        return socket.create_connection(at, timeout=10)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(10)
    connection.connect(f"{at[0]}/.s.PGSQL.{at[1]}")
    return connection


def _is_commit(kind: bytes, body: bytes) -> bool:
    if kind == b"Q":
        return body.lstrip().upper().startswith(b"COMMIT")
    if kind == b"P":
        return body.partition(b"\0")[2].lstrip().upper().startswith(b"COMMIT")
    return False


def _rest_of_extended(client: socket.socket) -> bytes:
    """Bind, Describe, Execute and Sync, which make a parsed statement run."""
    out = bytearray()
    while not out.endswith(b"S\0\0\0\4"):
        head = _read(client, 5)
        out += head + _read(client, struct.unpack_from(">i", head, 1)[0] - 4)
    return bytes(out)


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise ConnectionResetError("closed")
        data += chunk
    return bytes(data)

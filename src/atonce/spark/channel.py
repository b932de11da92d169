"""The driver's door for its own tasks: where it listens, who gets in, and what others can see.

It listens where Spark's driver listens, never everywhere. Both sides prove that they know the secret, which travelled
inside the tasks, before anything else is read; the secret itself is never sent. Strangers have a few seconds, and are
few. Where Spark encrypts its own traffic, so do we: TLS with a certificate of this process, which the proof includes,
so that nobody in the middle can hand his own to a task.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

_NONCE_BYTES = 32
_PROOF_BYTES = 32
GREETING_S = 10.0
MOST_STRANGERS = 64
_ENCRYPTED = "+tls"
_ENCRYPTING = ("spark.network.crypto.enabled", "spark.ssl.enabled", "spark.ssl.rpc.enabled")


@dataclass(frozen=True, slots=True)
class Place:
    """Where the driver listens, how its tasks call it, and whether others may read along."""

    listen: str = "127.0.0.1"
    host: str = "127.0.0.1"
    encrypted: bool = False

    @classmethod
    def of(cls, spark: Any) -> Place:
        context = spark.sparkContext
        if context.master.startswith("local"):
            return cls()
        conf = context.getConf()
        host = conf.get("spark.driver.host")
        encrypted = any(conf.get(name, "false").lower() == "true" for name in _ENCRYPTING)
        if encrypted:
            _context()  # refused here, in one line, and not in the middle of a batch
        return cls(conf.get("spark.driver.bindAddress", host), host, encrypted)

    def new_secret(self) -> str:
        """What the tasks of one open sink prove to know; it says to them whether to expect TLS."""
        return secrets.token_hex(32) + _ENCRYPTED * self.encrypted


class Door:
    """`serve` gets each connection whose other end is a task of ours, in a thread of its own. All of them end with the
    door, also those that a worker process would keep for its next task."""

    def __init__(self, place: Place, secret: str, serve: Callable[[socket.socket], None], name: str) -> None:
        self._secret = secret
        self._serve = serve
        self._name = name
        self._lock = threading.Lock()
        self._strangers: dict[socket.socket, None] = {}  # the oldest first
        self._tasks: set[socket.socket] = set()
        self._closed = False
        self._server = socket.create_server((place.listen, 0), family=_family(place.listen), backlog=128)
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, name=name, daemon=True).start()

    def close(self) -> None:
        # Closing a listening socket does not wake the thread that accepts on it; shutting it down does.
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        with self._lock:
            self._closed = True
        self.hang_up()

    def hang_up(self) -> None:
        """On everybody who is connected now."""
        with self._lock:
            connected = [*self._strangers, *self._tasks]
        for one in connected:
            _hang_up(one)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with self._lock:
                oldest = next(iter(self._strangers)) if len(self._strangers) >= MOST_STRANGERS else None
                if oldest is not None:
                    del self._strangers[oldest]
                self._strangers[connection] = None
            if oldest is not None:
                _hang_up(oldest)
            threading.Thread(target=self._greet, args=(connection,), name=f"{self._name}-task", daemon=True).start()

    def _greet(self, connection: socket.socket) -> None:
        connection.settimeout(GREETING_S)
        seen = b""
        if self._secret.endswith(_ENCRYPTED):
            context, seen = _context()
            wrapped = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
            with self._lock:
                if connection in self._strangers:
                    self._strangers[wrapped] = self._strangers.pop(connection)
            connection = wrapped
        try:
            known = self._is_known(connection, seen)
        except (OSError, ValueError):
            known = False  # a stranger, or a task that is gone
        with self._lock:
            self._strangers.pop(connection, None)
            if known and not self._closed:
                self._tasks.add(connection)
        try:
            with connection:
                if connection in self._tasks:
                    self._serve(connection)
        finally:
            with self._lock:
                self._tasks.discard(connection)

    def _is_known(self, connection: socket.socket, seen: bytes) -> bool:
        deadline = time.monotonic() + GREETING_S
        if isinstance(connection, ssl.SSLSocket):
            connection.do_handshake()
        ours = secrets.token_bytes(_NONCE_BYTES)
        connection.sendall(ours)
        answer = _exactly(connection, _NONCE_BYTES + _PROOF_BYTES, deadline)
        theirs, proof = answer[:_NONCE_BYTES], answer[_NONCE_BYTES:]
        if not hmac.compare_digest(proof, _proof(self._secret, b"task", ours, theirs, seen)):
            return False
        connection.sendall(_proof(self._secret, b"driver", theirs, ours, seen))
        connection.settimeout(None)
        return True


def knock(address: tuple[str, int], secret: str, timeout_s: float) -> socket.socket:
    """In a task: a connection to the driver, each known to the other. Raises OSError."""
    connection = socket.create_connection(address, timeout=timeout_s)
    try:
        seen = b""
        if secret.endswith(_ENCRYPTED):
            # Whose certificate it is does not matter: the proof below holds only for the one that the driver has.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            wrapped = context.wrap_socket(connection)
            seen = hashlib.sha256(wrapped.getpeercert(binary_form=True) or b"").digest()
            connection = wrapped
        deadline = time.monotonic() + timeout_s
        theirs = _exactly(connection, _NONCE_BYTES, deadline)
        ours = secrets.token_bytes(_NONCE_BYTES)
        connection.sendall(ours + _proof(secret, b"task", theirs, ours, seen))
        if not hmac.compare_digest(
            _exactly(connection, _PROOF_BYTES, deadline), _proof(secret, b"driver", ours, theirs, seen)
        ):
            raise ConnectionRefusedError("whoever listens there is not our driver")
        connection.settimeout(None)
        return connection
    except BaseException:
        connection.close()
        raise


def _proof(secret: str, who: bytes, first: bytes, second: bytes, certificate: bytes) -> bytes:
    return hmac.digest(secret.encode(), who + first + second + certificate, "sha256")


def _exactly(connection: socket.socket, size: int, deadline: float) -> bytes:
    """All of it before the deadline, however slowly it drips."""
    found = b""
    while len(found) < size:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the greeting took too long")
        connection.settimeout(left)
        more = connection.recv(size - len(found))
        if not more:
            raise ConnectionResetError("closed the connection during the greeting")
        found += more
    return found


class _Wrapped(ssl.SSLSocket):
    def shutdown(self, how: int) -> None:
        """Only the connection: ssl's own would go on without TLS, and give a reading thread what is still encrypted."""
        socket.socket.shutdown(self, how)


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


@cache
def _context() -> tuple[ssl.SSLContext, bytes]:
    """TLS with a certificate of this process, and that certificate's fingerprint."""
    import shutil

    from atonce.local.certificates import Authority
    from atonce.local.private import write_private
    from atonce.local.scratch import scratch_directory

    held = Authority("atonce driver").held
    folder = scratch_directory("tls")
    try:
        write_private(folder / "key.pem", held.key + held.certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "key.pem")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    context.sslsocket_class = _Wrapped
    # The driver never speaks unasked: a task takes anything to read for the end of its connection.
    context.num_tickets = 0
    return context, hashlib.sha256(ssl.PEM_cert_to_DER_cert(held.certificate.decode())).digest()

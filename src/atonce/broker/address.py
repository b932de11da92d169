"""Who runs on a data directory: the lock that only one broker can hold, and the file that says where it answers."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import socket
import ssl
import struct
import time
from pathlib import Path
from typing import IO

from atonce.errors import UsageError
from atonce.local.private import make_private_directory

_log = logging.getLogger(__name__)

LOCK = ".lock"
ADDRESS = "broker.address"
_ASK_S = 2.0
_LOCK_S = 0.5


def parse_address(text: str) -> tuple[str, int]:
    """HOST:PORT, or [HOST]:PORT for IPv6."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{text}: expected HOST:PORT, as in 127.0.0.1:9092 (port 0 picks a free one)")
    return host, int(port)


def show_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise UsageError(f"{host}: cannot listen there: {error}") from error
    return all(str(address).startswith("127.") or address == "::1" for address in found)


class DataLock:
    """Held as long as the broker lives; the system takes it back when the process dies."""

    def __init__(self, data: Path) -> None:
        try:
            make_private_directory(data, LOCK)
            self._file: IO[str] = (data / LOCK).open("a+")
        except OSError as error:
            raise UsageError(f"{data}: cannot be used as a data directory: {error.strerror}") from error
        try:
            self._lock()
        except OSError as error:
            self._file.seek(0)
            holder = self._file.read().strip()
            self._file.close()
            where = _read_address(data)
            raise UsageError(
                f"{data}: a broker already runs on this data directory"
                f"{f' (process {holder})' if holder else ''}{f', at {where}' if where else ''}. "
                "Stop it first, or give another --data directory."
            ) from error
        with contextlib.suppress(OSError):  # only to be shown to people; the disk may be full
            self._file.truncate(0)
            self._file.write(f"{os.getpid()}\n")
            self._file.flush()

    def _lock(self) -> None:
        """Tried for a moment: `find_running` and a broker that is just ending hold it briefly."""
        deadline = time.monotonic() + _LOCK_S
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def release(self) -> None:
        self._file.close()


def write_address(data: Path, host: str, port: int) -> None:
    """A broker must start on a full disk too: without this file it only has to be named by its address."""
    fresh = data / f"{ADDRESS}.new"
    try:
        fresh.write_text(show_address(host, port) + "\n")
        fresh.replace(data / ADDRESS)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        _log.warning("%s could not be written, so this broker is not found by its directory: %s", data / ADDRESS, error)


def remove_address(data: Path) -> None:
    (data / ADDRESS).unlink(missing_ok=True)


def _read_address(data: Path) -> str | None:
    try:
        return (data / ADDRESS).read_text().strip() or None
    except OSError:
        return None


def find_running(data_dir: Path | str) -> str | None:
    """HOST:PORT of the broker that runs on this data directory and answers, plain or with TLS; None without one."""
    data = Path(data_dir)
    try:
        with (data / LOCK).open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return None  # nobody holds it
            except BlockingIOError:
                pass
    except OSError:
        return None
    address = _read_address(data)
    if address is None:
        return None
    host, port = parse_address(address)
    return address if _answers(host, port) or _shakes_hands(host, port) else None


def _answers(host: str, port: int) -> bool:
    """Whether a Kafka broker answers an ApiVersions request there."""
    request = struct.pack(">hhih", 18, 0, 1, -1)
    with contextlib.suppress(OSError), socket.create_connection((host, port), _ASK_S) as connection:
        connection.settimeout(_ASK_S)
        connection.sendall(struct.pack(">i", len(request)) + request)
        head = b""
        while len(head) < 8:
            more = connection.recv(8 - len(head))
            if not more:
                return False
            head += more
        return bool(struct.unpack(">ii", head)[1] == 1)
    return False


def _shakes_hands(host: str, port: int) -> bool:
    """Whether somebody there speaks TLS. His certificate does not matter: he is told nothing, and not believed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(OSError), socket.create_connection((host, port), _ASK_S) as connection:
        connection.settimeout(_ASK_S)
        with context.wrap_socket(connection, server_hostname=host):
            return True
    return False

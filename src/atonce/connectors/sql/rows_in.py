"""Rows from many tasks into one transaction: tasks stream encoded rows to the driver, which alone talks to it.

The driver grants each Spark partition once per batch. A second attempt (a retry, a speculative copy, a stage run again)
waits for the first and is then refused: its rows can never join those of the first (one that failed before it had sent
anything is as if it had never been). What counts is what Spark reports back: the transaction goes on only if the
attempts that Spark took as successful are exactly the attempts whose rows are in, complete to the byte. Otherwise the
batch is aborted whole and runs again.

Frames from task to driver: kind (1 byte), payload size and row count (uint32 each), payload.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from atonce.errors import AttemptAborted, InvariantError
from atonce.spark.channel import Door, Place, knock

HELLO = struct.Struct("!qq")
FRAME = struct.Struct("!cII")
DATA, DEAD, BAD, WHY, END = b"D", b"X", b"B", b"Y", b"Z"
GRANTED, REFUSED, TAKEN = b"G", b"R", b"K"
RESULT_SCHEMA = "partition bigint, attempt bigint, row_count bigint, byte_count bigint"
REFUSAL = "another attempt of this partition was granted; AtOnce aborts the batch rather than mix two attempts"


@dataclass(slots=True)
class _Grant:
    attempt: int
    state: str = "open"
    rows: int = 0
    bytes: int = 0
    touched: bool = False
    """Something of it has arrived."""


@dataclass(slots=True)
class _Found:
    """What the tasks could not deliver."""

    dead: list[dict[str, Any]] = field(default_factory=list)
    bad: dict[str, Any] | None = None
    why: str | None = None
    """An error of ours that ended a task: Spark tells only of the attempt that came last, and that one was refused."""


class Intake:
    """The driver's end, for one attempt at one batch. `write` is called by one thread at a time."""

    def __init__(self, write: Callable[[Any], None], secret: str, place: Place | None = None) -> None:
        place = place or Place()
        self.found = _Found()
        self.failure: Exception | None = None
        self._write = write
        self._writing = threading.Lock()
        self._changed = threading.Condition()
        self._grants: dict[int, _Grant] = {}
        self._closed = False
        self._lines: list[tuple[int, int, int]] = []
        self._line_count = 0
        self._door = Door(place, secret, self._serve, "atonce-intake")
        self.address: tuple[str, int] = (place.host, self._door.port)

    @classmethod
    def for_session(cls, write: Callable[[Any], None], spark: Any, secret: str) -> Intake:
        """Listening where the tasks of this Spark session can reach it; `secret` proves that they are."""
        return cls(write, secret, Place.of(spark))

    def close(self) -> None:
        """No grant is given and nothing is written after this returns."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._door.close()
        with self._writing:
            pass

    def check(self, results: Iterable[tuple[int, int, int, int]]) -> int:
        """The rows that are in, if they are exactly those of the attempts Spark took as successful."""
        if self.failure is not None:
            raise self.failure
        reported = {partition: (attempt, rows, size) for partition, attempt, rows, size in results}
        with self._changed:
            taken = {p: (grant.attempt, grant.rows, grant.bytes) for p, grant in self._grants.items()}
            unfinished = sorted(p for p, grant in self._grants.items() if grant.state != "done")
        if unfinished or taken != reported:
            odd = sorted(p for p in taken.keys() | reported.keys() if taken.get(p) != reported.get(p))
            raise AttemptAborted(
                f"rows of {len(taken)} task attempts arrived, and Spark took {len(reported)} as successful; they "
                f"differ on partitions {odd[:8] or unfinished[:8]}. Nothing is committed, the batch runs again."
            )
        return sum(rows for _, rows, _ in taken.values())

    def broken(self) -> bool:
        """Whether a task was cut off before it had delivered everything."""
        with self._changed:
            return any(grant.state == "broken" for grant in self._grants.values())

    def locate(self, line: int) -> tuple[int, int] | None:
        """Which row of which Spark partition became line `line` (from 1) of the stream."""
        at = bisect_right(self._lines, (line, 1 << 62, 0)) - 1
        if at < 0 or line > self._line_count:
            return None
        first_line, partition, first_row = self._lines[at]
        return partition, first_row + line - first_line

    def _serve(self, connection: socket.socket) -> None:
        grant: _Grant | None = None
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            partition, attempt = HELLO.unpack(_receive(connection, HELLO.size))
            grant = self._grant(partition, attempt)
            connection.sendall(GRANTED if grant else REFUSED)
            if grant is not None:
                self._take(connection, partition, grant)
                connection.sendall(TAKEN)
        except OSError:
            pass  # the task is gone; its grant is marked below
        except Exception as error:
            self._fail(error)
        finally:
            with self._changed:
                if grant is not None and grant.state == "open":
                    grant.state = "broken"
                self._changed.notify_all()

    def _grant(self, partition: int, attempt: int) -> _Grant | None:
        with self._changed:
            # A speculative copy must not fail while the first attempt may still succeed: failures are counted.
            self._changed.wait_for(lambda: self._closed or _ended(self._grants.get(partition)))
            first = self._grants.get(partition)
            if self._closed or (first is not None and (first.state == "done" or first.touched)):
                return None
            self._grants[partition] = made = _Grant(attempt)
            return made

    def _take(self, connection: socket.socket, partition: int, grant: _Grant) -> None:
        buffer = bytearray(1 << 20)
        while True:
            kind, size, rows = FRAME.unpack(_receive(connection, FRAME.size))
            if size > len(buffer):
                buffer = bytearray(size)
            payload = memoryview(buffer)[:size]
            _receive_into(connection, payload)
            grant.touched = grant.touched or kind != WHY
            if kind == DATA:
                self._put(payload, rows, partition, grant)
            elif kind == DEAD:
                with self._changed:
                    self.found.dead.extend(json.loads(bytes(payload)))
            elif kind == BAD:
                with self._changed:
                    self.found.bad = self.found.bad or json.loads(bytes(payload))
            elif kind == WHY:
                with self._changed:
                    self.found.why = self.found.why or bytes(payload).decode()
            elif kind == END:
                with self._changed:
                    if self.failure is not None:
                        raise ConnectionAbortedError("the batch was given up")
                    grant.state = "done"
                    self._changed.notify_all()
                return
            else:
                raise InvariantError(f"a task sent a frame of unknown kind {kind!r}")

    def _put(self, payload: memoryview, rows: int, partition: int, grant: _Grant) -> None:
        with self._writing:
            if self._closed or self.failure is not None:
                raise ConnectionAbortedError("the batch was given up")
            self._lines.append((self._line_count + 1, partition, grant.rows))
            self._write(payload)
            self._line_count += rows
            grant.rows += rows
            grant.bytes += len(payload)

    def _fail(self, error: Exception) -> None:
        """The database refused: stop every task, they would only send into nothing."""
        with self._changed:
            self.failure = self.failure or error
        self._door.hang_up()


def _ended(grant: _Grant | None) -> bool:
    return grant is None or grant.state != "open"


class Feed:
    """A task's end: asks for its grant, then streams."""

    def __init__(self, address: tuple[str, int], secret: str, partition: int, attempt: int) -> None:
        self.rows = 0
        self.bytes = 0
        with _to_the_driver():
            self._socket = knock(address, secret, 30)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # A driver whose machine is gone must not keep us waiting for hours.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._socket.sendall(HELLO.pack(partition, attempt))
            answer = _receive(self._socket, 1)
        if answer != GRANTED:
            self._socket.close()
            raise AttemptAborted(REFUSAL)

    def send(self, kind: bytes, payload: Any, rows: int = 0) -> None:
        size = len(payload)
        with _to_the_driver():
            self._socket.sendall(FRAME.pack(kind, size, rows))
            self._socket.sendall(payload)
        if kind == DATA:
            self.rows += rows
            self.bytes += size

    def finish(self) -> None:
        """Returns when the driver has taken everything."""
        self.send(END, b"")
        with _to_the_driver():
            answer = _receive(self._socket, 1)
        if answer != TAKEN:
            raise AttemptAborted("the driver gave up this batch")

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def _to_the_driver() -> Iterator[None]:
    """A driver that is gone or has given up ends this attempt; it is no error of the transform's."""
    try:
        yield
    except OSError as error:
        raise AttemptAborted(f"the driver takes no more rows of this attempt: {error}") from error


def _receive(connection: socket.socket, size: int) -> bytes:
    buffer = bytearray(size)
    _receive_into(connection, memoryview(buffer))
    return bytes(buffer)


def _receive_into(connection: socket.socket, view: memoryview) -> None:
    at = 0
    while at < len(view):
        got = connection.recv_into(view[at:])
        if got == 0:
            raise ConnectionResetError("the connection ended in the middle of a frame")
        at += got

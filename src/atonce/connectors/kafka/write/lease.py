"""The lease: the driver grants each (attempt, output partition) the right to write, once.

Python tasks cannot see a stage retry, a second attempt's first batch can look like a retry and be acked, and between
the answer to EndTxn and the marker a broker still takes the old epoch's next sequence. So a sender asks the driver
before its first byte to a partition. A second request for the same partition means a second attempt of the task:

    the first still writes     the second waits: a speculative copy may neither spoil the batch nor fail too early
    the first has failed       under effectively-once the batch is aborted and runs again, under at-most-once the second
                               attempt writes nothing
    the first has finished     the second writes nothing; Spark ends it, or, where the first one's result was lost, sees
                               it fail and gives the job up

Rights belong to one attempt at a batch: one that is over, or was left behind by another, can grant nothing and
can take nothing back. The connection is also the leash: when it breaks, or the driver closes it, the task stops.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from atonce.errors import AtOnceError, AttemptAborted
from atonce.spark.channel import Door, Place, knock

_CONNECT_TIMEOUT_S = 10.0
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 4))
"""A machine that is gone without a word is noticed within half a minute."""
STANDS_BACK_S = 600.0
"""How long a second attempt waits for one that neither ends nor dies."""
ENDED_WITHIN_S = 5.0
"""How long Spark may take to end an attempt that another one has made needless, before that one fails by itself."""
_LOOK_EVERY_S = 0.1
EVERYTHING = ("", -1)
"""Asked for instead of a partition by a task that writes the whole batch: what a second execution of it would put
where is another question, so none of it may be written."""

Target = tuple[str, int]


@dataclass(frozen=True, slots=True)
class LeaseAddress:
    """What a task needs to ask; travels to it inside the sender."""

    host: str
    port: int
    secret: str
    attempt: str
    """One attempt at one batch."""


@dataclass(slots=True, eq=False)
class _Task:
    """One attempt of a sending task, as the driver sees it."""

    connection: socket.socket
    state: Literal["open", "done", "broken"] = "open"
    approved: bool = False

    def gone(self) -> bool:
        """A task that waits for its answer says nothing, so anything to read is the end of its connection."""
        return _readable(self.connection)


@dataclass(slots=True, eq=False)
class Grants:
    """The rights that one attempt at a batch has given away."""

    address: LeaseAddress
    approve: Callable[[], bool] | None = None
    """Asked once for every task, before its first grant."""
    admit: Callable[[str, int], None] | None = None
    """Called before a partition is granted; what it raises denies it."""
    refused: AtOnceError | None = None
    """What `admit` raised first."""
    granted: dict[Target, _Task] = field(default_factory=dict)
    contested: Target | None = None
    """A partition that a second attempt of its task asked for, after the first had failed."""
    first_grant_at: float | None = None
    """When the first right to write was given (monotonic): the transaction begins here, not earlier."""


class LeaseServer:
    """In the driver. One attempt at a time is open; requests of any other are denied."""

    def __init__(self, place: Place | None = None) -> None:
        place = place or Place()
        self._host = place.host
        self._secret = place.new_secret()
        self._changed = threading.Condition()
        self._open: Grants | None = None
        self._door = Door(place, self._secret, self._serve, "atonce-lease")

    def address(self, attempt: str = "") -> LeaseAddress:
        return LeaseAddress(self._host, self._door.port, self._secret, attempt)

    def open(
        self,
        attempt: str,
        approve: Callable[[], bool] | None = None,
        admit: Callable[[str, int], None] | None = None,
    ) -> Grants:
        """Begins an attempt, and with it ends the one before: whoever still writes for that one stops."""
        opened = Grants(self.address(attempt), approve, admit)
        with self._changed:
            self._end_open()
            self._open = opened
        return opened

    def revoke(self, ended: Grants) -> None:
        """End this attempt: whoever still holds a leash stops writing, and nobody gets another. Later ones go on."""
        with self._changed:
            if self._open is ended:
                self._end_open()

    def close(self) -> None:
        with self._changed:
            self._end_open()
        self._door.close()

    def _end_open(self) -> None:
        if self._open is not None:
            for task in self._open.granted.values():
                with contextlib.suppress(OSError):
                    task.connection.shutdown(socket.SHUT_RDWR)
        self._open = None
        self._changed.notify_all()

    def _serve(self, connection: socket.socket) -> None:
        task = _Task(connection)
        with connection, connection.makefile("rw") as stream, contextlib.suppress(OSError, ValueError):
            _keep_alive(connection)
            for line in stream:
                request = json.loads(line)
                if request.get("done"):
                    self._ended(task, "done")
                    continue
                stream.write("granted\n" if self._grant(request, task) else "denied\n")
                stream.flush()
        self._ended(task, "broken")

    def _ended(self, task: _Task, state: Literal["done", "broken"]) -> None:
        with self._changed:
            if task.state == "open":
                task.state = state
            self._changed.notify_all()

    def _grant(self, request: dict[str, object], task: _Task) -> bool:
        target = (str(request["topic"]), int(str(request["partition"])))
        current = self._open
        if current is None or request["attempt"] != current.address.attempt:
            return False
        if not task.approved and current.approve is not None and not current.approve():
            return False
        task.approved = True
        with self._changed:
            if self._open is not current:
                return False
            holder = current.granted.setdefault(target, task)
            if holder is not task:
                self._stand_back(current, target, holder, task)
                return False
            if current.first_grant_at is None:
                current.first_grant_at = time.monotonic()
        return current.admit is None or self._admitted(current, target)

    def _admitted(self, current: Grants, target: Target) -> bool:
        """Without the lock: it may ask a broker, and others must be able to end the attempt meanwhile."""
        assert current.admit is not None
        try:
            current.admit(*target)
        except AtOnceError as error:
            current.refused = current.refused or error
            return False
        return self._open is current

    def _stand_back(self, current: Grants, target: Target, first: _Task, second: _Task) -> None:
        """Returns when the second attempt may be told that it writes nothing. Called with the lock held."""
        deadline = time.monotonic() + STANDS_BACK_S
        while self._open is current and time.monotonic() < deadline and not second.gone():
            if first.state == "broken":
                current.contested = current.contested or target
                return
            if first.state == "done":
                deadline = min(deadline, time.monotonic() + ENDED_WITHIN_S)
            self._changed.wait(_LOOK_EVERY_S)


class Lease:
    """In the task. One connection for all partitions that this task writes."""

    def __init__(self, address: LeaseAddress) -> None:
        self._address = address
        try:
            self._socket = knock((address.host, address.port), address.secret, _CONNECT_TIMEOUT_S)
        except OSError as error:
            raise AttemptAborted(
                f"the driver's lease server at {address.host}:{address.port} is gone: {error}"
            ) from None
        _keep_alive(self._socket)
        self._stream = self._socket.makefile("rw")

    def ask(self, topic: str, partition: int) -> bool:
        try:
            self._say({"topic": topic, "partition": partition})
            answer = self._stream.readline()
        except OSError:
            answer = ""
        return answer == "granted\n"

    def done(self) -> None:
        """Everything is written: another attempt of this task spoils nothing any more."""
        with contextlib.suppress(OSError):
            self._say({"done": True})

    def broken(self) -> bool:
        """The driver never speaks unasked, so anything to read is the end of the connection."""
        return _readable(self._socket)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.close()
            self._socket.close()

    def _say(self, what: dict[str, object]) -> None:
        self._stream.write(json.dumps({"attempt": self._address.attempt, **what}) + "\n")
        self._stream.flush()


def _readable(connection: socket.socket) -> bool:
    """By poll: select knows no descriptor above 1023, and a driver or a task may hold thousands."""
    polled = select.poll()
    try:
        polled.register(connection, select.POLLIN)
        return bool(polled.poll(0))
    except (OSError, ValueError):
        return True  # closed


def _keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)

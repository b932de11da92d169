"""What stands where the code under simulation looks for the machine: `time`, `threading`, `random`, sockets, disks.

`installed(…)` puts these into the modules of the driver, the tasks and the client, by identity: whatever module has
the real thing in its globals gets the virtual one. Nothing of the code itself is copied or changed.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import random
import secrets
import select
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

from tests.simulation.pipeline.fibers import Fiber, Turns

ROOMS = ("atonce.delivery", "atonce.client", "atonce.connectors", "atonce.spark", "atonce.backoff")
STAMPS = "atonce.records.encode"
"""Of the codec only the clock is replaced."""
EPOCH_S = 1_700_000_000


class VirtualTime:
    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.strftime, self.gmtime = time.strftime, time.gmtime

    def monotonic(self) -> float:
        return self._turns.now

    def time(self) -> float:
        return EPOCH_S + self._turns.now

    def time_ns(self) -> int:
        return int(self.time() * 1e9)

    def sleep(self, seconds: float) -> None:
        self._turns.pass_time(seconds)


class VirtualLock:
    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._holder: Fiber | None = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        turns = self._turns
        if self._holder is not None and not (
            blocking and turns.wait(lambda: self._holder is None, None if timeout < 0 else timeout)
        ):
            return False
        self._holder = turns.current
        return True

    def release(self) -> None:
        self._holder = None

    def locked(self) -> bool:
        return self._holder is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class VirtualRLock(VirtualLock):
    def __init__(self, turns: Turns) -> None:
        super().__init__(turns)
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._holder is not self._turns.current and not super().acquire(blocking, timeout):
            return False
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            super().release()


class VirtualCondition:
    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._lock = VirtualLock(turns)
        self._notified = 0

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        before = self._notified
        self._lock.release()
        told = self._turns.wait(lambda: self._notified != before, timeout)
        self._lock.acquire()
        return told

    def notify(self, n: int = 1) -> None:
        self._notified += 1

    notify_all = notify


class VirtualEvent:
    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            self._turns.wait(self.is_set, timeout)
        return self._set


class VirtualThread:
    def __init__(
        self, turns: Turns, target: Any = None, name: str = "", args: Any = (), kwargs: Any = None, daemon: bool = True
    ) -> None:
        self._turns, self._name = turns, name
        self._work = lambda: target(*args, **(kwargs or {}))
        self._fiber: Fiber | None = None

    def start(self) -> None:
        current = self._turns.current
        self._fiber = self._turns.spawn(current.process, self._work, self._name, current.context)

    def join(self, timeout: float | None = None) -> None:
        fiber = self._fiber
        if fiber is not None:
            self._turns.wait(lambda: fiber.ended, timeout)

    def is_alive(self) -> bool:
        return self._fiber is not None and not self._fiber.ended


class VirtualThreading:
    def __init__(self, turns: Turns) -> None:
        self.Lock = lambda: VirtualLock(turns)
        self.RLock = lambda: VirtualRLock(turns)
        self.Event = lambda: VirtualEvent(turns)
        self.Condition = lambda: VirtualCondition(turns)
        self.Thread = lambda **given: VirtualThread(turns, **given)
        self.current_thread = threading.current_thread


class SeededUuid:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.UUID = uuid.UUID

    def uuid4(self) -> uuid.UUID:
        return uuid.UUID(int=self._rng.getrandbits(128), version=4)


class SeededSecrets:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def randbits(self, k: int) -> int:
        return self._rng.getrandbits(k)

    def token_hex(self, n: int = 32) -> str:
        return f"{self._rng.getrandbits(8 * n):0{2 * n}x}"

    def token_bytes(self, n: int = 32) -> bytes:
        return self._rng.getrandbits(8 * n).to_bytes(n, "big")


class VirtualSelect:
    """Only what is asked of it: can this one be read now?"""

    POLLIN = select.POLLIN

    class poll:
        def __init__(self) -> None:
            self._watched: list[Any] = []

        def register(self, connection: Any, events: int) -> None:
            self._watched.append(connection)

        def poll(self, timeout_ms: float = 0) -> list[tuple[Any, int]]:
            return [(each, select.POLLIN) for each in self._watched if each.can_be_read()]


class VirtualOs:
    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def getpid(self) -> int:
        return self._turns.current.process.pid

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


def machine(turns: Turns, rng: random.Random) -> list[tuple[Any, Any]]:
    """What a process finds on its machine: the real thing, and what stands for it."""
    return [
        (time, VirtualTime(turns)),
        (threading, VirtualThreading(turns)),
        (random, random.Random(rng.getrandbits(64))),
        (uuid, SeededUuid(random.Random(rng.getrandbits(64)))),
        (secrets, SeededSecrets(random.Random(rng.getrandbits(64)))),
        (select, VirtualSelect()),
        (os, VirtualOs(turns)),
    ]


_places: dict[int, list[tuple[Any, str]]] = {}
"""Of each real thing: the modules that have it, and under which name."""


_loaded: list[bool] = []


def load_rooms() -> None:
    """Everything is imported before anything is replaced: a module that comes later would keep the real thing."""
    if _loaded:
        return
    _loaded.append(True)
    for room in ROOMS:
        package = importlib.import_module(room)
        for found in pkgutil.walk_packages(getattr(package, "__path__", ()), room + "."):
            with contextlib.suppress(ImportError):
                importlib.import_module(found.name)


def _where(real: Any) -> list[tuple[Any, str]]:
    if id(real) not in _places:
        _places[id(real)] = [
            (module, name)
            for title, module in list(sys.modules.items())
            if module is not None and (title.startswith(ROOMS) or (real is time and title == STAMPS))
            for name, value in vars(module).items()
            if value is real
        ]
    return _places[id(real)]


@contextlib.contextmanager
def installed(replacements: list[tuple[Any, Any]]) -> Iterator[None]:
    changed: list[tuple[Any, str, Any]] = []
    try:
        for real, stand_in in replacements:
            for module, name in _where(real):
                changed.append((module, name, real))
                setattr(module, name, stand_in)
        yield
    finally:
        for module, name, real in reversed(changed):
            setattr(module, name, real)

"""The driver's door and the connections through it, in memory: what `spark/channel.py` gives on a real machine.

Who may come in is not simulated (its own tests do that); that a connection ends with either of its processes is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from tests.simulation.pipeline.fibers import SimulatedProcess, Turns


class VirtualEnd:
    """One end of a connection; lines of text travel through it."""

    def __init__(self, turns: Turns, process: SimulatedProcess) -> None:
        self._turns = turns
        self._arrived: deque[str] = deque()
        self._over = False
        self.other: VirtualEnd
        process.on_death.append(self.hang_up)

    def hang_up(self) -> None:
        self._over = self.other._over = True

    def can_be_read(self) -> bool:
        return bool(self._arrived) or self._over

    # As a socket

    def makefile(self, mode: str = "rw") -> VirtualEnd:
        return self

    def setsockopt(self, *_: object) -> None:
        return None

    settimeout = setsockopt

    def shutdown(self, how: int) -> None:
        self.hang_up()

    def close(self) -> None:
        self.hang_up()

    def __enter__(self) -> VirtualEnd:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # As a stream

    def write(self, text: str) -> None:
        self._turns.step()
        if self._over:
            raise BrokenPipeError("the other end is gone")
        self.other._arrived.append(text)

    def flush(self) -> None:
        return None

    def readline(self) -> str:
        self._turns.wait(self.can_be_read)
        return self._arrived.popleft() if self._arrived else ""

    def __iter__(self) -> VirtualEnd:
        return self

    def __next__(self) -> str:
        line = self.readline()
        if not line:
            raise StopIteration
        return line


class VirtualDoors:
    """All doors of a world, by their port."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._open: dict[int, tuple[SimulatedProcess, Callable[[Any], None], str]] = {}
        self._port = 40_000

    def door(self, place: Any, secret: str, serve: Callable[[Any], None], name: str) -> VirtualDoor:
        self._port += 1
        process = self._turns.current.process
        self._open[self._port] = (process, serve, name)
        return VirtualDoor(self, self._port)

    def close(self, port: int) -> None:
        self._open.pop(port, None)

    def knock(self, address: tuple[str, int], secret: str, timeout_s: float) -> VirtualEnd:
        turns = self._turns
        turns.step()
        known = self._open.get(address[1])
        if known is None or known[0].dead:
            raise ConnectionRefusedError(f"nobody listens on {address[1]}")
        process, serve, name = known
        if process.paused_until > turns.now:
            turns.pass_time(timeout_s)
            raise TimeoutError("the greeting took too long")
        here, there = VirtualEnd(turns, turns.current.process), VirtualEnd(turns, process)
        here.other, there.other = there, here
        turns.spawn(process, lambda: _served(serve, there), f"{name}-task")
        return here


def _served(serve: Callable[[Any], None], connection: VirtualEnd) -> None:
    with connection:
        serve(connection)


class VirtualDoor:
    def __init__(self, doors: VirtualDoors, port: int) -> None:
        self._doors = doors
        self.port = port

    def close(self) -> None:
        self._doors.close(self.port)

"""A command that runs servers in the foreground: Ctrl-C and SIGTERM end it, once, with exit code 0."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

POLL_S = 0.2


@contextmanager
def stoppable() -> Iterator[None]:
    """Within it the first SIGINT, SIGTERM or SIGHUP raises KeyboardInterrupt; later ones cannot disturb the clean-up.

    It swallows that interrupt at its end: stopping a server is its ordinary way to finish, so the exit code is 0.
    """
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def stop(_number: int, _frame: FrameType | None) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def announce(servers: str) -> None:
    """The one plain line that other programs wait for."""
    print(f"ready on {servers}", flush=True)


def stay(check: Callable[[], None]) -> None:
    """Returns only by an exception: a signal, or what `check` raises when a server has ended by itself."""
    while True:
        check()
        time.sleep(POLL_S)

"""Ctrl-C and SIGTERM are the ordinary end of a pipeline, at any moment."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stops:
    """What a signal calls. Spark takes SIGINT for itself when its session starts, so each newcomer takes it back."""

    def __init__(self) -> None:
        self._stops: list[Callable[[], None]] = []
        self._arm: Callable[[], None] = lambda: None

    def append(self, stop: Callable[[], None]) -> None:
        self._stops.append(stop)
        self._arm()

    def armed_by(self, arm: Callable[[], None]) -> None:
        self._arm = arm

    def __call__(self) -> bool:
        """Whether there was anything to stop."""
        for each in self._stops:
            each()
        return bool(self._stops)


@contextmanager
def stopped_by_signals() -> Iterator[Stops]:
    """Within it a signal calls what stands in the list. While that is empty nothing is delivered yet, and the first
    signal ends the block where it stands, cleaning up on the way; later ones cannot disturb that.

    Only the main thread can listen to signals.
    """
    stops = Stops()
    if threading.current_thread() is not threading.main_thread():
        yield stops
        return
    interrupted = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal interrupted
        if not stops() and not interrupted:
            interrupted = True
            # Py4J would log the interrupt with its stack, wherever it waits for the JVM.
            logging.getLogger().addFilter(lambda record: "while sending command" not in record.getMessage())
            raise KeyboardInterrupt

    # One that is ignored stays so: under nohup, or Ctrl-C in the background of a shell.
    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heard}

    def arm() -> None:
        if threading.current_thread() is threading.main_thread():
            for number in heard:
                signal.signal(number, stop)

    stops.armed_by(arm)
    try:
        yield stops
    except KeyboardInterrupt:
        # Ours; or Spark's, which took SIGINT for itself when its session started. Anybody else's is theirs.
        if not interrupted and signal.getsignal(signal.SIGINT) in (stop, *before.values()):
            raise
        # An interrupt that passed through a text being executed (as dataclasses and named tuples are made) makes Python
        # end by SIGINT, however it was handled; the next text that is executed takes that back.
        exec("")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

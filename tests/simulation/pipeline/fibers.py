"""Time and turns: one fiber runs at a time, a virtual clock says when the others wake, and one seed picks who is next.

The code under simulation blocks as it does in production (locks, sockets, sleeps), so a fiber is a real thread that
owns the baton while it runs. A switch happens only inside of what is virtual here: whoever touches nothing virtual is
never interrupted. Fibers belong to a *process*, which can be killed (every fiber of it ends at its next virtual step,
and nothing that it does on its way out has an effect) or paused (its fibers stand still while time goes on).
"""

from __future__ import annotations

import _thread
import random
from collections.abc import Callable
from typing import Any

NEVER = float("inf")


class KilledFiber(BaseException):
    """The process of this fiber is dead. No `except Exception` may keep it alive."""


class StuckWorld(Exception):
    """Nobody can ever run again, or nobody comes to an end."""


class SimulatedProcess:
    """What dies and pauses together: a driver, or one of its Python workers."""

    _count = 0

    def __init__(self, name: str, pid: int) -> None:
        self.name = name
        self.pid = pid
        self.dead = False
        self.die_at = NEVER
        self.paused_until = 0.0
        self.on_death: list[Callable[[], None]] = []
        self.steps = 0
        self.dies_at_step = -1
        self.pauses_at_step = -1
        self.pause_s = 0.0

    def __repr__(self) -> str:
        return f"{self.name}{'†' if self.dead else ''}"


class Fiber:
    def __init__(self, process: SimulatedProcess, work: Callable[[], Any], name: str) -> None:
        self.process = process
        self.work = work
        self.name = name
        self.baton = _thread.allocate_lock()
        self.baton.acquire()
        self.wake_at = 0.0
        self.ready: Callable[[], bool] | None = None
        self.result: Any = None
        self.error: BaseException | None = None
        self.ended = False
        self.context: Any = None
        """What runs here thinks it is (a Spark task)."""
        self.properties: dict[str, str | None] = {}
        self.tags: list[str] = []


_idle: list[Worker] = []
"""Threads without a fiber; they outlive worlds, since making one costs more than most fibers live."""


class Worker:
    def __init__(self) -> None:
        self.wake = _thread.allocate_lock()
        self.wake.acquire()
        self.turns: Turns | None = None
        self.fiber: Fiber | None = None
        _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        while True:
            self.wake.acquire()
            turns, fiber = self.turns, self.fiber
            assert turns is not None and fiber is not None
            fiber.baton.acquire()
            try:
                turns.check_alive(fiber)
                fiber.result = fiber.work()
            except BaseException as error:
                fiber.error = error
            self.turns = self.fiber = None
            _idle.append(self)
            turns.end(fiber)


class Turns:
    """The scheduler of one world."""

    def __init__(self, rng: random.Random) -> None:
        self.now = 1_000.0
        self.rng = rng
        self.conductor = SimulatedProcess("conductor", 1)
        self.current = Fiber(self.conductor, lambda: None, "conductor")
        self.fibers: list[Fiber] = [self.current]
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self.switches = 0
        self.ends_at = NEVER
        self.turbulence = 0.1
        """How often a step lets somebody else go first."""

    # What fibers do

    def spawn(self, process: SimulatedProcess, work: Callable[[], Any], name: str, context: Any = None) -> Fiber:
        fiber = Fiber(process, work, name)
        fiber.context = context
        worker = _idle.pop() if _idle else Worker()
        worker.turns, worker.fiber = self, fiber
        self.fibers.append(fiber)
        worker.wake.release()
        return fiber

    def step(self) -> None:
        """Something virtual is about to be done: whoever is dead stops, and somebody else may go first."""
        fiber = self.current
        process = fiber.process
        process.steps += 1
        if process.steps == process.dies_at_step:
            self.kill(process)
        elif process.steps == process.pauses_at_step:
            process.paused_until = self.now + process.pause_s
        self.check_alive(fiber)
        if len(self.fibers) > 1 and self.rng.random() < self.turbulence:
            self._yield(self.now)

    def pass_time(self, seconds: float) -> None:
        """This fiber is busy, or sleeps, for so long."""
        self.check_alive(self.current)
        self._yield(self.now + max(0.0, seconds))

    def wait(self, ready: Callable[[], bool], seconds: float | None = None) -> bool:
        """Until `ready()`, or for so long. Whether it is ready."""
        self.check_alive(self.current)
        if ready():
            return True
        fiber = self.current
        fiber.ready = ready
        try:
            self._yield(NEVER if seconds is None else self.now + max(0.0, seconds))
        finally:
            fiber.ready = None
        return ready()

    def check_alive(self, fiber: Fiber) -> None:
        process = fiber.process
        if process.die_at <= self.now:
            self.kill(process)
        if process.dead:
            raise KilledFiber(process.name)
        if process.paused_until > self.now:
            self._yield(process.paused_until)

    # What the world does

    def later(self, seconds: float, event: Callable[[], None]) -> None:
        """`event` happens then, in nobody's fiber: it must not block."""
        self._order += 1
        self.events.append((self.now + seconds, self._order, event))
        self.events.sort(key=lambda each: each[:2])

    def kill(self, process: SimulatedProcess) -> None:
        if not process.dead:
            process.dead = True
            for each in process.on_death:
                each()

    # The baton

    def _yield(self, wake_at: float) -> None:
        fiber = self.current
        fiber.wake_at = wake_at
        chosen = self._next()
        if chosen is not fiber:
            self.switches += 1
            self.current = chosen
            chosen.baton.release()
            fiber.baton.acquire()
        fiber.wake_at = self.now
        process = fiber.process
        if process is self.conductor and fiber.error is not None:
            error, fiber.error = fiber.error, None
            raise error
        if process.dead or process.die_at <= self.now or process.paused_until > self.now:
            self.check_alive(fiber)

    def end(self, fiber: Fiber) -> None:
        """The last thing of a fiber's thread."""
        fiber.ended = True
        self.fibers.remove(fiber)
        chosen = self._next()
        self.current = chosen
        chosen.baton.release()

    def _next(self) -> Fiber:
        """Whoever can go on now, one of them by chance; else the clock moves on to the next who can."""
        events = self.events
        while True:
            now = self.now
            if events and events[0][0] <= now:
                events.pop(0)[2]()
                continue
            able = []
            soonest = events[0][0] if events else NEVER
            for each in self.fibers:
                process = each.process
                if process.dead or process.die_at <= now:
                    able.append(each)  # to come to its end
                    continue
                if process.paused_until > now:
                    at = process.paused_until
                elif each.wake_at <= now or (each.ready is not None and each.ready()):
                    able.append(each)
                    continue
                else:
                    at = each.wake_at
                if process.die_at < at:
                    at = process.die_at
                if at < soonest:
                    soonest = at
            if able:
                return able[0] if len(able) == 1 else able[int(self.rng.random() * len(able))]
            self._advance(soonest)

    def _advance(self, soonest: float) -> None:
        if soonest == NEVER:
            waiting = ", ".join(f"{each.process.name}/{each.name}" for each in self.fibers)
            self.fail_conductor(StuckWorld(f"nobody can go on: {waiting}"))
            return
        self.now = max(self.now, soonest)
        if self.now > self.ends_at:
            self.ends_at = NEVER
            self.fail_conductor(StuckWorld(f"nothing comes to an end within {self.now - 1_000:.0f} s"))

    def fail_conductor(self, error: BaseException) -> None:
        conductor = next(each for each in self.fibers if each.process is self.conductor)
        conductor.error = error
        conductor.wake_at = self.now

    def end_world(self) -> None:
        """Whoever is left dies. Called by the conductor."""
        self.ends_at = NEVER
        self.events.clear()
        for each in self.fibers:
            if each.process is not self.conductor:
                each.process.dead = True
        while len(self.fibers) > 1:
            self._yield(self.now)

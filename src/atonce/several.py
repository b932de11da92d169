"""`atonce.run`: several pipelines in one process and one Spark session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

from atonce.delivery.metrics import Numbers
from atonce.delivery.started import Started
from atonce.errors import AtOnceError, RefusedError, UsageError
from atonce.pipeline import Pipeline
from atonce.stopping import Stops, stopped_by_signals

_POLL_S = 0.1


def run(*pipelines: Pipeline, available_now: bool = False, stop_together: bool = False) -> None:
    """Until all of them have ended. One that fails leaves the others running, unless `stop_together`; what failed is
    raised at the end. Ctrl-C and SIGTERM stop them all."""
    refuse_together(pipelines)
    with stopped_by_signals() as stops:
        together = Together(pipelines, available_now, stop_together)
        together.start(stops)
        together.wait()


class Together:
    """Pipelines that are started one after the other and waited for together."""

    def __init__(
        self,
        pipelines: Sequence[Pipeline],
        available_now: bool = False,
        stop_together: bool = False,
        checked: Callable[[str], None] = lambda name: None,
    ) -> None:
        """`checked` is called with a pipeline's name when nothing is wrong with it and nothing of it is made yet."""
        self._pipelines = pipelines
        self._available_now = available_now
        self._stop_together = stop_together
        self._checked = checked
        self.numbers = [Numbers(each.name, each.level.value) for each in pipelines]
        self.started: list[Started] = []
        self.failures: dict[str, BaseException] = {}

    def start(self, stops: Stops) -> None:
        """All of them, or as many as start. What stops them is in `stops` when the last one runs."""
        alone = len(self._pipelines) == 1
        try:
            for each, numbers in zip(self._pipelines, self.numbers, strict=True):
                try:
                    self.started.append(each.started(numbers, self._available_now, self._checked))
                except AtOnceError as error:
                    if alone:
                        raise
                    self._failed(each.name, error)
                    if self._stop_together:
                        break
        except BaseException:
            self.stop()
            for one in self.started:
                one.ended()
            raise
        stops.append(self.stop)

    def stop(self) -> None:
        for each in self.started:
            each.stop()

    def wait(self) -> None:
        running = list(self.started)
        if self._stop_together and self.failures:
            self.stop()
        while running:
            for each in running:
                if each.ended(_POLL_S if each is running[0] else 0.0):
                    error = each.exception()
                    if error is not None:
                        self._failed(each.name, error)
                        if self._stop_together:
                            self.stop()
            running = [each for each in running if not each.ended(0.0)]
        self._raise()

    def _failed(self, name: str, error: BaseException) -> None:
        if name in self.failures:
            return
        self.failures[name] = error
        if len(self._pipelines) > 1:  # at once, and not when the others have ended
            next(each for each in self._pipelines if each.name == name).say(f"{name} failed: {error}")

    def _raise(self) -> None:
        if not self.failures:
            return
        if len(self.failures) == 1:
            raise next(iter(self.failures.values()))
        causes = "; ".join(f"{name}: {error}" for name, error in self.failures.items())
        raise RefusedError(f"{len(self.failures)} of {len(self._pipelines)} pipelines failed. {causes}")


def refuse_together(pipelines: Sequence[Pipeline]) -> None:
    """What pipelines of one session cannot have apart."""
    if not pipelines:
        raise UsageError("atonce.run got no pipeline; give it one or more")
    for one, other in combinations(pipelines, 2):
        if one.name == other.name:
            raise UsageError(
                f"two of the pipelines are named {one.name!r}: each would take over from the other. Next: rename one."
            )
        if one.master and other.master and one.master != other.master:
            raise UsageError(
                f"{one.name!r} has master {one.master} and {other.name!r} has {other.master}, but pipelines of one "
                "process share one Spark session. Next: run them in two processes, or give them one master."
            )
        for key in sorted(set(one.spark) & set(other.spark)):
            if one.spark[key] != other.spark[key]:
                raise UsageError(
                    f"{one.name!r} sets {key} to {one.spark[key]} and {other.name!r} to {other.spark[key]}, but "
                    "pipelines of one process share one Spark session. Next: agree on one, or run them in two "
                    "processes."
                )

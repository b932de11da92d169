"""Whoever looks at a pipeline's input while it runs, beside the source itself: is it all read, is it still the same?"""

from __future__ import annotations

from typing import Protocol


class InputWatch(Protocol):
    """Called in the driver. Each may raise: `RefusedError` stops the pipeline, `RetriableError` starts it again."""

    def before(self, batch_id: int, query_id: str) -> None:
        """This batch is planned and about to be delivered."""

    def skipped(self, batch_id: int) -> None:
        """This batch had been delivered before."""

    def look(self, *, now: bool = False) -> None:
        """Called often, also when there is no input; does something every few seconds, or `now`."""

    def meaning(self, error: BaseException) -> BaseException:
        """What an error of the query means, where the input is to blame; else the same error."""


class Unwatched:
    """For sources that notice everything themselves."""

    def before(self, batch_id: int, query_id: str) -> None:
        return None

    def skipped(self, batch_id: int) -> None:
        return None

    def look(self, *, now: bool = False) -> None:
        return None

    def meaning(self, error: BaseException) -> BaseException:
        return error

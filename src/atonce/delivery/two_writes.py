"""The two writes of one batch over an open sink: what a guarantee puts in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from atonce.delivery.contract import Batch, OpenSink
from atonce.delivery.events import Event, OutputBegun, OutputDone, ProgressDone
from atonce.delivery.progress import Progress


class TwoWrites:
    """`guarantee.Delivery` over an open sink. A half that is done is not done again when the order is repeated."""

    def __init__(self, sink: OpenSink, batch: Batch, progress: Progress, tell: Callable[[Event], None]) -> None:
        self._sink = sink
        self._given = batch.complete
        self._batch = replace(batch, complete=self._complete)
        self._progress = progress
        self.recorded = progress
        """The progress as it was recorded."""
        self._tell = tell
        self.rows: int | None = None
        self.written = False
        self.progressed = False
        self.recorded_first = False
        self.given_up = False
        """Progress was recorded first and the output failed: to repeat it could double rows, so it is lost."""

    def output(self) -> None:
        if self.written:
            return
        self._tell(OutputBegun(batch_id=self._batch.plan.batch_id))
        self.given_up = self.recorded_first
        self.rows = self._sink.output(self._batch)
        self.given_up, self.written = False, True
        self._tell(OutputDone(batch_id=self._batch.plan.batch_id, rows=self.rows))

    def progress(self) -> None:
        if self.progressed:
            return
        self._sink.progress(self._complete(self._progress) if self.written else self._progress)
        self.progressed = True
        self.recorded_first = not self.written
        self._tell(ProgressDone(batch_id=self._batch.plan.batch_id))

    def progress_on_timer(self) -> None:
        if self.progressed:
            return
        self._sink.progress_on_timer(self._progress)
        self.progressed = True

    def output_and_progress(self) -> None:
        self._tell(OutputBegun(batch_id=self._batch.plan.batch_id))
        self.rows = self._sink.output_and_progress(self._batch, self._progress)

    def _complete(self, progress: Progress) -> Progress:
        """Between the two writes: what reading the input told is part of the progress from here on."""
        self.recorded = self._given(progress)
        return self.recorded

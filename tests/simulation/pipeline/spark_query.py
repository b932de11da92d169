"""A small model of Spark, second half: the micro-batch loop, its two logs, and the engine that a delivery is given.

`offsets/N` is durable before batch N is called, `commits/N` after it returned. A start calls the newest planned batch
again unless its commit is there, with the borders that were written, and then plans on from its end; a checkpoint that
lost its newest entries plans those numbers anew, with other borders. `wait` runs what a stream thread would run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from atonce.spark.engine import SparkEngine
from tests.simulation.pipeline.spark_jobs import ModelFrame, ModelJobError

CONCURRENT = "Concurrent update to the log. Multiple streaming jobs detected"
METADATA_GONE = "the metadata file is missing but offset and/or commit logs contain data"
STATE_LEFT = "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"
QUERY_ID = "sql.streaming.queryId"


class ModelQuery:
    def __init__(
        self,
        frame: ModelFrame,
        files: Any,
        trigger: Mapping[str, Any],
        deliver: Callable[[Any, int], None],
        history: Callable[[tuple[Any, ...]], None],
        new_id: Callable[[], str],
    ) -> None:
        self._frame = frame
        self._files = files
        self._deliver = deliver
        self._history = history
        self._error: BaseException | None = None
        self._active = True
        self._available_now = bool(trigger.get("availableNow"))
        session = frame.sparkSession
        self._turns = session.turns
        self._limit = frame.reader.getDefaultReadLimit()
        self._torn = files.read("metadata") is None and bool(files.names("offsets") or files.names("commits"))
        if files.read("metadata") is None and not self._torn:
            files.write("metadata", json.dumps({"id": new_id()}))
        self._id = "" if self._torn else str(json.loads(files.read("metadata") or "{}")["id"])
        self._batch, self._start = -1, None
        self._planned: Any = None

    def _resume(self) -> None:
        if self._torn:
            raise ModelJobError(METADATA_GONE)
        planned, committed = self._newest("offsets"), self._newest("commits")
        if planned is None:
            if self._frame.state is not None and any(name.isdigit() for name in self._files.names("state")):
                raise ModelJobError(f"[{STATE_LEFT}] The checkpoint location should be empty on batch 0.")
            self._batch = 0
            return
        if committed is not None and committed >= planned:
            self._batch, self._start = planned + 1, self._offsets(planned)
            return
        self._batch, self._planned = planned, self._offsets(planned)
        if planned > 0:
            self._start = self._offsets(planned - 1)

    def _newest(self, log: str) -> int | None:
        return max((int(name) for name in self._files.names(log) if name.isdigit()), default=None)

    def _offsets(self, number: int) -> Any:
        text = self._files.read(f"offsets/{number}")
        if text is None:
            raise ModelJobError(f"batch {number} doesn't exist")
        return json.loads(text.splitlines()[2])

    # As the delivery sees it

    def is_active(self) -> bool:
        return self._active

    def wait(self, seconds: float) -> None:
        if not self._active:
            return
        try:
            if not self._trigger():
                if self._available_now:
                    self._active = False
                else:
                    self._turns.pass_time(seconds)
        except Exception as error:
            self._error, self._active = error, False

    def stop(self) -> None:
        self._active = False

    def failure(self) -> BaseException | None:
        return self._error

    def close(self) -> None:
        return None

    @property
    def native(self) -> ModelQuery:
        return self

    # One trigger

    def _trigger(self) -> bool:
        """Whether there was a batch."""
        reader = self._frame.reader
        if self._batch < 0:
            self._resume()
        if self._start is None:
            self._start = self._as_read(reader.initialOffset())
        if self._available_now and self._planned is None and reader._target is None:
            reader.prepareForTriggerAvailableNow()
        if self._planned is None:
            end = self._as_read(reader.latestOffset(self._start, self._limit))
            if end == self._start:
                return False
            self._add("offsets", f"v1\n{{}}\n{json.dumps(end)}")
            self._planned = end
        self._history(("planned", self._batch, self._start, self._planned))
        context = self._frame.sparkSession.sparkContext
        context.setLocalProperty(QUERY_ID, self._id)
        self._deliver(self._frame.of_batch(self._batch, self._start, self._planned), self._batch)
        self._add("commits", 'v1\n{"nextBatchWatermarkMs":0}')
        self._batch, self._start, self._planned = self._batch + 1, self._planned, None
        return True

    def _add(self, log: str, text: str) -> None:
        """A log takes each batch once: that is how Spark notices another query on the same checkpoint."""
        if self._files.read(f"{log}/{self._batch}") is not None:
            raise ModelJobError(f"{CONCURRENT} for {self._batch}")
        self._files.write(f"{log}/{self._batch}", text)

    @staticmethod
    def _as_read(offsets: Any) -> Any:
        return json.loads(json.dumps(offsets))


@dataclass(frozen=True, slots=True)
class ModelEngine(SparkEngine):
    """The engine of `spark/`, with a model's session; only what starts a query, or asks the JVM, is the model's."""

    files_at: Callable[[str, Any], Any]
    history: Callable[[tuple[Any, ...]], None]
    new_id: Callable[[], str]

    def start(
        self,
        df: Any,
        *,
        name: str,
        checkpoint: str,
        mode: str | None,
        trigger: Mapping[str, Any],
        deliver: Callable[[Any, int], None],
    ) -> Any:
        files = self.files_at(checkpoint, self.session)
        return ModelQuery(df, files, trigger, deliver, self.history, self.new_id)

    def stateful(self, df: Any) -> bool:
        return df.state is not None

    def compute(self, df: Any) -> None:
        df.collect()

    def theirs(self, error: BaseException) -> bool:
        return isinstance(error, ModelJobError)

"""Spark as the engine of a delivery: queries, checkpoints, and what its errors mean."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from atonce.delivery.engine import EngineGone
from atonce.delivery.progress import Positions
from atonce.spark.callback import Callback
from atonce.spark.checkpoint.manager import suited_to
from atonce.spark.checkpoint.plans import Checkpoint
from atonce.spark.planning.statefulness import default_mode, is_stateful
from atonce.spark.task_errors import brief, in_words, of_job
from atonce.spark.versions import drains_by_itself


@dataclass(frozen=True, slots=True)
class SparkEngine:
    session: Any

    def checkpoint(self, path: str, parse: Callable[[str], Positions | None]) -> Checkpoint:
        return Checkpoint(path, self.session, parse)

    def start(
        self,
        df: Any,
        *,
        name: str,
        checkpoint: str,
        mode: str | None,
        trigger: Mapping[str, Any],
        deliver: Callable[[Any, int], None],
    ) -> SparkQuery:
        callback = Callback(deliver)
        writer = df.writeStream.queryName(name).foreachBatch(callback)
        writer = writer.option("checkpointLocation", checkpoint).outputMode(mode or default_mode(df))
        ends_itself = drains_by_itself(df)
        if trigger and (ends_itself or not trigger.get("availableNow")):
            writer = writer.trigger(**trigger)
        with suited_to(self.session, checkpoint, stateful=is_stateful(df)):
            query = SparkQuery(name, writer.start(), callback)
        if trigger.get("availableNow") and not ends_itself:
            threading.Thread(target=query.drain, name=f"atonce-drain-{name}", daemon=True).start()
        return query

    def stateful(self, df: Any) -> bool:
        return is_stateful(df)

    def query_id(self, df: Any) -> str:
        return str(df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))

    def session_of(self, df: Any) -> Any:
        return df.sparkSession

    def compute(self, df: Any) -> None:
        df.write.format("noop").mode("overwrite").save()

    def meaning(self, error: BaseException) -> BaseException:
        return of_job(error)

    def brief(self, error: BaseException) -> BaseException:
        return brief(error)

    def words(self, error: BaseException) -> str:
        return in_words(error)

    def theirs(self, error: BaseException) -> bool:
        return type(error).__module__.startswith(("pyspark", "py4j"))


@dataclass(frozen=True, slots=True)
class SparkQuery:
    name: str
    native: Any
    """Spark's StreamingQuery."""
    callback: Callback = field(repr=False)

    def is_active(self) -> bool:
        try:
            return bool(self.native.isActive)
        except Exception as error:
            raise EngineGone(
                f"the JVM under {self.name!r} does not answer: it was killed, or ran out of memory. The batch that "
                "was running is aborted by the next start. Next: start the pipeline again; if it happens again, give "
                "Spark more memory (spark.driver.memory)."
            ) from error

    def wait(self, seconds: float) -> None:
        with contextlib.suppress(Exception):
            self.native.awaitTermination(seconds)

    def drain(self) -> None:
        """Until the source has no more to give, which knows its end; then the query ends."""
        with contextlib.suppress(Exception):  # a query that fails says so itself
            self.native.processAllAvailable()
        self.stop()

    def stop(self) -> None:
        with contextlib.suppress(Exception):  # Spark gives up waiting after spark.sql.streaming.stopTimeout
            self.native.stop()

    def failure(self) -> BaseException | None:
        found: BaseException | None = self.native.exception()
        return found

    def close(self) -> None:
        with _closing:
            _ended.append(self)
            _ended[:] = [each for each in _ended if not each._closed()]

    def _closed(self) -> bool:
        with contextlib.suppress(Exception):
            if self.native.isActive:
                return False  # Spark gave up waiting for its batch: closed with the next query
        self.callback.close()
        return True


_closing = threading.Lock()
_ended: list[SparkQuery] = []

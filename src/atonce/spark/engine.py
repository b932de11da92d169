"""Spark as the engine of a delivery: queries, checkpoints, and what its errors mean."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from atonce.delivery.engine import EngineGone
from atonce.delivery.progress import Positions
from atonce.spark.checkpoint.manager import quick_on_a_local_disk
from atonce.spark.checkpoint.plans import Checkpoint
from atonce.spark.planning.statefulness import default_mode, is_stateful
from atonce.spark.task_errors import brief, in_words, of_job


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
        writer = df.writeStream.queryName(name).foreachBatch(deliver)
        writer = writer.option("checkpointLocation", checkpoint).outputMode(mode or default_mode(df))
        if trigger:
            writer = writer.trigger(**trigger)
        with quick_on_a_local_disk(self.session, checkpoint):
            return SparkQuery(name, writer.start())

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

    def stop(self) -> None:
        with contextlib.suppress(Exception):  # Spark gives up waiting after spark.sql.streaming.stopTimeout
            self.native.stop()

    def failure(self) -> BaseException | None:
        found: BaseException | None = self.native.exception()
        return found

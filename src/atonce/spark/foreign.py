"""The sinks under any Structured Streaming query: what `atonce.deliver(…)` returns for `foreachBatch`.

Its source is not ours, so positions are opaque: the ledger keeps query id and batch id, and the checkpoint is needed.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from atonce.delivery.contract import Identity, OpenSink, Sink
from atonce.delivery.deliver import Deliverer
from atonce.delivery.events import Observer
from atonce.delivery.progress import Positions, Progress
from atonce.delivery.resume import refuse_without_ledger
from atonce.errors import UsageError
from atonce.guarantee import Guarantee, SourceTraits, require
from atonce.spark.checkpoint.plans import Checkpoint
from atonce.spark.engine import SparkEngine
from atonce.spark.planning.determinism import of_plan, refuse_unproven
from atonce.spark.versions import refuse_connect


@dataclass(slots=True)
class ForeignDelivery:
    sink: Sink
    name: str
    checkpoint: str | None
    guarantee: Guarantee
    instance: str
    observer: Observer
    deterministic: bool = False
    _deliverer: Deliverer | None = field(default=None, repr=False)
    _open: OpenSink | None = field(default=None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        refuse_connect()
        source = SourceTraits(
            name="the query's own source",
            replayable=True,
            ordered=False,
            why="Spark replays a planned batch from its checkpoint, if the source itself can be replayed",
        )
        require(self.guarantee, source, self.sink.traits())
        self.sink.check()

    def __call__(self, df: Any, batch_id: int) -> None:
        with self._lock:
            if self._deliverer is None:
                refuse_connect(df.sparkSession)
                self._deliverer = self._claimed(df.sparkSession, batch_id)
        self._deliverer(df, batch_id)

    def close(self) -> None:
        """Returns when what was delivered is visible, and lets go of the connections."""
        if self._open is not None:
            try:
                self._open.settle()
            finally:
                self._open.close()

    def _claimed(self, spark: Any, batch_id: int) -> Deliverer:
        identity = Identity(name=self.name, instance=self.instance, guarantee=self.guarantee)
        checkpoint = Checkpoint(self.checkpoint or _checkpoint_of(spark), spark, _opaque)
        query = _query_of(spark)
        if self.guarantee is Guarantee.EFFECTIVELY_ONCE and not self.deterministic and query is not None:
            refuse_unproven(of_plan(query._jsq.streamingQuery().logicalPlan(), spark), self.name)
        self._open = self.sink.open(identity, spark)
        recorded = self._open.claim()
        if recorded is None:
            if batch_id > 0:
                refuse_without_ledger(checkpoint, self.name, {})
            recorded = Progress(instance=self.instance, query_id="", batch_id=-1, positions=None, sequence=1)
            self._open.progress(recorded)
        return Deliverer(
            identity=identity,
            engine=SparkEngine(spark),
            sink=self._open,
            checkpoint=checkpoint,
            recorded=recorded,
            source_ids={},
            stateful=False,  # unknown here; a skipped batch is executed whenever the checkpoint holds state
            encoded=False,
            observer=self.observer,
        )


def _checkpoint_of(spark: Any) -> str:
    """Where the query that calls us keeps its checkpoint."""
    query = _query_of(spark)
    if query is None:
        raise UsageError("the query's checkpoint was not found. Next: give it, atonce.deliver(…, checkpoint=PATH).")
    return str(query._jsq.streamingQuery().resolvedCheckpointRoot())


def _query_of(spark: Any) -> Any | None:
    """The query that calls us. Its DataFrame belongs to a clone of the session, which lists no queries."""
    from pyspark.sql import SparkSession

    query_id = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    for session in (SparkSession._instantiatedSession, spark):
        for query in session.streams.active if session is not None else []:
            if query.id == query_id:
                return query
    return None


def _opaque(_: str) -> Positions | None:
    return None

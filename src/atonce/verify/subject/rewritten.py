"""The user's pipeline on scratch: same transform, other topics, tables and checkpoint. Nothing real is touched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from atonce.connectors.kafka.topic import Kafka
from atonce.errors import UsageError
from atonce.guarantee import Guarantee
from atonce.verify.faults.catalogue import Need
from atonce.verify.subject.contract import Names


def rewritten(pipeline: Any, level: Guarantee | None, names: Names, records_per_batch: int) -> Any:
    timer_s = float(names.options.get("auto.commit.interval.ms", 5000)) / 1000
    return replace(
        pipeline,
        name=names.group,
        guarantee=level or pipeline.guarantee,
        checkpoint=str(names.scratch / "checkpoint"),
        trigger=None,
        source=_source(pipeline.source, names, records_per_batch),
        sink=_sink(pipeline.sink, names, timer_s),
    )


def _source(source: Any, names: Names, records_per_batch: int) -> Any:
    if isinstance(source, Kafka):
        options = {**dict(source.options), "maxOffsetsPerTrigger": str(records_per_batch)}
        return replace(
            source,
            topic=names.input,
            pattern=None,
            assign=None,
            servers=names.servers,
            start="earliest",
            options=options,
        )
    kind = type(source).__name__
    if kind == "Files":
        options = {**dict(source.options), "maxFilesPerTrigger": "2"}
        return _with(source, {"path": str(names.scratch / "in"), "options": options})
    if kind == "Table":
        changes = {"url": names.source_url, "table": "outbox", "start": "earliest"}
        return _with(source, {**changes, "max_rows": records_per_batch})
    raise UsageError(f"verify cannot feed a {kind} source. Next: verify the part after it, from a Kafka topic.")


def _sink(sink: Any, names: Names, timer_s: float) -> Any:
    if isinstance(sink, Kafka):
        if sink.topic is None:
            raise UsageError(
                "this pipeline chooses its topic by column, so its output cannot be moved to a scratch topic. "
                "Next: verify it with a fixed topic in write(Kafka(…))."
            )
        return replace(sink, topic=names.output, servers=names.servers, auto_commit_interval_ms=round(timer_s * 1000))
    kind = type(sink).__name__
    if kind == "Postgres":
        if names.table_url is None:
            raise UsageError("a PostgreSQL sink is verified on a scratch schema, and none was prepared")
        table = sink.table.rpartition(".")[2]
        return _with(sink, {"url": names.table_url, "table": table, "create": True, "timer_s": timer_s})
    if kind == "SQLite":
        return _with(sink, {"path": str(names.scratch / "out.db"), "create": True, "timer_s": timer_s})
    if not hasattr(sink, "on_scratch") or not hasattr(sink, "written"):
        raise UsageError(
            f"verify does not know how to move a {kind} sink to scratch and how to read what it wrote. Next: give it "
            "on_scratch(folder), the same sink on a directory of verify's own, and written(), its rows as dicts."
        )
    return sink.on_scratch(names.scratch / "out")


def _with(part: Any, changes: Mapping[str, Any]) -> Any:
    known = {field.name for field in fields(part)}
    return replace(part, **{name: value for name, value in changes.items() if name in known})


def needs_of(pipeline: Any, *, stateful: bool) -> set[Need]:
    met = {Need.SPARK} if stateful else {Need.SPARK, Need.STATELESS}
    if isinstance(pipeline.source, Kafka):
        met.add(Need.PROCESSING)
    else:
        met.add(Need.PUBLISHING)
        if type(pipeline.source).__name__ == "Files":
            met.add(Need.FILES)
        if type(pipeline.source).__name__ == "Table":
            met.add(Need.SQL_SOURCE)
    if isinstance(pipeline.sink, Kafka):
        met |= {Need.KAFKA_OUTPUT, Need.KAFKA_LEDGER}
    if type(pipeline.sink).__name__ in ("Postgres", "SQLite"):
        met.add(Need.SQL_SINK)
    if type(pipeline.sink).__name__ == "Postgres":
        met.add(Need.POSTGRES)
    return met

"""The user's pipeline on scratch: same transform, other topics, tables and checkpoint. Nothing real is touched.

How a source or sink gets there, it says itself (`atonce.connectors.contract`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atonce.connectors.contract import Feed, FolderSink, Ground, Topic, VerifiedSink, VerifiedSource, Written
from atonce.errors import UsageError
from atonce.guarantee import Guarantee
from atonce.verify.ground.servers import Servers
from atonce.verify.subject.contract import Names

if TYPE_CHECKING:
    from atonce.pipeline import Pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """The same ground for both sides, each with the server it asked for."""

    source: Ground
    sink: Ground


def grounds(names: Names, servers: Servers, records_per_batch: int) -> Grounds:
    common = Ground(
        input=names.input,
        output=names.output,
        folder=names.scratch,
        servers=names.servers,
        records_per_batch=records_per_batch,
        timer_s=float(names.options.get("auto.commit.interval.ms", 5000)) / 1000,
    )
    return Grounds(source=replace(common, server=servers.source), sink=replace(common, server=servers.sink))


def require_verifiable(pipeline: Pipeline) -> None:
    """`UsageError` names what a source or sink lacks, before anything starts."""
    _verified_source(pipeline)
    _verified_sink(pipeline)


def rewritten(pipeline: Pipeline, level: Guarantee | None, names: Names, on: Grounds) -> Pipeline:
    return replace(
        pipeline,
        name=names.group,
        guarantee=level or pipeline.guarantee,
        checkpoint=str(names.scratch / "checkpoint"),
        trigger=None,
        source=_verified_source(pipeline).scratch_source(on.source),
        sink=_scratch_sink(pipeline, on.sink),
    )


def feed_of(pipeline: Pipeline, on: Grounds) -> Feed | Topic:
    return _verified_source(pipeline).feed(on.source)


def read_back(pipeline: Pipeline, on: Grounds) -> Written | Topic:
    sink = _verified_sink(pipeline)
    if isinstance(sink, VerifiedSink):
        return sink.read_back(on.sink)
    return WrittenFolder(sink.on_scratch(_folder(on.sink)))


def _verified_source(pipeline: Pipeline) -> VerifiedSource:
    source = pipeline.source
    if not isinstance(source, VerifiedSource):
        raise UsageError(
            f"verify cannot feed {pipeline._parts()[0].describe()}: the source does not say how. Next: give it "
            "scratch_source, feed and static (VerifiedSource in atonce.connectors.contract), or verify the part after "
            "it, from a Kafka topic."
        )
    return source


def _scratch_sink(pipeline: Pipeline, ground: Ground) -> Any:
    sink = _verified_sink(pipeline)
    return sink.scratch_sink(ground) if isinstance(sink, VerifiedSink) else sink.on_scratch(_folder(ground))


def _folder(ground: Ground) -> Path:
    return ground.folder / "out"


def _verified_sink(pipeline: Pipeline) -> VerifiedSink | FolderSink:
    sink = pipeline.sink
    if isinstance(sink, VerifiedSink | FolderSink):
        return sink
    raise UsageError(
        f"verify does not know how to move {pipeline._parts()[1].describe()} to scratch and how to read what it wrote. "
        "Next: give the sink on_scratch(folder), the same sink on a directory of verify's own, and written(), its rows "
        "as dicts; or scratch_sink and read_back (VerifiedSink in atonce.connectors.contract)."
    )


class WrittenFolder(Written):
    """What a sink has written into its directory, as it says itself."""

    def __init__(self, sink: FolderSink) -> None:
        self._sink = sink
        self.title = sink.describe()

    def rows(self) -> Sequence[Mapping[str, Any]]:
        return list(self._sink.written())

"""Kafka as a source: replayable and ordered; read_committed by default; new partitions are found while running."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from atonce.client.cluster import NO_ID, Cluster
from atonce.client.offsets import EARLIEST, LATEST, TopicPartition, epoch_ends, list_offsets
from atonce.client.read.ranges import Seam
from atonce.client.same_cluster import same_cluster
from atonce.connectors.kafka.read.plan import to_json_form
from atonce.connectors.kafka.topic import Kafka
from atonce.delivery.abilities import ArrowFunction, Mirror
from atonce.delivery.contract import Sink
from atonce.delivery.letters import Original, Place
from atonce.delivery.progress import IDS, Positions
from atonce.errors import DataLossError, UsageError
from atonce.guarantee import SourceTraits

if TYPE_CHECKING:
    from atonce.connectors.kafka.read.accounts import ReadAccounts

log = logging.getLogger(__name__)

CUT_BELIEVED_AFTER_S = 30.0
"""A new leader may answer a lower end than the one before it, for a moment."""
ASKED_AGAIN_EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class KafkaSource:
    kafka: Kafka
    until: Positions | None = None
    """Where a backfill ends, of every partition that it reads."""

    def traits(self) -> SourceTraits:
        return SourceTraits(
            name=self.kafka.where(),
            replayable=True,
            ordered=True,
            why="a partition gives the same records at the same offsets, as long as retention keeps them",
            needs=("retention is longer than the longest stop",),
        )

    def describe(self) -> str:
        return self.kafka.where()

    def check(self) -> None:
        if not (self.kafka.topic or self.kafka.pattern or self.kafka.assign):
            raise UsageError("a Kafka source needs one of topic, pattern and assign")
        with self._cluster() as cluster:
            found = self._partitions(cluster)
        if not found and not self.kafka.pattern:
            raise UsageError(f"no partitions found for {self.kafka.where()}")

    def first_positions(self) -> Positions | None:
        with self._cluster() as cluster:
            partitions = self._partitions(cluster)
            start = self.kafka.start
            if isinstance(start, str):
                wanted = dict.fromkeys(partitions, EARLIEST if start == "earliest" else LATEST)
            elif set(start) == {"timestamp"}:
                wanted = dict.fromkeys(partitions, int(start["timestamp"]))
            else:
                return self._named_positions(cluster, partitions, start)
            return _by_name(_resolved(cluster, wanted, self.kafka.isolation))

    def source_ids(self) -> dict[str, str]:
        with self._cluster() as cluster:
            found = {name: cluster.topic(name) for name in self._topics(cluster)}
            return {name: topic.id for name, topic in found.items() if topic is not None and topic.id != NO_ID}

    def ends(self) -> dict[str, tuple[int, int]]:
        with self._cluster() as cluster:
            partitions = self._partitions(cluster)
            first = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST), "read_uncommitted")
            last = list_offsets(cluster, dict.fromkeys(partitions, LATEST), "read_uncommitted")
            return {str(tp): (first[tp], last[tp]) for tp in partitions}

    def refuse_torn(self, seams: Sequence[Seam]) -> None:
        """`DataLossError` if a batch was read of two logs. In one log the epoch only grows, and only behind all that
        was read in the one before: an ordinary fail-over."""
        for seam in seams:
            if seam.next_epoch > seam.epoch:
                self.refuse_cut({str(seam): seam.upto}, {str(seam): seam.epoch}, done="read")
            else:
                self._tell_cut(
                    f"{seam}: read up to offset {seam.upto}, the last record in leader epoch {seam.epoch}, but from "
                    f"offset {seam.start} on in epoch {seam.next_epoch}",
                    "read",
                )

    def refuse_cut(self, positions: Positions, epochs: Positions, done: str = "delivered") -> None:
        """`DataLossError` if a log no longer holds what was read of it: the leader epoch of the record before a
        position now ends below it. A log that ends below it altogether may have a leader that is not up to date."""
        wanted = {
            TopicPartition.parse(partition): epoch
            for partition, epoch in epochs.items()
            if partition in positions and epoch >= 0
        }
        began = time.monotonic()
        with self._cluster() as cluster:
            while wanted:
                there = {tp: epoch for tp, epoch in wanted.items() if cluster.topic(tp.topic) is not None}
                ends = epoch_ends(cluster, there)
                wanted = {tp: there[tp] for tp, (_, end) in ends.items() if 0 <= end < positions[str(tp)]}
                last = list_offsets(cluster, dict.fromkeys(wanted, LATEST), "read_uncommitted")
                waited_s = time.monotonic() - began
                cut = [tp for tp in wanted if last[tp] >= positions[str(tp)] or waited_s >= CUT_BELIEVED_AFTER_S]
                if cut:
                    words = [_cut_words(tp, positions[str(tp)], wanted[tp], ends[tp], done) for tp in cut]
                    self._tell_cut("; ".join(words), done)
                    return
                for tp in wanted:
                    cluster.forget_topic(tp.topic)
                time.sleep(ASKED_AGAIN_EVERY_S if wanted else 0)

    def _tell_cut(self, what: str, done: str) -> None:
        if self.kafka.fail_on_data_loss:
            raise DataLossError(
                f"{what}: the log was cut and written anew, as after an unclean leader election, so what stands before "
                f"these positions is not what was {done}. Next: find out why, then go on with "
                "fail_on_data_loss: false, or reset it."
            )
        log.warning("%s. Going on, as fail_on_data_loss: false says.", what)

    @property
    def goes_back(self) -> bool:
        """A log that was cut is read on from its new end."""
        return not self.kafka.fail_on_data_loss

    def partition_count(self) -> int:
        with self._cluster() as cluster:
            return len(self._partitions(cluster))

    def load(self, spark: Any, start: Positions | None, options: dict[str, str]) -> Any:
        kafka = self.kafka
        reader = self._reader(spark, options)
        if kafka.pattern:
            reader = reader.option("subscribePattern", kafka.pattern)
        elif kafka.assign:
            reader = reader.option("assign", json.dumps({t: list(ps) for t, ps in kafka.assign.items()}))
        else:
            reader = reader.option("subscribe", kafka.topic)
        if start is None:
            reader = reader.option("startingOffsets", "earliest")
        else:
            # Exactly there, also when there is nothing yet: a topic that appears meanwhile is read from its beginning.
            reader = reader.option("atonce.first", _nested(self._selected(start)))
        if self.until is not None:
            reader = reader.option("atonce.until", _nested(self.until))
        for key, value in kafka.options.items():
            reader = reader.option(key, value)
        return reader.load()

    def load_range(self, spark: Any, partition: str, start: int, end: int, options: dict[str, str]) -> Any:
        """Some records of one partition again, as a batch: to find the one that cannot be delivered."""
        topic, _, index = partition.rpartition("/")
        reader = self._reader(spark, options, batch=True).option("assign", json.dumps({topic: [int(index)]}))
        reader = reader.option("startingOffsets", json.dumps({topic: {index: start}}))
        return reader.option("endingOffsets", json.dumps({topic: {index: end}})).load()

    def originals(self, places: Sequence[Place]) -> dict[Place, Original]:
        """Single records again, for dead letters; without those that the log has lost since."""
        from atonce.connectors.kafka.read.originals import originals

        ends = self.ends()
        there = [each for each in places if each[2] < ends.get(f"{each[0]}/{each[1]}", (0, 0))[1]]
        with self._cluster() as cluster:
            return originals(cluster, there, self.kafka.isolation)

    def _reader(self, spark: Any, options: dict[str, str], *, batch: bool = False) -> Any:
        from atonce.connectors.kafka.read.stream import register

        register(spark)
        kafka, reader = self.kafka, spark.read if batch else spark.readStream
        reader = reader.format("atonce").option("kafka.bootstrap.servers", kafka.servers)
        reader = reader.option("kafka.isolation.level", kafka.isolation)
        reader = reader.option("failOnDataLoss", str(kafka.fail_on_data_loss).lower())
        reader = reader.option("includeHeaders", str(kafka.headers).lower())
        for key, value in kafka.config.items():
            reader = reader.option(f"kafka.{key}", value)
        for key, value in options.items():
            reader = reader.option(key, value)
        return reader

    def positions(self, offsets_json: str) -> Positions | None:
        try:
            offsets = json.loads(offsets_json)
            return {
                f"{topic}/{p}": int(at) for topic, parts in offsets.items() if topic != IDS for p, at in parts.items()
            }
        except (ValueError, AttributeError, TypeError):
            return None

    def starting(self, at: str) -> KafkaSource:
        return replace(self, kafka=replace(self.kafka, start=at))

    def starting_at(self, ms: int) -> KafkaSource:
        return replace(self, kafka=replace(self.kafka, start={"timestamp": ms}))

    def between(self, start: Positions, until: Positions) -> KafkaSource:
        return replace(self, kafka=replace(self.kafka, start=json.loads(_nested(start))), until=until)

    def arrow_schema(self) -> Any:
        from atonce.connectors.kafka.read.stream import source_schema

        return source_schema(self.kafka.headers)

    def running(self, function: ArrowFunction, schema: str) -> dict[str, str]:
        from atonce.connectors.kafka.read.stream import fused

        return fused(function, schema)

    def accounts(self, spark: Any) -> ReadAccounts:
        from atonce.connectors.kafka.read.accounts import ReadAccounts

        return ReadAccounts.for_session(spark, self.refuse_torn)

    def mirror(self, name: str, sink: Sink) -> Mirror | None:
        """The group's offsets for lag tools, unless they are the ledger itself."""
        from atonce.connectors.kafka.mirror import GroupMirror
        from atonce.connectors.kafka.sink import KafkaSink

        mine = self.kafka
        if isinstance(sink, KafkaSink):
            out = sink.kafka
            if same_cluster(out.servers or "", out.config, mine.servers or "", mine.config):
                return None
        return GroupMirror(name, mine.servers or "", mine.config)

    @contextlib.contextmanager
    def lag(self) -> Iterator[Callable[[Positions], int]]:
        with self._cluster() as cluster:

            def counted(positions: Positions) -> int:
                """As Kafka's tools count it: up to the end of the log. A partition that is new is read as a whole."""
                here = [tp for tp in self._partitions(cluster) if self.until is None or str(tp) in self.until]
                ends = list_offsets(cluster, dict.fromkeys(here, LATEST), "read_uncommitted")
                new = {tp: EARLIEST for tp in here if str(tp) not in positions}
                begins = list_offsets(cluster, new, "read_uncommitted") if new else {}
                upto = {tp: end if self.until is None else min(end, self.until[str(tp)]) for tp, end in ends.items()}
                return sum(max(0, end - positions.get(str(tp), begins.get(tp, 0))) for tp, end in upto.items())

            yield counted

    def doubts(self) -> list[str]:
        """How the cluster keeps the input is its operator's choice, so it is told by `explain` and `doctor`."""
        from atonce.connectors.kafka.doubts import doubts

        return doubts(self.kafka, inputs=[] if self.kafka.pattern else self.kafka.topic_names())

    def _selected(self, start: Positions) -> Positions:
        """Without partitions that are no longer asked for. One that is asked for and gone is a loss, not left out."""
        kafka = self.kafka

        def asked_for(tp: TopicPartition) -> bool:
            if kafka.pattern:
                return re.fullmatch(kafka.pattern, tp.topic) is not None
            return tp.partition in kafka.assign.get(tp.topic, ()) if kafka.assign else tp.topic in kafka.topic_names()

        return {p: at for p, at in start.items() if asked_for(TopicPartition.parse(p))}

    def _cluster(self) -> Cluster:
        if not self.kafka.servers:
            raise UsageError("no servers are known for the Kafka source")
        return Cluster(self.kafka.servers, self.kafka.config)

    def _topics(self, cluster: Cluster) -> list[str]:
        if self.kafka.pattern:
            return sorted(cluster.topics(self.kafka.pattern))
        return self.kafka.topic_names()

    def _partitions(self, cluster: Cluster) -> list[TopicPartition]:
        found = []
        for name in self._topics(cluster):
            topic = cluster.topic(name)
            if topic is None:
                raise UsageError(
                    f"topic {name!r} does not exist on {self.kafka.servers}. Next: `atonce topics create {name}`, or "
                    f"correct its name; there are: {', '.join(sorted(cluster.topics())[:20]) or 'none'}"
                )
            there = [p.index for p in topic.partitions]
            wanted = self.kafka.assign[name] if self.kafka.assign else there
            if missing := sorted(set(wanted) - set(there)):
                raise UsageError(f"topic {name!r} has partitions 0 to {len(there) - 1}, not {missing}")
            found += [TopicPartition(name, index) for index in wanted]
        return found

    def _named_positions(
        self, cluster: Cluster, partitions: list[TopicPartition], start: Mapping[str, Any]
    ) -> Positions:
        """{topic: {partition: offset}}; -2 is earliest, -1 latest, and what is not named begins at the earliest."""
        there = set(partitions)
        try:
            named = {TopicPartition(topic, int(p)): int(at) for topic, ps in start.items() for p, at in ps.items()}
        except (AttributeError, TypeError, ValueError):
            raise UsageError(
                f"start is {dict(start)!r}, not earliest, latest, {{topic: {{partition: offset}}}} or {{timestamp: ms}}"
            ) from None
        if strangers := sorted(set(named) - there):
            raise UsageError(
                f"start names partitions that are not read: {', '.join(map(str, strangers))}; there are: "
                f"{', '.join(map(str, sorted(there)[:20])) or 'none'}. Next: correct start."
            )
        wanted = {tp: named.get(tp, EARLIEST) for tp in partitions}
        special = {tp: at for tp, at in wanted.items() if at < 0}
        fixed = {tp: at for tp, at in wanted.items() if at >= 0}
        return _by_name({**fixed, **_resolved(cluster, special, self.kafka.isolation)})


def _cut_words(tp: TopicPartition, position: int, epoch: int, found: tuple[int, int], done: str) -> str:
    now = (
        f"that epoch ends at offset {found[1]}" if found[0] == epoch else f"epoch {found[0]} ends at offset {found[1]}"
    )
    return f"{tp}: {done} up to offset {position}, the last record in leader epoch {epoch}, but now {now}"


def _resolved(cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: str) -> dict[TopicPartition, int]:
    if not wanted:
        return {}
    found = list_offsets(cluster, wanted, isolation)
    late = {tp: LATEST for tp, at in found.items() if at < 0}  # no record is that young: begin at the end
    return {**found, **(list_offsets(cluster, late, isolation) if late else {})}


def _by_name(offsets: Mapping[TopicPartition, int]) -> Positions:
    return {str(tp): at for tp, at in offsets.items()}


def _nested(positions: Positions) -> str:
    return json.dumps(to_json_form({TopicPartition.parse(name): at for name, at in positions.items()}))

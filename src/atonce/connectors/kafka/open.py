"""An open Kafka sink: one micro-batch into one transaction that all its tasks share."""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from atonce.client.cluster import Cluster
from atonce.client.errors import FencedError
from atonce.client.offsets import TopicPartition, committed
from atonce.client.same_cluster import same_cluster
from atonce.connectors.kafka.ledger import KafkaLedger
from atonce.connectors.kafka.owner import Owner
from atonce.connectors.kafka.sink import KafkaSink
from atonce.connectors.kafka.source import KafkaSource
from atonce.connectors.kafka.topic import Kafka
from atonce.connectors.kafka.topics import (
    DEFAULT_PARTITIONS,
    broker_config,
    create_topic,
    time_limits,
    topic_config,
)
from atonce.connectors.kafka.write.blobs import BLOB_SCHEMA, Encoder, Targets, TimeLimits
from atonce.connectors.kafka.write.columns import check_columns
from atonce.connectors.kafka.write.lease import LeaseServer
from atonce.connectors.kafka.write.letters_out import LettersOut, put_aside, unreadable
from atonce.connectors.kafka.write.send import FusedSend, Mode, Report, SendTask
from atonce.connectors.kafka.write.sending import OutOfTime, Sending, Watch
from atonce.connectors.kafka.write.spool import Spool
from atonce.delivery.abilities import Partitioned
from atonce.delivery.contract import Batch, Identity
from atonce.delivery.events import Aborted, Committed, Committing, OutputDone, ProgressDone, PutAside, Retrying
from atonce.delivery.letters import Kept, Letter
from atonce.delivery.letters import Place as InputPlace
from atonce.delivery.moving.backfill import refuse_overlap
from atonce.delivery.progress import Progress
from atonce.delivery.timer import TimedCommits
from atonce.errors import AtOnceError, AttemptAborted, RefusedError, StartAgain, UndeliverableRow, UsageError
from atonce.guarantee import Guarantee
from atonce.spark.arrow_job import ArrowJobs
from atonce.spark.attempt import Attempt
from atonce.spark.channel import Place
from atonce.spark.task_errors import of_job

_MODES: dict[Guarantee, Mode] = {
    Guarantee.NONE: "plain",
    Guarantee.AT_MOST_ONCE: "forget",
    Guarantee.AT_LEAST_ONCE: "idempotent",
    Guarantee.EFFECTIVELY_ONCE: "transaction",
}
_MAX_TIMEOUT_MS = 900_000
_MAX_MESSAGE_BYTES = 1_048_588
_log = logging.getLogger("atonce")
TOPICS_LOOKED_AT_EVERY_S = 30.0
"""How soon partitions that were added to the output are used."""


class KafkaOpenSink:
    ledger_apart = True
    """The group's offsets and the output are committed together, but stored apart: one can be older than the other."""

    def __init__(self, kafka: Kafka, identity: Identity, spark: Any) -> None:
        self._kafka = kafka
        self._identity = identity
        self._spark = spark
        self._servers = kafka.servers or ""
        self._cluster = Cluster(self._servers, kafka.config)
        self._topics: dict[str, int] = {}
        self._times = TimeLimits()
        self._limit = _MAX_MESSAGE_BYTES
        self._home_topic = self._where_progress_stands()
        self._claiming = False
        self._begins_anew = False
        """Nothing is delivered from where the ledger stands: a reset may have put it there."""
        self._again: list[Kept] = []
        """The dead letters that are replayed just now."""
        self._home: KafkaLedger
        self._owner: Owner
        """Known from the claim on."""
        self._protocol = KafkaSink(kafka).protocol(self._cluster)
        self._leaders: dict[str, list[int]] = {}
        self._lease = LeaseServer(Place.of(spark))
        self._timer = TimedCommits(self._record_from_timer, kafka.auto_commit_interval_ms / 1000)
        self._spool = Spool(spark, repeatable=identity.guarantee is not Guarantee.AT_MOST_ONCE)
        self._task = self._send_task()
        self._jobs = ArrowJobs()
        self._fused: Encoder | None = None
        self._lock = threading.Lock()
        self._looked_at = time.monotonic()

    def claim(self) -> Progress | None:
        if not self._claiming:
            self._make_topics()
            self._leaders = self._leaders_now()
            self._owner = Owner(
                self._cluster,
                self._identity,
                self._home,
                self._kafka.transaction_timeout_ms,
                self._protocol.transactions(self._cluster, self._identity.name, self._partitions, self._check_protocol),
            )
            self._claiming = True  # whoever claims again is the same owner, which may have been replaced meanwhile
        recorded = self._owner.claim()
        self._begins_anew = recorded is None or recorded.batch_id < 0
        return recorded

    def peek(self) -> Progress | None:
        return self._peek(self._identity.name)

    def _peek(self, name: str) -> Progress | None:
        home = None if self._home_topic is None else self._cluster.topic(self._home_topic, refresh=True)
        if self._home_topic is not None and home is None:
            return None
        ledger = self._ledger_of(name, 1 if home is None else len(home.partitions))
        return ledger.progress(committed(self._cluster, name, require_stable=True))

    def _refuse_overlap(self, batch: Batch) -> None:
        if self._identity.below is not None:
            refuse_overlap(self._identity.below, self._peek(self._identity.below), batch.plan)

    def _ledger_of(self, name: str, partitions: int) -> KafkaLedger:
        return KafkaLedger(group=name, on_topic=self._home_topic, on_partitions=partitions)

    def _make_topics(self) -> None:
        """With the claim and not before: whatever is refused until then leaves nothing behind."""
        kafka = self._kafka
        named = (*kafka.topic_names(), *([kafka.dead_letter] if kafka.dead_letter else []))
        for name in dict.fromkeys([*named, *([self._home_topic] if self._home_topic else [])]):
            self._find_or_create(name)
        of_topics = (
            topic_config(self._cluster, name, "max.message.bytes", _MAX_MESSAGE_BYTES) for name in self._topics
        )
        self._limit = min(min(of_topics, default=_MAX_MESSAGE_BYTES), self._cluster.max_batch_bytes)
        self._home = self._ledger_of(
            self._identity.name, 1 if self._home_topic is None else self._topics[self._home_topic]
        )

    def check_claim(self) -> None:
        with self._lock:
            self._owner.check_claim()

    def output(self, batch: Batch) -> int | None:
        if self._kafka.topic is None:
            # Outside a transaction nothing can be taken back, so new topics must be known before the first row goes.
            for row in batch.df.select("topic").where("topic IS NOT NULL").distinct().collect():
                if row["topic"] not in self._topics:
                    self._find_or_create(str(row["topic"]))
        self._refuse_overlap(batch)
        if self._identity.guarantee is Guarantee.AT_LEAST_ONCE:
            self._owner.look()  # for the progress that follows
        return self._send(batch, Attempt(id=uuid.uuid4().hex), None).records

    def progress(self, progress: Progress) -> None:
        if not self._home.offsets(progress):
            return  # no input partition is there yet, so nothing can stand on one: the first batch will say whose it is
        with self._lock:
            if self._owner.in_doubt(progress) and self._owner.resolve():
                return
            self._owner.begin()
            self._owner.commit(progress)

    def _record_from_timer(self, progress: Progress) -> None:
        with self._lock:
            if not self._owner.is_behind(progress):
                self._owner.begin()
                self._owner.commit(progress)

    def progress_on_timer(self, progress: Progress) -> None:
        self._timer.submit(progress)

    def output_and_progress(self, batch: Batch, progress: Progress) -> int | None:
        with self._lock:
            if self._owner.in_doubt(progress) and self._owner.resolve():
                return None
            if self._owner.holds(progress):
                return None
            return self._in_one_transaction(batch, progress)

    def settle(self) -> None:
        if self._claiming:  # else it was stopped before its claim, and nothing of it is under way
            self._owner.transaction.wait_complete()

    def close(self) -> None:
        with contextlib.ExitStack() as stack:  # each of them, also when one before it raises
            stack.callback(self._cluster.close)
            stack.callback(self._spool.remove)
            stack.callback(self._lease.close)
            stack.callback(self._close_timer)

    def _close_timer(self) -> None:
        try:
            self._timer.close()
        except AtOnceError as error:
            _log.warning("pipeline %s: its last progress was not recorded: %s", self._identity.name, error)

    def accepts(self, schema: Any) -> None:
        """Refuse, before anything starts, columns that are not a Kafka record's."""
        check_columns(schema, self._kafka)

    def refuses(self, df: Any, encoded: bool) -> bool:
        """Whether a row of `df` cannot be delivered; writes nothing."""
        blobs = df if encoded else self._jobs.map(df, self.encoder(), BLOB_SCHEMA)
        try:
            return bool(blobs.where("note IS NOT NULL").limit(1).collect())
        finally:
            self._spool.sweep()

    def fused(self, transform: Any, schema: str) -> tuple[FusedSend, str] | None:
        """What encodes an Arrow transform's rows inside the source's tasks."""
        if not KafkaSink(self._kafka).fuses:
            return None
        self._fused = self.encoder(transform)
        return FusedSend(encoder=self._fused, task=self._task), BLOB_SCHEMA

    def encoder(self, transform: Any = None) -> Encoder:
        """What turns rows into blobs."""
        total = sum(self._topics.values())
        slots = max(1, min(total, 2 * int(self._spark.sparkContext.defaultParallelism)))
        return Encoder(
            targets=Targets(partitions=dict(self._topics), slots=slots, times=self._times),
            topic=self._kafka.topic,
            partitioner=self._kafka.partitioner,
            compression=self._kafka.compression,
            max_record_bytes=self._limit,
            dead_letter=self._kafka.dead_letter if self._kafka.on_error == "dead-letter" else None,
            transform=transform,
            spool=self._spool.folder,
        )

    def _in_one_transaction(self, batch: Batch, progress: Progress) -> int:
        self._look_at_topics()
        transaction = self._owner.begin()
        self._owner.look()
        attempt = Attempt(
            id=f"{transaction.producer_id}-{transaction.epoch}",
            producer_id=transaction.producer_id,
            epoch=transaction.epoch,
        )
        try:
            report = self._send(batch, attempt, self._owner.timeout_ms)
        except OutOfTime as late:
            self._abandon(batch, str(late))
            self._lengthen(late)
            raise AttemptAborted(f"{late}: the batch runs again with {self._owner.timeout_ms} ms") from None
        except BaseException as error:
            self._abandon(batch, str(error)[:200])
            if isinstance(of_job(error), FencedError):  # and the pipeline is still ours, or that had been told
                raise AttemptAborted(
                    f"the transaction was ended from elsewhere: the batch runs again ({error})"
                ) from error
            raise
        batch.watch(OutputDone(rows=report.records))

        def before_end() -> None:
            batch.watch(ProgressDone())
            batch.watch(Committing())

        try:
            self._refuse_overlap(batch)
            done = batch.complete(progress)
        except AtOnceError as error:  # what was read does not hold together
            self._abandon(batch, str(error)[:200])
            raise

        def doubted(error: Exception) -> None:
            batch.watch(Retrying(why=f"a commit's outcome is unknown ({error}); asking the ledger", in_doubt=True))

        self._owner.commit(done, before_end, doubted)
        batch.watch(Committed(rows=report.records))
        return report.records

    def _abandon(self, batch: Batch, why: str) -> None:
        """End the transaction without effect; nobody may write into it any more."""
        self._owner.abort()
        batch.watch(Aborted(why=why))

    def _lengthen(self, late: OutOfTime) -> None:
        most = broker_config(self._cluster, "transaction.max.timeout.ms", _MAX_TIMEOUT_MS)
        if self._owner.timeout_ms >= most:
            raise RefusedError(
                f"{late}, and the broker allows no longer transaction (transaction.max.timeout.ms={most}). Nothing of "
                "the batch is visible. Next: make batches smaller (maxOffsetsPerTrigger, maxBytesPerTrigger), give "
                "Spark more cores, or raise transaction.max.timeout.ms on the broker."
            ) from None
        self._owner.begin(min(most, self._owner.timeout_ms * 4))

    def _encoder_of(self, batch: Batch) -> Encoder:
        """What encodes this batch. Inside the source it is fixed when the query starts, so the query starts again."""
        self._look_at_topics()
        if not batch.encoded or self._fused is None:
            return self.encoder()
        repeatable = self._identity.guarantee in (Guarantee.AT_LEAST_ONCE, Guarantee.EFFECTIVELY_ONCE)
        if repeatable and self._fused.targets.partitions != self._topics:
            raise StartAgain(f"{self._kafka.where()} has more partitions now")
        return self._fused

    def _look_at_topics(self) -> None:
        """Partitions that were added meanwhile are written to, as by any producer after `metadata.max.age.ms`."""
        if time.monotonic() - self._looked_at < TOPICS_LOOKED_AT_EVERY_S:
            return
        for name in self._topics:
            found = self._cluster.topic(name, refresh=True)
            if found is not None:
                self._topics[name] = len(found.partitions)
        self._looked_at = time.monotonic()
        leaders, self._leaders = self._leaders, self._leaders_now()
        if leaders != self._leaders:
            self._check_protocol()

    def _partitions(self) -> list[TopicPartition]:
        """Every partition that rows of this sink may go to."""
        return [TopicPartition(name, index) for name, count in self._topics.items() for index in range(count)]

    def _leaders_now(self) -> dict[str, list[int]]:
        found = {name: self._cluster.topic(name) for name in self._topics}
        return {name: [each.leader for each in topic.partitions] for name, topic in found.items() if topic is not None}

    def _check_protocol(self) -> None:
        """A broker that was started since may have other settings, or be an older one."""
        if self._protocol.number == 1:
            KafkaSink(self._kafka).protocol(self._cluster)

    def _send(self, batch: Batch, attempt: Attempt, timeout_ms: int | None) -> Report:
        encoder = self._encoder_of(batch)
        mode, leased = self._task.mode, self._task.lease is not None
        watch = Watch(
            self._spark,
            self._lease if leased else None,
            attempt.id,
            mode,
            timeout_ms,
            self._admits(attempt) if mode == "transaction" else None,
        )
        attempt = replace(attempt, spooled=self._spool.usable())
        try:
            report = Sending(batch, self._jobs, encoder, self._task, attempt).run(watch)
            if mode == "transaction":
                self._spool.keep(report.complete_runs())
        except BaseException:
            self._spool.distrust()
            raise
        finally:
            self._spool.sweep()
        for note in report.notes:
            self._act_on(note)
        self._put_aside(batch, report, attempt)
        return report

    def _put_aside(self, batch: Batch, report: Report, attempt: Attempt) -> None:
        """Dead letters into their topic, by the driver and in the batch's transaction: tasks do not write there."""
        unread = batch.aside()
        if unread and self._kafka.on_error != "dead-letter":
            raise unreadable(unread[0], self._kafka.where())
        found = [*unread, *report.dead]
        if self._kafka.dead_letter is None:
            return
        aside = LettersOut(self._cluster, self._kafka, self._identity.pipeline, self._limit)
        source = self._identity.source
        back = aside.delivered_again(batch, source) if batch.again_from and self._begins_anew else []
        if not found and not back and not self._again:
            return
        kept = itertools.chain([back] if back else [], put_aside(batch, found, source, self._again))
        admit = self._admits(attempt) if self._task.mode == "transaction" else None
        count = aside.send(self._task.on(attempt), self._topics[self._kafka.dead_letter], kept, admit)
        if found:
            batch.watch(PutAside(letters=count - len(back)))

    def deliver_letters(self, batch: Batch, progress: Progress, chosen: Sequence[Kept]) -> tuple[int | None, int]:
        """Rows and marks in one transaction: the newest record of a letter says what became of it."""
        failed = set[tuple[InputPlace, int]]()

        def hear(letters: Sequence[Letter]) -> None:
            failed.update((each.place, each.index) for each in letters)

        self._again = list(chosen)
        try:
            rows = self.output_and_progress(replace(batch, letters=hear), progress)
        finally:
            self._again = []
        return rows, len([each for each in chosen if (each.letter.place, each.letter.index) in failed])

    def _admits(self, attempt: Attempt) -> Callable[[str, int], None]:
        """Asked by the lease before it grants this attempt a partition."""
        transaction = self._owner.transaction
        return lambda topic, partition: transaction.grant(
            TopicPartition(topic, partition), attempt.producer_id, attempt.epoch
        )

    def _act_on(self, note: dict[str, Any]) -> None:
        if "failed" in note:
            raise of_job(RuntimeError(str(note["failed"])))
        if "unknown_topic" in note:
            self._find_or_create(str(note["unknown_topic"]))
            raise AttemptAborted(f"topic {note['unknown_topic']!r} was not known yet: the batch runs again")
        raise UndeliverableRow(
            f"row {note['row']} of a task cannot be delivered to {self._kafka.where()}: {note['undeliverable']}. "
            "Next: drop or shorten such rows in the transform, or set on_error: dead-letter."
        )

    def _send_task(self) -> SendTask:
        """The part of the tasks' work that all batches share."""
        mode = _MODES[self._identity.guarantee]
        acks = (
            -1 if self._kafka.acks in ("all", "-1") or mode in ("transaction", "idempotent") else int(self._kafka.acks)
        )
        return SendTask(
            servers=self._servers,
            config=dict(self._kafka.config),
            mode=mode,
            acks=acks,
            transactional_id=self._identity.name if mode == "transaction" else None,
            lease=self._lease.address() if mode in ("transaction", "forget") else None,
            spool=self._spool.folder,
            protocol=self._protocol.number,
        )

    def _find_or_create(self, name: str) -> None:
        found = self._cluster.topic(name, refresh=True)
        if found is None:
            if not self._kafka.create:
                raise UsageError(
                    f"topic {name!r} does not exist on {self._servers}, and create: false says not to make it"
                )
            inputs = self._identity.source
            of_input = inputs.partition_count() if isinstance(inputs, Partitioned) else None
            count = self._kafka.partitions or of_input or DEFAULT_PARTITIONS
            create_topic(self._cluster, name, count)
            print(f"created topic {name} with {count} partitions on {self._servers}")
            found = self._cluster.topic(name, refresh=True)
        if found is None:
            raise UsageError(f"topic {name!r} was created on {self._servers} but cannot be found there")
        self._topics[name] = len(found.partitions)
        if name != self._kafka.dead_letter:  # a dead letter has the time at which it is sent
            self._times = self._times.and_also(time_limits(self._cluster, name))

    def _where_progress_stands(self) -> str | None:
        """A topic of the output; None: on the input's own partitions, which are on this cluster."""
        inputs = self._identity.source
        if self._identity.stands_for is not None and self._kafka.dead_letter is not None:
            return self._kafka.dead_letter  # a replay: its input is what lies there
        if isinstance(inputs, KafkaSource) and same_cluster(
            self._servers, self._kafka.config, inputs.kafka.servers or "", inputs.kafka.config
        ):
            return None
        home = self._kafka.topic or self._kafka.progress_topic
        if home is None:
            raise UsageError(
                "rows choose their topic by column and the input is not on this cluster, so progress has no place to "
                "stand. Next: name a topic for it with progress_topic."
            )
        return home

"""Transaction protocol 1: one transaction written by many tasks on brokers without transaction version 2.

There the epoch stays when a transaction ends, and a broker that does not verify takes a late Produce of an ended
attempt into the next one. So the driver does what version 2 does by itself:

init    claims, then *fences*: abort markers of the new epoch stand in every output partition and in the group's before
        the ledger is read, so whatever older epochs still send is refused there
grant   adds the partition to the transaction: markers go where rows go, and a verifying broker takes them
end     EndTxn, then at once another epoch (InitProducerId with id and epoch, KIP-360); after an abort the partitions
        that were granted are fenced with it

Epochs end at 32,767, and what was sent with a producer id's last one cannot be fenced any more. So the id is changed
in time, and only where nothing of the old one is unfenced: after a commit, or after a fence.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from kafka.protocol.producer import AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, InitProducerIdRequest

from atonce.client.answers import left_out
from atonce.client.cluster import DEFAULT_TIMEOUT_MS, Cluster
from atonce.client.errors import Code, ConnectionLost, TryAgain, error_for, raise_for
from atonce.client.offsets import Committed, TopicPartition, by_topic
from atonce.client.retry import retry
from atonce.client.transaction import RESOLVE_TIMEOUT_MS, Transaction
from atonce.errors import AttemptAborted, InvariantError, OutcomeUnknown

ROTATE_FROM_EPOCH = 32_000
"""From here on a producer id is given up at the next occasion."""
_OPERATION_NOT_ATTEMPTED = 55
"""Another partition of the same request is why this one was not added."""
_log = logging.getLogger("atonce")


class EpochPerBatch(Transaction):
    """`outputs`: every partition that tasks may write to. `group`: whose offsets are committed with it.

    `check` is asked before each claim and raises if the brokers are no longer what they were.
    """

    protocol: ClassVar[int] = 1
    _init_at_most: ClassVar[int] = 4
    _offsets_versions: ClassVar[tuple[int, int]] = (3, 4)
    _end_versions: ClassVar[tuple[int, int]] = (0, 4)

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        timeout_ms: int,
        *,
        group: str,
        outputs: Callable[[], Iterable[TopicPartition]] = tuple,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(cluster, transactional_id, timeout_ms)
        self._group = group
        self._outputs = outputs
        self._check = check
        self._lock = threading.RLock()
        """Held over every request about the open transaction: a grant after EndTxn would begin another one."""
        self._added: set[TopicPartition] = set()
        """Of the open transaction, those included whose request was not answered."""
        self._offsets_added = False
        self._fenced: set[TopicPartition] = set()
        """Where no epoch older than our claim is taken any more."""

    def init(self, *, timeout_ms: int = DEFAULT_TIMEOUT_MS * 2) -> None:
        self._check()
        with self._lock:
            super().init(timeout_ms=timeout_ms)
            self._forget()
            self._fenced.clear()
            self._fence(self._outputs())
            self._change_id_in_time()

    def ready(self) -> None:
        """Partitions that were added to an output after the claim are fenced before the first row goes there."""
        with self._lock:
            new = set(self._outputs()) - self._fenced
            if new:
                self._fence(new)

    def grant(self, tp: TopicPartition, producer_id: int, epoch: int) -> None:
        with self._lock:
            if (producer_id, epoch) != (self._producer_id, self._epoch):
                raise AttemptAborted(f"{tp} was asked for by an attempt that is over")
            if tp not in self._fenced:
                raise AttemptAborted(f"{tp} was not known when the attempt began: the batch runs again")
            self._add({tp} - self._added)

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, Committed], *, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> None:
        if group != self._group:
            raise InvariantError(f"offsets of group {group!r} in a transaction that fences {self._group!r}")
        with self._lock:
            self._add_offsets()
            super().commit_offsets(group, offsets, timeout_ms=timeout_ms)

    def end(self, commit: bool, *, timeout_ms: int = RESOLVE_TIMEOUT_MS) -> None:
        """As under protocol 2. `OutcomeUnknown` also where only the next epoch was not given: a claim settles it."""
        with self._lock:
            written = set(self._added)
            began = bool(written) or self._offsets_added
            self._checked(self._producer_id)
            if commit and not began:
                raise InvariantError(f"nothing was added to the transaction of {self.transactional_id!r}")
            if began:
                self._send_end(commit, timeout_ms)
            self._next_epoch(timeout_ms)
            if began and not commit:
                self._fence(written)
            self._change_id_in_time()

    def wait_complete(self, timeout_ms: int = 60_000) -> None:
        """No broker gives the next epoch before the markers of the last transaction are written."""

    def _fence(self, partitions: Iterable[TopicPartition]) -> None:
        """Markers of this epoch into these partitions and the group's; they end what a late task left open there."""
        partitions = set(partitions)
        self._add(partitions)
        self._add_offsets()
        self._send_end(False, RESOLVE_TIMEOUT_MS)
        self._next_epoch(RESOLVE_TIMEOUT_MS)
        self._fenced |= partitions

    def _next_epoch(self, timeout_ms: int) -> None:
        """Refused with `FencedError` once anybody else has claimed; repeated, it is answered alike."""
        producer_id, epoch = self.producer_id, self.epoch
        what = f"InitProducerId ({producer_id}, epoch {epoch}) for {self.transactional_id!r}"

        def ask() -> None:
            request = InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self.timeout_ms,
                producer_id=producer_id,
                producer_epoch=epoch,
                min_version=3,
                max_version=self._init_at_most,
            )
            answer = self._cluster.ask_coordinator(request, self.transactional_id, "transaction")
            raise_for(answer.error_code, what)
            if answer.producer_id < 0 or answer.producer_epoch < 0:
                raise left_out(f"{what}: a producer id and epoch")
            self._producer_id, self._epoch = int(answer.producer_id), int(answer.producer_epoch)

        try:
            retry(ask, limit_ms=timeout_ms, on_retry=self._on_retry, first_pause_ms=2)
        except (TryAgain, ConnectionLost) as error:
            raise OutcomeUnknown(f"{what}: no final answer within {timeout_ms} ms ({error})") from error
        self._forget()

    def _change_id_in_time(self) -> None:
        if self._epoch < ROTATE_FROM_EPOCH:
            return
        given_up = self._producer_id
        _log.warning(
            "transactional id %s: the epochs of producer id %d run out at %d; a new id is asked for (some seconds)",
            self.transactional_id,
            given_up,
            self._epoch,
        )
        while self._producer_id == given_up:
            self._next_epoch(DEFAULT_TIMEOUT_MS)

    def _forget(self) -> None:
        self._added, self._offsets_added = set(), False

    def _add(self, partitions: set[TopicPartition]) -> None:
        if not partitions:
            return
        self._added |= partitions  # before it is sent: an answer may be lost
        what = f"AddPartitionsToTxn of {self.transactional_id!r}"
        kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic

        def ask() -> None:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[
                    kind(name=topic, partitions=[tp.partition for tp in members])
                    for topic, members in by_topic(partitions).items()
                ],
                max_version=3,
            )
            answer = self._cluster.ask_coordinator(request, self.transactional_id, "transaction")
            _raise_for_added(answer, partitions, what)

        retry(ask, limit_ms=DEFAULT_TIMEOUT_MS, on_retry=self._on_retry, first_pause_ms=2)

    def _add_offsets(self) -> None:
        self._offsets_added = True

        def ask() -> None:
            request = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=self._group,
                max_version=3,
            )
            answer = self._cluster.ask_coordinator(request, self.transactional_id, "transaction")
            raise_for(answer.error_code, f"AddOffsetsToTxn of {self.transactional_id!r}")

        retry(ask, limit_ms=DEFAULT_TIMEOUT_MS, on_retry=self._on_retry, first_pause_ms=2)


def _raise_for_added(answer: Any, partitions: set[TopicPartition], what: str) -> None:
    codes = {
        TopicPartition(topic.name, each.partition_index): int(each.partition_error_code)
        for topic in answer.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    }
    if not partitions <= codes.keys():
        raise left_out(f"{what}: {len(partitions - codes.keys())} partition(s)")
    for tp, code in sorted(codes.items()):
        if code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            raise TryAgain(f"{what}: {tp} is not known to the coordinator's broker (yet)")
        if code not in (Code.NONE, _OPERATION_NOT_ATTEMPTED):
            raise error_for(code, f"{what} with {tp}")
    if _OPERATION_NOT_ATTEMPTED in codes.values():
        raise left_out(f"{what}: why nothing was added")

"""One Kafka transaction at a time, owned by the driver and written by many tasks.

init            fences every older producer of this id, aborts what it left open, gives producer id and epoch
ready           before an attempt: everything that its tasks may write to can be granted
grant           a task may write to this partition (the broker adds it to the transaction by itself)
commit_offsets  the input's offsets become part of the transaction
end             commits or aborts; the next transaction has another epoch, or another producer id

`Transaction` is protocol 2, Kafka's transaction version 2. `EpochPerBatch` is the same for older brokers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from kafka.protocol.admin import DescribeTransactionsRequest
from kafka.protocol.producer import EndTxnRequest, InitProducerIdRequest, TxnOffsetCommitRequest

from atonce.client.answers import left_out, only
from atonce.client.cluster import DEFAULT_TIMEOUT_MS, Cluster
from atonce.client.errors import Code, ConnectionLost, FencedError, TryAgain, error_for, raise_for
from atonce.client.offsets import Committed, TopicPartition, by_topic, committed_entry, raise_for_partitions
from atonce.client.retry import retry
from atonce.errors import AtOnceError, InvariantError, OutcomeUnknown, UsageError

RESOLVE_TIMEOUT_MS = 120_000
COMPLETE = frozenset({"CompleteCommit", "CompleteAbort", "Empty", "Dead"})


class Transaction:
    """The current transaction of one transactional id. Not thread-safe: the driver's delivery thread owns it.

    Only `grant` is called by other threads.
    """

    protocol: ClassVar[int] = 2
    """Which requests the tasks send (`Sender`)."""
    _init_at_most: ClassVar[int] = 5
    _offsets_versions: ClassVar[tuple[int, int]] = (5, 5)
    _end_versions: ClassVar[tuple[int, int]] = (5, 5)

    def __init__(self, cluster: Cluster, transactional_id: str, timeout_ms: int) -> None:
        self._cluster = cluster
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self._producer_id = -1
        self._epoch = -1

    @property
    def producer_id(self) -> int:
        return self._checked(self._producer_id)

    @property
    def epoch(self) -> int:
        return self._checked(self._epoch)

    def _checked(self, value: int) -> int:
        if value < 0:
            raise InvariantError(f"transaction {self.transactional_id!r} has no producer id yet: call init() first")
        return value

    def init(self, *, timeout_ms: int = DEFAULT_TIMEOUT_MS * 2) -> None:
        """Fence all older producers of this id and abort what they left open. Safe to repeat."""

        def ask() -> None:
            request = InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self.timeout_ms,
                producer_id=-1,
                producer_epoch=-1,
                max_version=self._init_at_most,
            )
            answer = self._cluster.ask_coordinator(request, self.transactional_id, "transaction")
            if answer.error_code == Code.INVALID_TRANSACTION_TIMEOUT:
                raise UsageError(
                    f"transaction.timeout.ms={self.timeout_ms} is more than the broker allows. "
                    "Next: lower it, or raise the broker's transaction.max.timeout.ms."
                )
            raise_for(answer.error_code, f"InitProducerId for {self.transactional_id!r}")
            if answer.producer_id < 0 or answer.producer_epoch < 0:
                raise left_out(f"InitProducerId for {self.transactional_id!r}: a producer id and epoch")
            self._producer_id, self._epoch = int(answer.producer_id), int(answer.producer_epoch)

        retry(ask, limit_ms=timeout_ms, on_retry=self._on_retry)

    def ready(self) -> None:
        """Before an attempt's producer id and epoch are given to its tasks."""

    def grant(self, tp: TopicPartition, producer_id: int, epoch: int) -> None:
        """The holder of this id and epoch is about to write there. Raises if it may not any more."""

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, Committed], *, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> None:
        """Make the group's offsets part of this transaction: visible when it commits, never when it aborts."""
        producer_id, epoch = self.producer_id, self.epoch
        kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic

        def send() -> None:
            topics = [
                kind(
                    name=topic,
                    partitions=[committed_entry(kind.TxnOffsetCommitRequestPartition, p, offsets[p]) for p in members],
                )
                for topic, members in by_topic(offsets).items()
            ]
            request = TxnOffsetCommitRequest(
                transactional_id=self.transactional_id,
                group_id=group,
                producer_id=producer_id,
                producer_epoch=epoch,
                generation_id=-1,
                member_id="",
                group_instance_id=None,
                topics=topics,
                min_version=self._offsets_versions[0],
                max_version=self._offsets_versions[1],
            )
            answer = self._cluster.ask_coordinator(request, group, "group", timeout_ms=timeout_ms)
            raise_for_partitions(answer, offsets, f"TxnOffsetCommit of {self.transactional_id!r} for group {group!r}")

        retry(send, limit_ms=timeout_ms, on_retry=lambda error: self._cluster.forget_coordinator(group, "group", error))

    def end(self, commit: bool, *, timeout_ms: int = RESOLVE_TIMEOUT_MS) -> None:
        """Commit or abort, and take over the next producer id and epoch.

        A lost answer is resolved here: the same request is repeated, in the same direction, until the coordinator
        says how it stands. `FencedError`: another producer, or the time-out, ended this transaction; after `init()`
        the ledger tells how. `OutcomeUnknown`: the coordinator did not answer within the limit.
        """
        answer = self._send_end(commit, timeout_ms)
        if answer.producer_id < 0 or answer.producer_epoch < 0:
            raise InvariantError(
                f"EndTxn of {self.transactional_id!r}: the answer carries no producer id and epoch for the next "
                "transaction"
            )
        self._producer_id, self._epoch = int(answer.producer_id), int(answer.producer_epoch)

    def _send_end(self, commit: bool, timeout_ms: int) -> Any:
        producer_id, epoch = self.producer_id, self.epoch
        what = f"EndTxn ({'commit' if commit else 'abort'}) of {self.transactional_id!r}"

        def send() -> Any:
            request = EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                committed=commit,
                min_version=self._end_versions[0],
                max_version=self._end_versions[1],
            )
            answer = self._cluster.ask_coordinator(request, self.transactional_id, "transaction")
            if answer.error_code == Code.INVALID_TXN_STATE:
                # It was already ended the other way: by its time-out, or by an operator.
                fenced = FencedError(f"{what}: the transaction was already ended otherwise (INVALID_TXN_STATE).")
                fenced.code = Code.INVALID_TXN_STATE
                raise fenced
            raise_for(answer.error_code, what)
            return answer

        try:
            return retry(send, limit_ms=timeout_ms, on_retry=self._on_retry)
        except (TryAgain, ConnectionLost) as error:
            raise OutcomeUnknown(f"{what}: no final answer within {timeout_ms} ms ({error})") from error

    def wait_complete(self, timeout_ms: int = 60_000) -> None:
        """Return when the last transaction's markers are written, so that every reader sees how it ended."""
        what = f"waiting for the markers of {self.transactional_id!r}"

        def ask() -> None:
            request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
            found = self._cluster.ask_coordinator(request, self.transactional_id, "transaction")
            answer = only(found.transaction_states, what)
            if answer.error_code == Code.TRANSACTIONAL_ID_NOT_FOUND:
                return
            raise_for(answer.error_code, what)
            if answer.transaction_state not in COMPLETE:
                raise error_for(Code.CONCURRENT_TRANSACTIONS, f"{what} (it is {answer.transaction_state})")

        retry(ask, limit_ms=timeout_ms, on_retry=self._on_retry, first_pause_ms=2)

    def _on_retry(self, error: AtOnceError) -> None:
        self._cluster.forget_coordinator(self.transactional_id, "transaction", error)

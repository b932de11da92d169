"""AddPartitionsToTxn: key 24, versions 0-5.

Versions 0 to 3 are what producers send under transaction protocol v1; 4 and 5 are batched and may only verify. All
partitions of a transaction are added or none: if one is unknown the others are answered OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from typing import Any

from atonce.broker.context import Context
from atonce.broker.coordination import StorageFailed
from atonce.broker.messages import ErrorCode
from atonce.coordinator.decision import ProducerIdAndEpoch, TopicPartition

API_KEY = 24
MIN_VERSION = 0
MAX_VERSION = 5


async def handle(broker: Any, context: Context, request: Any) -> Any:
    results = []
    for transaction in request.transactions:
        errors = await _add(
            broker,
            context,
            transaction.transactional_id,
            ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch),
            _partitions(transaction.topics),
            verify_only=transaction.verify_only,
        )
        results.append({"transactional_id": transaction.transactional_id, "topic_results": _by_topic(errors)})
    return context.reply(error_code=ErrorCode.none, results_by_transaction=results)


async def _add(
    broker: Any,
    context: Context,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: list[TopicPartition],
    *,
    verify_only: bool,
) -> dict[TopicPartition, ErrorCode]:
    transactions = broker.coordination.transactions
    unknown = {p for p in partitions if p.partition not in range(broker.topics.partition_count(p.topic) or 0)}
    if unknown:
        return {
            p: ErrorCode.unknown_topic_or_partition if p in unknown else ErrorCode.operation_not_attempted
            for p in partitions
        }
    if verify_only:
        verified: dict[TopicPartition, ErrorCode] = transactions.verify_partitions(
            transactional_id, producer, partitions
        )
        return verified
    try:
        error = await broker.coordination.transaction(
            lambda now_ms: transactions.add_partitions(
                now_ms,
                transactional_id,
                producer,
                frozenset(partitions),
                transaction_version=2 if context.version >= 5 else 1,
            )
        )
    except StorageFailed:
        error = ErrorCode.coordinator_not_available
    if context.version < 2 and error is ErrorCode.producer_fenced:
        error = ErrorCode.invalid_producer_epoch
    return dict.fromkeys(partitions, error)


def _partitions(topics: Any) -> list[TopicPartition]:
    return [TopicPartition(topic.name, partition) for topic in topics for partition in topic.partitions]


def _by_topic(errors: dict[TopicPartition, ErrorCode]) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for partition, error in errors.items():
        result = {"partition_index": partition.partition, "partition_error_code": error}
        topics.setdefault(partition.topic, []).append(result)
    return [{"name": name, "results_by_partition": results} for name, results in topics.items()]

"""The loop a careful Python programmer writes over librdkafka: offsets and output in one transaction.

Runs until it is killed. Arguments: servers, input topic, output topic, group, records per transaction, and optionally
the longest a transaction stays open in milliseconds.
"""

import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition


def main() -> None:
    servers, source, target, group = sys.argv[1:5]
    per_transaction = int(sys.argv[5])
    longest_s = (int(sys.argv[6]) if len(sys.argv) > 6 else 100) / 1000
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 2,
            "queued.min.messages": 200_000,
            "queued.max.messages.kbytes": 131_072,
            "log_level": 2,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": group,
            "linger.ms": 5,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
            "partitioner": "murmur2_random",
            "log_level": 2,
        }
    )
    producer.init_transactions(60)
    consumer.subscribe([source])
    while True:
        messages, opened = [], 0.0
        while len(messages) < per_transaction:
            got = [m for m in consumer.consume(per_transaction - len(messages), timeout=0.02) if m.error() is None]
            if got and not messages:
                opened = time.monotonic()
            messages += got
            if messages and time.monotonic() - opened > longest_s:
                break
        producer.begin_transaction()
        ends: dict[tuple[str, int], int] = {}
        for message in messages:
            ends[message.topic(), message.partition()] = message.offset() + 1
        batch = [{"key": m.key(), "value": m.value().upper()} for m in messages]
        while batch:
            producer.produce_batch(target, batch)
            batch = [each for each in batch if "_error" in each]
            for each in batch:
                del each["_error"]
            if batch:
                producer.poll(0.01)
        producer.send_offsets_to_transaction(
            [TopicPartition(topic, partition, offset) for (topic, partition), offset in ends.items()],
            consumer.consumer_group_metadata(),
        )
        producer.commit_transaction(60)


main()

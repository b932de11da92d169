"""Output and offsets in one Kafka transaction: neither loss nor duplicates (effectively once).

atonce verify --app "python examples/verify/transactional.py {servers} {input} {output} {group}" \
    --expect effectively-once
"""

import os
import sys

from confluent_kafka import Consumer, KafkaException, Producer

servers, source, target, group = sys.argv[1:5]
consumer = Consumer(
    {
        "bootstrap.servers": servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "session.timeout.ms": 6000,
    }
)
producer = Producer(
    {
        "bootstrap.servers": servers,
        "transactional.id": group,
        "transaction.timeout.ms": 10000,
        "linger.ms": 5,
        # librdkafka 2.16 may throw away the handle of an only broker when it bootstraps anew, and then wait for it
        # for ever in send_offsets_to_transaction. `atonce verify` found that (F3/ack-lost: stuck).
        "metadata.recovery.strategy": "none",
    }
)
producer.init_transactions(30)
consumer.subscribe([source])
while True:
    batch = [message for message in consumer.consume(20, timeout=0.3) if not message.error()]
    if not batch:
        continue
    try:
        producer.begin_transaction()
        for message in batch:
            producer.produce(target, key=message.key(), value=message.value())
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 10
        )
        producer.commit_transaction(10)
    except KafkaException as error:
        # Simplest and safe: die. The next start fences this producer, aborts, and reads from the committed offsets.
        # At once, without destructors: librdkafka can hang in them while a transaction is in doubt.
        print(f"transaction failed: {error}", file=sys.stderr, flush=True)
        os._exit(1)

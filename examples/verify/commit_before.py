"""Commits its offsets, then does the work: a crash in between loses the batch (at most once).

atonce verify --app "python examples/verify/commit_before.py {servers} {input} {output} {group}" --expect at-most-once
"""

import sys

from confluent_kafka import Consumer, Producer

servers, source, target, group = sys.argv[1:5]
consumer = Consumer(
    {
        "bootstrap.servers": servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
    }
)
# No retries: a retry of a Produce that had arrived would write twice. Idempotence would do as well.
producer = Producer({"bootstrap.servers": servers, "message.send.max.retries": 0, "linger.ms": 5})
consumer.subscribe([source])
while True:
    batch = [message for message in consumer.consume(20, timeout=0.3) if not message.error()]
    if batch:
        consumer.commit(asynchronous=False)
        for message in batch:
            producer.produce(target, key=message.key(), value=message.value())
        producer.flush()

"""Does the work, then commits its offsets: a crash in between repeats the batch (at least once).

atonce verify --app "python examples/verify/commit_after.py {servers} {input} {output} {group}" --expect at-least-once
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
producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5})
failed: list[str] = []
consumer.subscribe([source])
while True:
    batch = [message for message in consumer.consume(20, timeout=0.3) if not message.error()]
    if batch:
        for message in batch:
            producer.produce(
                target,
                key=message.key(),
                value=message.value(),
                on_delivery=lambda error, _: failed.append(str(error)) if error else None,
            )
        if producer.flush(20) or failed:
            sys.exit(f"not delivered, so not committed: {failed[:1]}")
        consumer.commit(asynchronous=False)

"""A consumer as most tutorials write it: auto-commit on, results sent asynchronously. Loses and repeats (level none).

atonce verify --app "python examples/verify/auto_commit.py {servers} {input} {output} {group}" --expect none
"""

import sys
import time

from confluent_kafka import Consumer, Producer

servers, source, target, group = sys.argv[1:5]
consumer = Consumer(
    {
        "bootstrap.servers": servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": True,
        "auto.commit.interval.ms": 400,
        "session.timeout.ms": 6000,
    }
)
producer = Producer({"bootstrap.servers": servers, "enable.idempotence": False, "linger.ms": 5})
consumer.subscribe([source])
while True:
    for message in consumer.consume(40, timeout=0.5):
        if message.error():
            continue
        time.sleep(0.02)  # the work; meanwhile the timer commits the offsets of the whole batch
        producer.produce(target, key=message.key(), value=message.value())
        producer.poll(0)

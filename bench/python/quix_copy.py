"""Quix Streams, exactly once: upper-case from one topic to another. Runs until it is killed.

Arguments: servers, input topic, output topic, consumer group, commit interval in seconds, state directory.
"""

import sys
from pathlib import Path

from quixstreams import Application

servers, source, target, group, commit_s, scratch = sys.argv[1:7]
app = Application(
    broker_address=servers,
    consumer_group=group,
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    commit_interval=float(commit_s),
    auto_create_topics=False,
    state_dir=Path(scratch),
    producer_extra_config={"batch.size": 1 << 20, "linger.ms": 5},
)
records = app.dataframe(app.topic(source, key_deserializer="bytes", value_deserializer="bytes"))
records.apply(bytes.upper).to_topic(app.topic(target, key_serializer="bytes", value_serializer="bytes"))
app.run()

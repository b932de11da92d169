"""A Quix Streams application with processing_guarantee="exactly-once".

quixstreams brings its own pins, so it lives beside the project's environment:

    scripts/quix
    atonce verify --expect effectively-once \
        --app ".venv-quix/bin/python examples/verify/quix_exactly_once.py {servers} {input} {output} {group}"
"""

import sys
from pathlib import Path
from tempfile import mkdtemp

from quixstreams import Application

servers, source, target, group = sys.argv[1:5]
app = Application(
    broker_address=servers,
    consumer_group=group,
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    commit_interval=0.3,
    auto_create_topics=False,
    state_dir=Path(mkdtemp(prefix="quix-")),
    consumer_extra_config={"session.timeout.ms": 6000},
    producer_extra_config={"transaction.timeout.ms": 10000},
)
records = app.dataframe(app.topic(source, key_deserializer="bytes", value_deserializer="bytes"))
records.to_topic(app.topic(target, key_serializer="bytes", value_serializer="bytes"))
app.run()

"""A process of its own that runs pipelines one after the other, and prints what it holds more of in the end."""

from __future__ import annotations

import json
import sys
import threading
import time
import uuid
from pathlib import Path

import atonce
from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic
from atonce.spark.session import session
from tests.contract.pipeline.parts import OUTPUTS, produce


def held() -> dict[str, int]:
    """What this process has now."""
    return {"descriptors": len(list(Path("/proc/self/fd").iterdir())), "threads": threading.active_count()}


def more(than: dict[str, int]) -> dict[str, tuple[int, int]]:
    return {what: (than[what], count) for what, count in held().items() if count > than[what]}


def main(kind: str, servers: str, scratch: Path) -> None:
    def run() -> None:
        name = uuid.uuid4().hex[:8]
        with Cluster(servers) as cluster:
            create_topic(cluster, name, partitions=3)
        produce(servers, name, range(100))
        output = OUTPUTS[kind](name, servers, scratch, "")
        pipeline = atonce.Pipeline(name, checkpoint=str(scratch / name)).read(atonce.Kafka(name, servers=servers))
        pipeline = pipeline.transform("SELECT CAST(key AS STRING) AS key, CAST(value AS STRING) AS value FROM input")
        pipeline.write(output.sink).run(available_now=True)
        assert len(output.values()) == 100

    session("local[2]")
    run()  # what the process needs once, however many follow
    before = held()
    for _ in range(3):
        run()
    # The other ends of connections that were closed, and the threads that read them, go a moment later.
    deadline = time.monotonic() + 20
    while more(before) and time.monotonic() < deadline:
        time.sleep(0.05)
    print(json.dumps(more(before)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))

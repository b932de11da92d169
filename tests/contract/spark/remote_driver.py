"""A driver with a remote checkpoint, killed or held at a step of a batch. Words: one JSON object.

`step` and `batch` say where; `act` is "kill", "hold" (until a line comes on standard input) or nothing.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import atonce
from atonce.delivery.events import Event
from atonce.errors import AtOnceError
from atonce.spark.checkpoint import files
from atonce.spark.session import session

WORDS = json.loads(sys.argv[1])
OURS = "atonce-reads"


class Watches:
    def on_event(self, event: Event) -> None:
        print(f"{event.step} {event.batch_id}", flush=True)
        if event.step != WORDS["step"] or event.batch_id != WORDS["batch"]:
            return
        if WORDS["act"] == "kill":
            os.killpg(0, signal.SIGKILL)
        print("HELD", flush=True)
        sys.stdin.readline()


def counted(df: Any) -> Any:
    return (
        df.selectExpr("CAST(CAST(CAST(key AS STRING) AS INT) % 10 AS STRING) AS key")
        .groupBy("key")
        .count()
        .selectExpr("key", "CAST(count AS STRING) AS value")
    )


def told_apart(spark: Any) -> Any:
    """Our own requests carry another name, so that the store's log can tell them from Spark's."""
    found = spark._jsparkSession.sessionState().newHadoopConf()
    found.set("fs.s3a.user.agent.prefix", OURS)
    found.set("fs.s3a.impl.disable.cache", "true")
    return found


if WORDS.get("apart"):
    files.hadoop_configuration = told_apart
conf = {**WORDS["conf"], "spark.sql.shuffle.partitions": "2"}
session("local[2]", conf)
pipeline = (
    atonce.Pipeline(
        WORDS["topic"], "effectively-once", checkpoint=WORDS["checkpoint"], mode=WORDS["mode"], observer=Watches()
    )
    .read(atonce.Kafka(WORDS["topic"], servers=WORDS["servers"], options={"maxOffsetsPerTrigger": "60"}))
    .transform(counted if WORDS["mode"] else "SELECT key, value FROM input")
    .write(atonce.Kafka(WORDS["topic"] + "-out", servers=WORDS["servers"]))
)
try:
    pipeline.run(available_now=True)
except AtOnceError as error:
    print(f"ENDED {error}", flush=True)
    sys.exit(error.exit_code)

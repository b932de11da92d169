"""A driver whose Spark runs copies of slow tasks: one of them is slow in every batch."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import atonce
from atonce.delivery import progress
from atonce.delivery.events import Event
from atonce.spark.arrow_job import map_in_arrow
from tests.contract.pipeline.parts import OUTPUTS
from tests.crash.pipeline.slow_daemon import SLOW_S, tell

ROOT = Path(__file__).parents[3]
TEXT = "key string, value string"


class Tell:
    def on_event(self, event: Event) -> None:
        print(event.step.value, event.batch_id, event.details().get("why", ""), flush=True)


def slow(df: Any) -> Any:
    """For database sinks, which have their rows from the transform's own tasks."""

    def rows(batches: Any) -> Any:
        place, _ = tell()
        yield from batches
        if place == 0:
            time.sleep(SLOW_S)

    return map_in_arrow(as_text(df).repartition(4), rows, TEXT)


def main() -> None:
    told = json.loads(sys.argv[1])
    progress.SMALL_BATCH_ROWS = 0
    kafka = told["sink"] == "kafka"
    spark = {
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.executorEnv.ATTEMPTS": told["attempts"],
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "50ms",
        "spark.speculation.multiplier": "1.1",
        **({"spark.python.daemon.module": "tests.crash.pipeline.slow_daemon"} if kafka else {}),
    }
    begun = atonce.Pipeline(
        told["name"], checkpoint=told["checkpoint"], master=told["master"], spark=spark, observer=Tell()
    ).read(atonce.Kafka(told["name"], servers=told["servers"]))
    sink = OUTPUTS[told["sink"]](told["name"], told["servers"], Path(told["scratch"]), told["postgres"]).sink
    begun.transform(as_text if kafka else slow).write(sink).run(available_now=True)


def as_text(df: Any) -> Any:
    return df.selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")


if __name__ == "__main__":
    main()

"""A driver on a standalone cluster: runs one pipeline, slowly, and tells its steps on stdout."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import atonce
from atonce.delivery import progress
from atonce.delivery.events import Event
from atonce.spark.arrow_job import map_in_arrow
from tests.contract.pipeline.parts import OUTPUTS

TEXT = "key string, value string"


class Tell:
    def on_event(self, event: Event) -> None:
        print(event.step.value, event.batch_id, event.details().get("why", ""), flush=True)


def slow(df: Any) -> Any:
    def rows(batches: Any) -> Any:
        import time

        for batch in batches:
            time.sleep(1.0)
            yield batch

    return map_in_arrow(df.selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value"), rows, TEXT)


def slow_arrow(batch: Any) -> Any:
    import time

    import pyarrow as pa

    time.sleep(1.0)
    return pa.record_batch({name: batch.column(name).cast(pa.string()) for name in ("key", "value")})


def main() -> None:
    told = json.loads(sys.argv[1])
    progress.SMALL_BATCH_ROWS = 0
    source = atonce.Kafka(told["name"], servers=told["servers"], options={"maxOffsetsPerTrigger": "100"})
    sink = OUTPUTS[told["sink"]](told["name"], told["servers"], Path(told["scratch"]), told["postgres"]).sink
    spark = {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    begun = atonce.Pipeline(
        told["name"], checkpoint=told["checkpoint"], master=told["master"], spark=spark, observer=Tell()
    ).read(source)
    transformed = begun.map_arrow(slow_arrow, TEXT) if told["inside_the_source"] else begun.transform(slow)
    transformed.write(sink).run(available_now=True)


if __name__ == "__main__":
    main()

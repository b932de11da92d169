"""A batch one of whose tasks dies by SIGKILL once, under a Spark that retries tasks. Run as a script by the crash tests."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any


def tell_what_arrives(marker: str) -> None:
    """A file for every Spark partition of which rows are in the transaction."""
    from atonce.connectors.sql.rows_in import Intake

    put = Intake._put

    def told(self: Any, payload: Any, rows: int, partition: int, grant: Any) -> None:
        put(self, payload, rows, partition, grant)
        Path(f"{marker}-{partition}").touch()

    Intake._put = told  # type: ignore[method-assign]


def main(kind: str, where: str, table: str, marker: str) -> None:
    from atonce.errors import RetriableError
    from atonce.spark.arrow_job import map_in_arrow
    from atonce.spark.session import session
    from tests.contract.connectors.sql.database import Database, batch, identity, progress

    spark = session(master="local[2,4]", conf={"spark.sql.execution.arrow.maxRecordsPerBatch": "2000"})
    who = identity(table)
    sink = Database(kind=kind, where=where).sink(table).open(who, spark)
    sink.claim()

    tell_what_arrives(marker)

    def dies_once(batches: Any) -> Any:
        from pyspark import TaskContext

        arrived = Path(f"{marker}-{TaskContext.get().partitionId()}")
        for number, found in enumerate(batches):
            if number == 8 and not Path(marker).exists():
                while not arrived.exists():
                    time.sleep(0.01)
                Path(marker).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield found

    ids = spark.range(0, 100_000, 1, 2)
    df = map_in_arrow(ids, dies_once, "id bigint").selectExpr("id", "repeat('x', 100) AS body")
    attempts = 0
    while True:
        attempts += 1
        try:
            sink.output_and_progress(batch(df, 0), progress(who, 0))
            break
        except RetriableError as error:
            print(f"aborted: {error}", flush=True)
    print(f"attempts {attempts}", flush=True)
    sink.close()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

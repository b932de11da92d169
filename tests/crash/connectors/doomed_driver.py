"""A driver that delivers batch 0, and is killed by SIGKILL at one moment of batch 1. Run as a script by the crash tests."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(kind: str, where: str, table: str, moment: str, master: str) -> None:
    from atonce.connectors.sql import rows_in as sql_intake
    from atonce.spark.session import session
    from tests.contract.connectors.sql.database import Database, batch, identity, progress
    from tests.contract.connectors.systems import DeltaSystem, IcebergSystem

    spark = session(master=master)
    who = identity(table)
    lakes = {"delta": DeltaSystem, "iceberg": IcebergSystem}
    place: Any = lakes[kind](Path(where)) if kind in lakes else Database(kind=kind, where=where)
    sink = place.sink(table).open(who, spark)
    sink.claim()
    sink.output_and_progress(batch(spark.range(0, 10, 1, 2).selectExpr("id", "'x' AS body"), 0), progress(who, 0))

    def watch(event: Any) -> None:
        if event.step.value == moment:
            die()

    if moment == "sent":
        step: Any = importlib.import_module(
            "atonce.connectors.lake." + ("delta.table" if kind == "delta" else "iceberg.commit")
        )
        send = step.send

        def send_then_die(*given: Any) -> None:
            send(*given)
            die()

        step.send = send_then_die
    if moment == "rows-arriving":
        put = sql_intake.Intake._put

        def put_then_die(self: Any, *frame: Any) -> None:
            put(self, *frame)
            die()

        sql_intake.Intake._put = put_then_die  # type: ignore[method-assign]
    sink.output_and_progress(
        batch(spark.range(10, 20, 1, 2).selectExpr("id", "'x' AS body"), 1, watch), progress(who, 1)
    )
    print("survived", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

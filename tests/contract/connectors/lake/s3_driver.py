"""Delivers into an Iceberg table on S3, is replaced, upserts, leaves orphans and cleans. Run as a script: tasks take
their credentials from the environment that Spark was started in."""

from __future__ import annotations

import json
import sys
from typing import Any


def main(catalog: str) -> None:
    import atonce
    from atonce.errors import ReplacedError
    from atonce.spark.session import session
    from tests.contract.connectors.sql.database import Crash, batch, crash_at, identity, progress

    spark = session(master="local[2]")
    properties = json.loads(catalog)

    def ten(number: int) -> Any:
        return spark.range(number * 10, number * 10 + 10, 1, 2).selectExpr("id", "'x' AS body")

    def opened(**options: Any) -> tuple[Any, Any]:
        who = identity("orders")
        sink = atonce.Iceberg("shop.orders", properties, **options).open(who, spark)
        sink.claim()
        return who, sink

    old, first = opened(partition_by="bucket(2, id)")
    first.output_and_progress(batch(ten(0), 0), progress(old, 0))
    try:
        first.output_and_progress(batch(ten(1), 1, crash_at("output-done")), progress(old, 1))
    except Crash:
        pass
    new, second = opened()
    try:
        first.output_and_progress(batch(ten(1), 1), progress(old, 1))
        raise AssertionError("a zombie's commit went in")
    except ReplacedError:
        pass
    second.output_and_progress(batch(ten(1), 1), progress(new, 1))
    table = atonce.Iceberg("shop.orders", properties)
    left = table.orphans("orders")
    table.remove_orphans(left)
    assert len(left) > 0 and table.orphans("orders") == [], left
    third, merging = opened(mode="upsert", key="id")
    merging.output_and_progress(batch(ten(1).selectExpr("id", "'newer' AS body").coalesce(1), 2), progress(third, 2))
    print("delivered", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

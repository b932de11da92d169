"""Plain Structured Streaming with our parts: `format("atonce")` and `foreachBatch(atonce.deliver(…))`.

`python examples/structured_streaming.py`
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from pathlib import Path

import atonce
from atonce.spark.session import session

ROWS = 200


def main() -> None:
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="atonce-streaming-")))
        spark = session()
        rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
        checkpoint = str(scratch / "checkpoint")
        sink = atonce.SQLite(str(scratch / "numbers.db"), table="numbers", create=True)
        query = (
            rate.select("value")
            .writeStream.foreachBatch(atonce.deliver(sink, name="numbers", checkpoint=checkpoint))
            .option("checkpointLocation", checkpoint)
            .trigger(once=True)
            .start()
        )
        query.awaitTermination()
        with sqlite3.connect(scratch / "numbers.db") as db:
            count, distinct = db.execute("SELECT count(*), count(DISTINCT value) FROM numbers").fetchone()
        print(f"{count} rows, {distinct} of them different")


if __name__ == "__main__":
    main()

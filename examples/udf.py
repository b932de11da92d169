"""A Python function as a UDF, written at module level as in any PySpark program. `python examples/udf.py`

The type is an object: `@udf("string")` asks Spark to read the text, and there is no session yet when a module is read.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from pathlib import Path

from kafka import KafkaProducer
from pyspark.sql import DataFrame
from pyspark.sql.functions import udf
from pyspark.sql.types import StringType

import atonce

CARDS = 50


@udf(StringType())
def masked(number: str | None) -> str | None:
    """All but the last four digits."""
    return None if number is None else "•" * (len(number) - 4) + number[-4:]


def without_numbers(df: DataFrame) -> DataFrame:
    return df.select(df["key"].cast("string").alias("id"), masked(df["value"].cast("string")).alias("card"))


def main() -> None:
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="atonce-udf-")))
        broker = stack.enter_context(atonce.Broker(data=scratch / "broker"))
        producer = KafkaProducer(bootstrap_servers=broker.servers)
        for number in range(CARDS):
            producer.send("cards", key=str(number).encode(), value=f"400000000000{number:04}".encode())
        producer.close()

        pipeline = (
            atonce.Pipeline("cards", checkpoint=str(scratch / "cards"))
            .read(atonce.Kafka("cards", servers=broker.servers))
            .transform(without_numbers)
            .write(atonce.SQLite(scratch / "cards.db", table="cards"))
        )
        pipeline.run(available_now=True)

        with sqlite3.connect(scratch / "cards.db") as db:
            cards = [card for (card,) in db.execute("SELECT card FROM cards ORDER BY card")]
        print(f"{len(cards)} cards, the first is {cards[0]}, the last {cards[-1]}")


if __name__ == "__main__":
    main()

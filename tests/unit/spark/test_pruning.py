"""Which columns of the source a SQL transform reads. One that is named but not read must stay: the query needs it."""

from __future__ import annotations

from typing import Any

import pytest

from atonce.connectors.kafka.read.stream import source_schema
from atonce.spark.planning.pruning import used_columns


@pytest.mark.parametrize(
    ("sql", "used"),
    [
        ("SELECT key, upper(CAST(value AS STRING)) AS value FROM input", ("key", "value")),
        ("SELECT value FROM input WHERE partition = 1 AND offset > 5", ("value", "partition", "offset")),
        ("SELECT key AS k, count(*) AS n FROM input GROUP BY key", ("key",)),
        ("SELECT a.key, b.value FROM input a JOIN input b ON a.key = b.key", ("key", "value")),
        ("SELECT * FROM input", ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")),
        ("SELECT * EXCEPT (offset) FROM input", None),
        ("WITH t AS (SELECT key, value, offset FROM input) SELECT key, value FROM t", None),
        ("SELECT key FROM input WHERE offset >= 0 OR true", None),
        ("SELECT key FROM input WHERE partition > (SELECT min(partition) FROM input WHERE offset > 1)", None),
        ("SELECT 1 AS one FROM input", None),
        ("SELECT nonsense FROM input", None),
    ],
)
def test_columns_that_a_query_reads(spark: Any, sql: str, used: tuple[str, ...] | None) -> None:
    def build(df: Any) -> Any:
        df.createOrReplaceTempView("input")
        return spark.sql(sql)

    assert used_columns(spark, source_schema(False), build) == used

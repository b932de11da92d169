"""AtOnce: PySpark pipelines over Kafka whose processing guarantee is one word, proven with one command.

import atonce

orders = (
    atonce.Pipeline("orders", guarantee="effectively-once")
    .read(atonce.Kafka("orders"))
    .transform(lambda df: df.selectExpr("cast(key as string) id", "cast(value as string) body"))
    .write(atonce.Postgres("postgresql://…", table="orders"))
)
orders.run(available_now=True)
orders.verify()
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Loaded on first use: `import atonce` in a Spark worker or in the broker must not pay for what it does not need.
_WHERE = {
    "Broker": "atonce.broker.embedded",
    "Guarantee": "atonce.guarantee",
    "Pipeline": "atonce.pipeline",
    "Kafka": "atonce.connectors.kafka.topic",
    "Files": "atonce.connectors.files.source",
    "Table": "atonce.connectors.sql.table",
    "Postgres": "atonce.connectors.sql.postgres.sink",
    "SQLite": "atonce.connectors.sql.sqlite.sink",
    "DuckDB": "atonce.connectors.sql.duckdb.sink",
    "Delta": "atonce.connectors.lake.delta.sink",
    "deliver": "atonce.pipeline",
}

__all__ = [
    "Broker",
    "DuckDB",
    "Delta",
    "Files",
    "Guarantee",
    "Kafka",
    "Pipeline",
    "Postgres",
    "SQLite",
    "Table",
    "deliver",
    "__version__",
]

if TYPE_CHECKING:
    from atonce.broker.embedded import Broker as Broker
    from atonce.connectors.files.source import Files as Files
    from atonce.connectors.kafka.topic import Kafka as Kafka
    from atonce.connectors.lake.delta.sink import Delta as Delta
    from atonce.connectors.sql.duckdb.sink import DuckDB as DuckDB
    from atonce.connectors.sql.postgres.sink import Postgres as Postgres
    from atonce.connectors.sql.sqlite.sink import SQLite as SQLite
    from atonce.connectors.sql.table import Table as Table
    from atonce.guarantee import Guarantee as Guarantee
    from atonce.pipeline import Pipeline as Pipeline
    from atonce.pipeline import deliver as deliver
else:  # a type checker that saw this would take every misspelt name for one of ours

    def __getattr__(name: str) -> Any:
        if name in _WHERE:
            value = getattr(importlib.import_module(_WHERE[name]), name)
            globals()[name] = value
            return value
        raise AttributeError(f"module 'atonce' has no attribute {name!r}")

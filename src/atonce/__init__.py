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
import os
import shutil
import sys
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
    "Iceberg": "atonce.connectors.lake.iceberg.sink",
    "deliver": "atonce.pipeline",
    "run": "atonce.several",
    "session": "atonce.spark.own",
}

__all__ = [
    "Broker",
    "DuckDB",
    "Delta",
    "Files",
    "Guarantee",
    "Iceberg",
    "Kafka",
    "Pipeline",
    "Postgres",
    "SQLite",
    "Table",
    "deliver",
    "run",
    "session",
    "__version__",
]

if TYPE_CHECKING:
    from atonce.broker.embedded import Broker as Broker
    from atonce.connectors.files.source import Files as Files
    from atonce.connectors.kafka.topic import Kafka as Kafka
    from atonce.connectors.lake.delta.sink import Delta as Delta
    from atonce.connectors.lake.iceberg.sink import Iceberg as Iceberg
    from atonce.connectors.sql.duckdb.sink import DuckDB as DuckDB
    from atonce.connectors.sql.postgres.sink import Postgres as Postgres
    from atonce.connectors.sql.sqlite.sink import SQLite as SQLite
    from atonce.connectors.sql.table import Table as Table
    from atonce.guarantee import Guarantee as Guarantee
    from atonce.pipeline import Pipeline as Pipeline
    from atonce.pipeline import deliver as deliver
    from atonce.several import run as run
    from atonce.spark.own import session as session
else:  # a type checker that saw this would take every misspelt name for one of ours

    def __getattr__(name: str) -> Any:
        if name in _WHERE:
            value = getattr(importlib.import_module(_WHERE[name]), name)
            globals()[name] = value
            return value
        raise AttributeError(f"module 'atonce' has no attribute {name!r}")


def _workers_run_this_python() -> None:
    """Spark's workers run the `python3` of the PATH. Where that is another environment than this one (a virtual
    environment that is not activated), they would find neither this package nor the user's; whoever sets PYSPARK_PYTHON
    decides."""
    found = shutil.which("python3")
    if found is None or os.path.dirname(found) != os.path.dirname(sys.executable):  # noqa: PTH120
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


if sys.executable:
    _workers_run_this_python()

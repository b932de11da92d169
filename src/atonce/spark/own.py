"""`atonce.session`: a session as pipelines make theirs, for programs that begin with one."""

from __future__ import annotations

from typing import Any

from atonce.errors import UsageError
from atonce.spark import session as sessions


def session(master: str | None = None, **settings: Any) -> Any:
    """A SparkSession that is quick to start and quiet, with what deliveries need; or the one that runs already.

    `settings` are Spark's, and win over ours: `atonce.session("local[4]", **{"spark.driver.memory": "4g"})`.
    """
    for name in settings:
        if not name.startswith("spark."):
            raise UsageError(
                f"atonce.session got {name!r}, which is no setting of Spark's: they begin with spark., as in "
                '**{"spark.driver.memory": "4g"}. Next: correct the name.'
            )
    return sessions.session(master, {name: _as_spark_writes(value) for name, value in settings.items()})


def _as_spark_writes(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

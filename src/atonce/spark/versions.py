"""What differs between the versions of Spark that we run on, from 3.5 (`deliver` alone) to 4.3. Nobody else asks.

       Python sources   they are told start and limit   repartitionById   Unix sockets
3.5    –                –                               –                 –
4.0    yes              –                               –                 –
4.1    yes              –                               yes               yes
4.2 →  yes              yes                             yes               yes
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

from atonce.errors import UsageError

OLDEST, OLDEST_WITH_SOURCES, TOO_NEW = (3, 5), (4, 0), (4, 4)
HINT = "Next: pip install 'atonce[spark]'"
NEXT = "atonce.next"
"""An option of our sources: where the first batch of this start begins, as the offset log has it; empty: at the first
position of all."""
DRAIN = "atonce.drain"
"""The same: read what is there at the start, and no more."""
_STREAMING = "org.apache.spark.sql.execution.streaming"


def installed() -> str:
    """As PySpark says itself: a platform's own has no entry among the installed packages."""
    try:
        return str(importlib.import_module("pyspark").__version__)
    except ImportError:
        raise UsageError(
            f"PySpark is not installed in this environment. {HINT}; where a platform brings Spark, use its Python."
        ) from None


@functools.cache
def spark_version() -> tuple[int, int]:
    """(4, 3) of PySpark 4.3.0; `UsageError` where there is none, or one that we do not know."""
    version = installed()
    words = version.split(".")
    found = (int(words[0]), int("".join(c for c in words[1] if c.isdigit()) or 0))
    if not OLDEST <= found < TOO_NEW:
        raise UsageError(
            f"PySpark {version} is not supported: pipelines run on 4.0 to 4.3, atonce.deliver on 3.5, too. "
            "Next: pip install 'pyspark>=4.0,<4.4'; on a platform that brings its own Spark, choose one with these."
        )
    return found


def has_python_sources() -> bool:
    """And logs of its own in JSON: both came with 4.0."""
    return spark_version() >= OLDEST_WITH_SOURCES


def need_python_sources(what: str = "a pipeline") -> None:
    if not has_python_sources():
        raise UsageError(
            f"{what} needs Spark 4.0 or newer, and this is {installed()}, which has no Python sources. Next: "
            "read with Spark's own Kafka source, and deliver with atonce.deliver(…), which works here."
        )


def refuse_connect(session: Any = None) -> None:
    """A client of Spark Connect has no JVM beside it: jobs, their properties and their checkpoint cannot be reached."""
    spark_version()
    remote = importlib.import_module("pyspark.sql.utils").is_remote
    if remote() if session is None else type(session).__module__.startswith("pyspark.sql.connect"):
        raise UsageError(
            "this is Spark Connect, and pipelines and atonce.deliver need the driver's own session. What works there: "
            'spark.read and spark.readStream.format("atonce"), where the server has atonce installed. Next: run it as '
            "a job on the cluster (spark-submit, `atonce run --master`), without SPARK_REMOTE and sc://."
        )


def tells_where_batches_begin() -> bool:
    """To a Python source; and Trigger.AvailableNow asks it for its end."""
    return spark_version() >= (4, 2)


def register_source(spark: Any, source: type) -> None:
    """Spark 4.0 finds the sources of installed packages by itself, and refuses to be told of one again."""
    from pyspark.errors import AnalysisException

    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def drains_by_itself(df: Any) -> bool:
    """Whether Trigger.AvailableNow ends this stream by its source's own limits. Before 4.2 a source in Python would
    be read in one batch of all that is there."""
    return tells_where_batches_begin() or "PythonDataSource" not in df._jdf.queryExecution().analyzed().treeString()


def unix_sockets() -> bool:
    return spark_version() >= (4, 1)


def checkpoint_by_renames() -> str:
    """The class that writes offset and commit logs by renames."""
    package = f"{_STREAMING}.checkpointing" if spark_version() >= (4, 1) else _STREAMING
    return f"{package}.FileSystemBasedCheckpointFileManager"


def names_each_state() -> bool:
    """State can have a name of its own for every attempt at a batch (format 2)."""
    return spark_version() >= (4, 0)


def parsed_schema(ddl: str) -> Any:
    from pyspark.sql import types

    if spark_version() >= (4, 0):
        return types.StructType.fromDDL(ddl)
    return importlib.import_module("pyspark.sql.types")._parse_datatype_string(ddl)


def arrow_schema(struct: Any) -> Any:
    """Spark's StructType as an Arrow schema; times in UTC, which versions before 4.2 always gave."""
    from pyspark.sql.pandas.types import to_arrow_schema

    takes_zone = "timezone" in inspect.signature(to_arrow_schema).parameters
    return to_arrow_schema(struct, timezone="UTC") if takes_zone else to_arrow_schema(struct)


def arrow_function(function: Callable[..., Any], schema: Any) -> Any:
    """A function for `mapped_in_arrow`; made without pandas, which Spark's own door asks for and does not use."""
    where = "pyspark.util" if spark_version() >= (4, 0) else "pyspark.rdd"
    kind = importlib.import_module(where).PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    return importlib.import_module("pyspark.sql.udf")._create_udf(function, schema, kind)


def mapped_in_arrow(df: Any, column: Any) -> Any:
    from pyspark.sql import DataFrame

    if spark_version() >= (4, 0):
        return DataFrame(df._jdf.mapInArrow(column._jc, False, None), df.sparkSession)
    return DataFrame(df._jdf.pythonMapInArrow(column._jc.expr(), False), df.sparkSession)


def repartitioned(df: Any, parts: int, column: str) -> Any:
    """A row whose INT `column` says n goes to task n, of `parts`."""
    if spark_version() >= (4, 1):
        return df.repartitionById(parts, column)
    from pyspark.sql import functions as f

    # Hash partitioning, by a key whose hash is the number that was asked for.
    keys = f.array(*[f.lit(key) for key in keys_of(parts)])
    return df.repartition(parts, f.element_at(keys, f.col(column) + f.lit(1)))


@functools.cache
def keys_of(parts: int) -> tuple[int, ...]:
    """For each of `parts` an INT that Spark's hash partitioning puts exactly there."""
    found: dict[int, int] = {}
    key = 0
    while len(found) < parts:
        found.setdefault(hashed(key) % parts, key)
        key += 1
    return tuple(found[part] for part in range(parts))


def hashed(value: int) -> int:
    """Spark's hash of an INT: Murmur3 (x86, 32 bits), seed 42, signed."""
    mask = 0xFFFFFFFF

    def rotated(number: int, by: int) -> int:
        return ((number << by) | (number >> (32 - by))) & mask

    block = rotated((value & mask) * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
    state = (rotated(42 ^ block, 13) * 5 + 0xE6546B64) & mask
    state ^= 4
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state = (state ^ (state >> shift)) * factor & mask
    state ^= state >> 16
    return state - (1 << 32) if state >> 31 else state

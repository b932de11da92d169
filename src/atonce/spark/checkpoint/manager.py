"""How Spark writes its checkpoint: on the driver's disk by plain renames; on an object store only where nothing stands
yet; anywhere else as Spark chooses (on HDFS a rename never replaces).

A driver that was replaced may still write `offsets/N` when it wakes: it must not write over its successor's plan. What
it planned itself it can never deliver, since the sink's claim is not its own any more.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from atonce.errors import UsageError
from atonce.spark.checkpoint.files import jvm_errors, on_local_disk, scheme_of
from atonce.spark.versions import checkpoint_by_renames, names_each_state

SETTING = "spark.sql.streaming.checkpointFileManagerClass"
STATE_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_CONDITIONAL = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
"""Of Spark's module for clouds: before an object is put it asks whether one is there, and then gives its own up.
Between the two there is a moment, and no rename, which on S3 is a copy."""
_OBJECT_STORES = frozenset({"s3", "s3a", "s3n"})
_UNIQUE_NAMES = "2"
_setting = threading.Lock()
"""Settings of the session, which other pipelines may start in at the same time."""


@contextlib.contextmanager
def suited_to(spark: Any, checkpoint: str, *, stateful: bool) -> Iterator[None]:
    """For a query that starts meanwhile, the settings of the session that its checkpoint needs."""
    with _setting:
        wanted = _wanted(spark, checkpoint, stateful=stateful)
        for name, value in wanted.items():
            spark.conf.set(name, value)
        try:
            yield
        finally:
            for name in wanted:
                spark.conf.unset(name)  # another query of this session may have its checkpoint elsewhere


def _wanted(spark: Any, checkpoint: str, *, stateful: bool) -> dict[str, str]:
    chosen = spark.conf.get(SETTING, None)
    if on_local_disk(checkpoint, spark):
        # Its offset and commit logs cost 41-54 ms a batch instead of 100-140.
        return {} if chosen else {SETTING: checkpoint_by_renames()}
    found: dict[str, str] = {}
    if scheme_of(checkpoint, spark) in _OBJECT_STORES and chosen is None:
        if _loadable(spark, _CONDITIONAL):
            found[SETTING] = _CONDITIONAL
        elif stateful:
            raise UsageError(
                f"{checkpoint} is on an object store, and without Spark's module for clouds a second driver could "
                "write over what the first one planned, which a stateful pipeline does not survive. Next: put "
                "org.apache.spark:spark-hadoop-cloud_2.13 of this Spark's version on spark.jars, or keep the "
                "checkpoint on HDFS or a local disk."
            )
    if stateful:
        found.update(_state_format(spark, checkpoint))
    return found


def _state_format(spark: Any, checkpoint: str) -> dict[str, str]:
    """Two drivers that write the state of one batch would overwrite each other's files, unless each has names of its
    own; `commits/N` then says which count."""
    if not names_each_state():
        return {}
    said = spark.conf.get(STATE_FORMAT, None)
    if said is None:
        return {STATE_FORMAT: _UNIQUE_NAMES}
    if said == _UNIQUE_NAMES:
        return {}
    raise UsageError(
        f"{STATE_FORMAT} is {said}, and state in a remote checkpoint ({checkpoint}) needs {_UNIQUE_NAMES}: with {said} "
        "two drivers overwrite each other's state. Next: leave the setting out; it is set where it is needed."
    )


def _loadable(spark: Any, name: str) -> bool:
    jvm = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        jvm.java.lang.Class.forName(name, False, loader)
    except jvm_errors():
        return False
    return True

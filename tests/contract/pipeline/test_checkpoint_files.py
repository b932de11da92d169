"""Where a checkpoint is, and with what Spark writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from atonce.spark.checkpoint.files import on_local_disk
from atonce.spark.checkpoint.manager import SETTING, suited_to

HDFS = "hdfs://name-node.invalid:8020"


def test_a_path_without_a_scheme_is_where_hadoops_default_says(spark: Any, scratch: Path) -> None:
    assert on_local_disk(str(scratch), spark)
    assert on_local_disk(f"file://{scratch}", spark)
    assert not on_local_disk(f"{HDFS}/checkpoints/orders", spark)
    spark.conf.set("fs.defaultFS", HDFS)
    try:
        assert not on_local_disk("/checkpoints/orders", spark)
        assert on_local_disk("file:///checkpoints/orders", spark)
    finally:
        spark.conf.unset("fs.defaultFS")


@pytest.mark.parametrize("place", ["local", "elsewhere", "chosen by the user"])
def test_only_a_checkpoint_on_a_local_disk_is_written_by_plain_renames(spark: Any, scratch: Path, place: str) -> None:
    """What file systems promise differs; plain renames are known to be whole on a local disk only."""
    user = "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
    if place == "chosen by the user":
        spark.conf.set(SETTING, user)
    try:
        with suited_to(spark, f"{HDFS}/orders" if place == "elsewhere" else str(scratch), stateful=False):
            rate = spark.readStream.format("rate").load().writeStream.foreachBatch(lambda *_: None)
            query = rate.option("checkpointLocation", str(scratch / "checkpoint")).start()
        try:
            manager = query._jsq.streamingQuery().offsetLog().fileManager().getClass().getSimpleName()
        finally:
            query.stop()
        assert spark.conf.get(SETTING, None) == (user if place == "chosen by the user" else None)
    finally:
        spark.conf.unset(SETTING)
    expected = "FileSystemBasedCheckpointFileManager" if place == "local" else "FileContextBasedCheckpointFileManager"
    assert manager == expected

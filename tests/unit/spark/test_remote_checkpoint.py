"""A checkpoint that is not on the driver's disk: few requests, and of two drivers only one plans a batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JError

from atonce.connectors.kafka.source import KafkaSource
from atonce.connectors.kafka.topic import Kafka
from atonce.errors import UsageError
from atonce.spark.checkpoint import manager
from atonce.spark.checkpoint.files import HadoopFiles
from atonce.spark.checkpoint.plans import Checkpoint

S3 = "s3a://shop/checkpoints/orders"


class Session:
    """Of Spark, what is asked: settings, and whether a class is there."""

    def __init__(self, *, has_module: bool = True, **settings: str) -> None:
        self.conf = self
        self.settings = dict(settings)
        self._jvm = MagicMock()
        if not has_module:
            self._jvm.java.lang.Class.forName.side_effect = Py4JError("no such class")

    def get(self, name: str, otherwise: str | None) -> str | None:
        return self.settings.get(name, otherwise)

    def set(self, name: str, value: str) -> None:
        self.settings[name] = value

    def unset(self, name: str) -> None:
        del self.settings[name]


def during(session: Session, checkpoint: str, *, stateful: bool) -> dict[str, str]:
    before = dict(session.settings)
    with manager.suited_to(session, checkpoint, stateful=stateful):
        found = dict(session.settings)
    assert session.settings == before
    return found


def test_on_an_object_store_a_plan_is_put_only_where_there_is_none() -> None:
    assert during(Session(), S3, stateful=False) == {manager.SETTING: manager._CONDITIONAL}
    assert during(Session(**{manager.SETTING: "mine"}), S3, stateful=False) == {manager.SETTING: "mine"}
    assert during(Session(), "hdfs://shop/checkpoints/orders", stateful=False) == {}  # a rename there never replaces


def test_without_the_module_for_clouds_a_stateful_pipeline_is_refused_and_others_are_not() -> None:
    assert during(Session(has_module=False), S3, stateful=False) == {}
    with pytest.raises(UsageError, match=r"spark-hadoop-cloud_2\.13"):
        during(Session(has_module=False), S3, stateful=True)


@pytest.mark.parametrize("checkpoint", [S3, "hdfs://shop/checkpoints/orders"])
def test_state_elsewhere_has_names_of_its_own_for_each_attempt(checkpoint: str) -> None:
    assert during(Session(), checkpoint, stateful=True)[manager.STATE_FORMAT] == "2"
    assert during(Session(**{manager.STATE_FORMAT: "2"}), checkpoint, stateful=True)[manager.STATE_FORMAT] == "2"
    with pytest.raises(UsageError, match=r"is 1, and state in a remote checkpoint .* needs 2"):
        during(Session(**{manager.STATE_FORMAT: "1"}), checkpoint, stateful=True)


def test_state_on_a_local_disk_stays_as_spark_keeps_it(scratch: Path) -> None:
    session = Session()
    session._jvm.nothing.side_effect = AssertionError
    assert manager.STATE_FORMAT not in during(session, f"file://{scratch}", stateful=True)


def test_each_plan_is_read_once(scratch: Path) -> None:
    """Where a batch begins was the end of the one before, which is remembered: each read is a request to the store."""
    (scratch / "offsets").mkdir()
    for batch in range(4):
        (scratch / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps({'t': {'0': batch * 10}})}")
    checkpoint = Checkpoint(str(scratch), None, KafkaSource(Kafka("t", servers="nowhere:1")).positions)
    asked: list[str] = []
    files: Any = checkpoint.files
    read = files.read
    files.read = lambda path: asked.append(path) or read(path)
    plans = [checkpoint.plan("q", batch, False) for batch in (1, 2, 3)]
    assert [(plan.start, plan.end) for plan in plans] == [({"t/0": n}, {"t/0": n + 10}) for n in (0, 10, 20)]
    assert asked == ["offsets/1", "offsets/0", "offsets/2", "offsets/3"]


def test_a_file_elsewhere_is_opened_without_asking_first_whether_it_is_there() -> None:
    spark = MagicMock()
    files = HadoopFiles(S3, spark)
    system = spark._jvm.org.apache.hadoop.fs.Path.return_value.getFileSystem.return_value
    spark._jvm.org.apache.commons.io.IOUtils.toString.return_value = "text"
    assert files.read("offsets/1") == "text"
    assert [call[0] for call in system.method_calls] == ["open"]
    system.open.side_effect = Py4JError(
        "An error occurred while calling open.\n: java.io.FileNotFoundException: No such"
    )
    system.listStatus.side_effect = system.open.side_effect
    assert files.read("offsets/1") is None and files.names("offsets") == []
    system.open.side_effect = Py4JError("An error occurred while calling open.\n: java.io.IOException: gone")
    with pytest.raises(Py4JError, match="gone"):
        files.read("offsets/1")

"""What a session is built with."""

from __future__ import annotations

from pathlib import Path

import pytest

import atonce
from atonce.errors import UsageError
from atonce.spark.session import settings
from atonce.spark.versions import refuse_connect

SOCKETS = "spark.python.unix.domain.socket.enabled"


def test_workers_are_talked_to_over_unix_sockets_where_their_path_is_short_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path that is too long would keep every Python worker from starting."""
    monkeypatch.setattr("tempfile.tempdir", "/tmp")
    assert settings("local[2]")[SOCKETS] == "true"
    assert settings("spark://127.0.0.1:7077")[SOCKETS] == "true"
    assert settings("spark://127.0.0.1:7077")["spark.python.unix.domain.socket.dir"] == "/tmp"
    assert SOCKETS not in settings("yarn") and SOCKETS not in settings("k8s://https://cluster:6443")
    deep = tmp_path / ("d" * 60)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    assert SOCKETS not in settings("local[2]")


def test_what_the_user_says_wins() -> None:
    assert settings("local[2]", {SOCKETS: "false"})[SOCKETS] == "false"


def test_java_options_of_the_user_come_after_ours_which_stay() -> None:
    options = settings("local[2]", {"spark.driver.extraJavaOptions": "-Dmine=1"})["spark.driver.extraJavaOptions"]
    assert "-Dlog4j2.configurationFile=" in options
    assert options.endswith(" -Dmine=1")


def test_a_jvm_that_sees_no_rows_compiles_less() -> None:
    assert "TieredStopAtLevel" not in settings("local[2]")["spark.driver.extraJavaOptions"]
    assert "-XX:TieredStopAtLevel=1" in settings("local[2]", sees_rows=False)["spark.driver.extraJavaOptions"]


def test_executors_that_see_no_rows_compile_their_few_steps_soon() -> None:
    """They run the same steps for each task; the driver's start has many that run only once."""
    made = settings("spark://127.0.0.1:7077", sees_rows=False)
    assert "-XX:TieredStopAtLevel=1" in made["spark.executor.extraJavaOptions"]
    assert "-XX:Tier3InvocationThreshold=30" in made["spark.executor.extraJavaOptions"]
    assert "-XX:Tier3InvocationThreshold=30" not in made["spark.driver.extraJavaOptions"]
    assert "spark.executor.extraJavaOptions" not in settings("local[2]", sees_rows=False)


def test_a_garbage_collector_of_the_user_takes_the_place_of_ours() -> None:
    """A JVM that is told of two does not start."""
    for sees_rows in (True, False):
        made = settings("local[2]", {"spark.driver.extraJavaOptions": "-XX:+UseG1GC"}, sees_rows=sees_rows)
        options = made["spark.driver.extraJavaOptions"].split()
        assert [each for each in options if each.endswith("GC")] == ["-XX:+UseG1GC"]


class OfConnect:
    """As a session of Spark Connect names itself."""

    __module__ = "pyspark.sql.connect.session"


def test_spark_connect_is_refused_in_one_line_that_says_what_works_there(monkeypatch: pytest.MonkeyPatch) -> None:
    told = r'this is Spark Connect, .*spark\.readStream\.format\("atonce"\).* Next: run it as a job on the cluster'
    with pytest.raises(UsageError, match=told):
        refuse_connect(OfConnect())
    refuse_connect(object())
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    with pytest.raises(UsageError, match=told):
        atonce.session()
    sink = atonce.SQLite("shop.db", table="orders", create=True)
    with pytest.raises(UsageError, match=told):
        atonce.deliver(sink, name="orders", guarantee="at-least-once")

"""The Spark session every pipeline, test and benchmark uses: quiet, quick to start, with our source registered."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from atonce.errors import UsageError
from atonce.local.java import found_by_spark, java_here
from atonce.local.scratch import scratch_directory
from atonce.local.servers.cluster_secret import find_secret, given_to_the_jvm
from atonce.plugins import FORMATS, loaded
from atonce.spark.start.class_archive import java_options as class_archive_options
from atonce.spark.start.jvm_words import worth_telling
from atonce.spark.start.spark_home import without_zip
from atonce.spark.versions import has_python_sources, refuse_connect

_STREAMING = "org.apache.spark.sql.execution.streaming"

DEFAULTS: dict[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    # Each micro-batch is one job with a known shuffle: planning it adaptively only adds stages to wait for.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    # A sender begins with the first few blobs instead of waiting for all of its shuffle, and memory stays bounded.
    "spark.sql.execution.arrow.maxBytesPerBatch": "8m",
    "spark.python.daemon.module": "atonce.spark.start.daemon",
    "spark.sql.streaming.stateStore.providerClass": f"{_STREAMING}.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Wakes the query sooner than the default 10 ms after new data; and no pause between batches.
    "spark.sql.streaming.pollingDelay": "1ms",
    # A stop is answered within ten seconds: what does not end by then is left to the transaction's abort.
    "spark.sql.streaming.stopTimeout": "2s",
    "spark.driver.memory": "1g",
    # A batch whose input was lost on the way runs again as a whole, never in part (`sinks.stage_retries`).
    "spark.stage.maxConsecutiveAttempts": "1",
}
LOCAL_DEFAULTS: dict[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Blobs stay on this machine, and may be compressed already.
    "spark.shuffle.compress": "false",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
}
_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n
# What the streaming query says when it fails is raised by us, in our words; once is enough.
logger.query.name = org.apache.spark.sql.execution.streaming
logger.query.level = off
logger.executor.name = org.apache.spark.executor
logger.executor.level = off
logger.scheduler.name = org.apache.spark.scheduler
logger.scheduler.level = off
logger.python.name = org.apache.spark.api.python
logger.python.level = off
# Spark takes this one's level as the root's and says so on standard error when the two differ.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.datasources.name = org.apache.spark.sql.execution.datasources
logger.datasources.level = off
logger.foreach.name = org.apache.spark.sql.execution.streaming.sources
logger.foreach.level = off
"""


_END_S = 5.0
_ended = threading.Event()
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
_LATE_COMPILERS = (
    "-XX:Tier3InvocationThreshold=1000 -XX:Tier3MinInvocationThreshold=500 -XX:Tier3CompileThreshold=5000 "
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000 "
    "-XX:Tier4BackEdgeThreshold=400000"
)
"""Java's thresholds, five to ten times as high. What runs for each record passes them within a batch; what runs while
Spark starts does not, and compiling it took longer than it ever saved."""
_ONE_COMPILER = "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC"
"""A JVM that only plans has no loop worth optimizing: the second compiler would take a third of its CPU."""
_SOON = "-XX:Tier3InvocationThreshold=30 -XX:Tier3MinInvocationThreshold=15 -XX:Tier3CompileThreshold=300"
"""An executor without rows runs the same few steps for each task, minutes apart at worst, and never exits soon: with
Java's own thresholds (200 calls) they stay interpreted for hundreds of tasks."""
_SOCKETS = "spark.python.unix.domain.socket.enabled"
"""Over TCP every small message to a Python worker waits 40 ms for a delayed acknowledgement (Nagle)."""
_LONGEST_SOCKET_FOLDER = 60
"""A Unix socket's path has room for about 100 bytes, and Spark adds a name of 42."""
_SHORT_FOLDER = "/tmp"
"""For the sockets of a standalone cluster, whose workers are ordinary machines. On YARN and Kubernetes executors keep
TCP: what they may write to, only they know."""


def session(
    master: str | None = None, conf: Mapping[str, str] | None = None, *, warm: bool = False, sees_rows: bool = True
) -> Any:
    """The running session, or a new one. `conf` wins over our defaults; `master` defaults to local[*].

    `warm`: a query will follow, so its processes start in the background, and `format("atonce")` is known only when
    `register` has returned, which a run calls. `sees_rows`: records become rows of its JVM.
    """
    refuse_connect()
    from pyspark.sql import SparkSession

    running = _running()
    if running is None:
        master = master or (conf or {}).get("spark.master") or "local[*]"
        # Under spark-submit the JVM runs already.
        java = contextlib.nullcontext() if "PYSPARK_GATEWAY_PORT" in os.environ else found_by_spark(java_here())
        # Workers must run the interpreter and find the package that this process runs.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master(master).appName("atonce")
        for key, value in settings(master, conf, sees_rows=sees_rows).items():
            builder = builder.config(key, value)
        secret = None if "spark.authenticate" in (conf or {}) else find_secret(master)
        if secret is not None:
            # Spark wants to see it among its settings, and then takes the one of the environment.
            builder = builder.config("spark.authenticate", "true").config(
                "spark.authenticate.secret", "see environment"
            )
        with _without_noise(), without_zip(master), java, _no_jvm_left_behind(), given_to_the_jvm(secret):
            running = _made(builder)
        _say_it_once()
        if warm:
            threading.Thread(target=_make_ready, args=(running,), name="atonce-warm", daemon=True).start()
            return running
    else:
        for key, value in (conf or {}).items():
            if running.conf.isModifiable(key):
                running.conf.set(key, value)
    _register(running)
    return running


def _made(builder: Any) -> Any:
    from pyspark.errors import PySparkRuntimeError

    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise UsageError(
            "Spark's JVM ended before it was ready; what it said stands above. Next: `atonce doctor` looks at Java and "
            "memory; Spark's own start script needs bash."
        ) from None


def _running() -> Any:
    from pyspark.sql import SparkSession

    # A thread other than the one that made the session has no active one.
    found = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    return found if found is not None and found._sc._jsc is not None else None


def _say_it_once() -> None:
    """Of each error in a query PySpark also prints a page of JSON, Java's stack and all; the error itself is enough."""
    if not has_python_sources():
        return  # nor does it print that
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def _make_ready(spark: Any) -> None:
    from atonce.spark.start.warm import warm

    with contextlib.suppress(Exception):  # whatever fails here fails again where it is reported
        _register(spark)
        warm(spark)


def settings(master: str, conf: Mapping[str, str] | None = None, *, sees_rows: bool = True) -> dict[str, str]:
    """Everything the session is built with."""
    chosen = dict(DEFAULTS)
    if master.startswith("local"):
        chosen.update(LOCAL_DEFAULTS)
    scratch = _scratch()
    java = [
        chosen.get("spark.driver.extraJavaOptions", ""),
        f"-Dlog4j2.configurationFile=file:{scratch}/log4j2.properties -Djava.io.tmpdir={scratch}",
    ]
    java.append(_LATE_COMPILERS if sees_rows else _ONE_COMPILER)
    if not master.startswith("local"):
        chosen["spark.executor.extraJavaOptions"] = _LATE_COMPILERS if sees_rows else f"{_ONE_COMPILER} {_SOON}"
        if master.startswith("spark://"):
            chosen[_SOCKETS] = "true"
            chosen["spark.python.unix.domain.socket.dir"] = _SHORT_FOLDER
    else:
        java.append(class_archive_options())
        if len(str(scratch)) <= _LONGEST_SOCKET_FOLDER:
            chosen[_SOCKETS] = "true"
    chosen.update(conf or {})
    # The user's options come last, so that the JVM takes theirs; ours are still needed (where logs and scratch go).
    theirs = (conf or {}).get("spark.driver.extraJavaOptions", "")
    ours = " ".join(part for part in java if part)
    if _COLLECTOR.search(theirs):
        ours = _COLLECTOR.sub("", ours)  # a JVM that is told of two does not start
    chosen["spark.driver.extraJavaOptions"] = f"{ours} {theirs}".strip()
    return chosen


@contextlib.contextmanager
def _without_noise() -> Iterator[None]:
    """The JVM inherits standard error; what it always says when it starts is dropped, the rest is passed on."""
    reading, writing = os.pipe()
    real = os.dup(2)
    os.dup2(writing, 2)
    os.close(writing)
    threading.Thread(target=_pass_on, args=(reading, real), name="atonce-jvm-stderr", daemon=True).start()
    try:
        yield
    finally:
        os.dup2(real, 2)


@contextlib.contextmanager
def _no_jvm_left_behind() -> Iterator[None]:
    """A JVM ends with its driver, but not one whose driver gave up while it started: its main thread fails then."""
    import psutil

    before = {each.pid for each in psutil.Process().children()}
    try:
        yield
    except BaseException:
        for each in psutil.Process().children():
            if each.pid not in before:
                with contextlib.suppress(psutil.Error):
                    each.kill()
        raise


def _pass_on(reading: int, real: int) -> None:
    with os.fdopen(reading, "rb") as lines:
        for line in worth_telling(lines):
            # When the JVM hangs up in the end, Spark's processes have more to say than anybody wants to know.
            if not _ended.is_set():
                with contextlib.suppress(OSError):
                    os.write(real, line)


def _scratch() -> Path:
    """For the JVM's temporary files, which are many: a JVM that is killed leaves them, and they must be found again."""
    folder = scratch_directory("spark")
    atexit.register(_end, folder)
    (folder / "log4j2.properties").write_text(_LOG4J)
    return folder


def _end(folder: Path) -> None:
    """With this process its JVM ends too, and only then its files can go."""
    from pyspark import SparkContext

    _ended.set()
    gateway, context = SparkContext._gateway, SparkContext._active_spark_context
    if context is not None and context._accumulatorServer is not None:
        # It would print a stack trace when the JVM hangs up.
        context._accumulatorServer.handle_error = lambda *_: None
    # So would Py4J, if a thread still waits for an answer.
    logging.getLogger().addFilter(lambda record: "Exception while sending command" not in record.getMessage())
    if gateway is not None and getattr(gateway, "proc", None) is not None:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            gateway.proc.stdin.close()
            gateway.proc.wait(_END_S)
    shutil.rmtree(folder, ignore_errors=True)


def _register(spark: Any) -> None:
    for target in FORMATS if has_python_sources() else ():
        loaded(target)(spark)

"""What `atonce doctor` checks on this machine: Java, Spark, ports, name, disk, memory."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from atonce.cli.parts.finding import Finding, note, ok, problem, warning
from atonce.cli.parts.support import spark_row
from atonce.errors import UsageError
from atonce.local.java import advice, installed_java, missing_words
from atonce.local.ports import free_port

SPARK = ">=4.0,<4.4"
GIB = 1 << 30
DISK_WARNING, DISK_PROBLEM = 5 * GIB, GIB // 2
MEMORY_WARNING = 2 * GIB


def machine() -> Iterator[Finding]:
    yield java()
    yield spark()
    yield from support()
    yield ports()
    yield name()
    yield from disks()
    yield memory()


def java() -> Finding:
    found = installed_java()
    if found is None:
        return problem("Java", missing_words(), advice())
    return ok("Java", f"version {found.version} at {found.command}")


def spark() -> Finding:
    from atonce.spark.versions import has_python_sources, installed

    try:
        pipelines = has_python_sources()
    except UsageError as error:
        found, _, advised = str(error).partition(" Next: ")
        return problem("Spark", found, advised)
    version = installed()
    if not pipelines:
        return warning("Spark", f"PySpark {version}", f"atonce.deliver works here; pipelines need pyspark{SPARK}")
    home = os.environ.get("SPARK_HOME")
    if home:
        return warning(
            "Spark",
            f"PySpark {version}, and SPARK_HOME points to {home}",
            "unset SPARK_HOME unless that is the same version: Spark starts from there, not from the pip package",
        )
    return ok("Spark", f"PySpark {version}")


def support() -> Iterator[Finding]:
    """The row of docs/support.md that applies here."""
    from atonce.spark.versions import installed

    try:
        version = installed()
    except UsageError:
        return
    found = spark_row(version)
    if found is None:
        yield note("support", f"no test was recorded for PySpark {version}", "docs/support.md has those that were")
    else:
        yield ok("support", found)


def ports() -> Finding:
    try:
        free_port()
    except OSError as error:
        return problem(
            "ports",
            f"no port of 127.0.0.1 can be opened: {error.strerror}",
            "brokers and Spark talk over loopback: look for a sandbox or firewall that forbids it",
        )
    try:
        with socket.create_connection(("127.0.0.1", 9092), timeout=1):
            return note(
                "ports", "something listens on 127.0.0.1:9092", "give --listen another port to run a second broker"
            )
    except OSError:
        return ok("ports", "loopback works, 127.0.0.1:9092 is free")


def name() -> Finding:
    host = socket.gethostname()
    try:
        address = socket.gethostbyname(host)
    except OSError:
        return warning(
            "host name",
            f"{host} does not resolve to an address",
            f"Spark's driver looks itself up: add '127.0.0.1 {host}' to /etc/hosts, or set SPARK_LOCAL_IP=127.0.0.1",
        )
    return ok("host name", f"{host} is {address}")


def disks() -> Iterator[Finding]:
    """Where data, checkpoints and Spark's shuffle files go."""
    spills = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")[0]
    for subject, place in (("disk here", Path.cwd()), ("disk for shuffles", Path(spills))):
        try:
            free = shutil.disk_usage(place).free
        except OSError as error:
            yield problem(subject, f"{place}: {error.strerror}", "make the directory, or set SPARK_LOCAL_DIRS")
            continue
        found = f"{free / GIB:.1f} GiB free at {place}"
        if free < DISK_PROBLEM:
            yield problem(subject, found, "make room: checkpoints and logs that cannot be written stop every pipeline")
        elif free < DISK_WARNING:
            yield warning(subject, found, "make room, or set retention.bytes on topics of the embedded broker")
        else:
            yield ok(subject, found)


def memory() -> Finding:
    available = psutil.virtual_memory().available
    found = f"{available / GIB:.1f} GiB available, {os.cpu_count()} core(s)"
    if available < MEMORY_WARNING:
        return warning("memory", found, "Spark's driver takes about 1 GiB: close something, or set spark.driver.memory")
    return ok("memory", found)

"""What `atonce doctor` checks on this machine: Java, Spark, ports, name, disk, memory."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from atonce.cli.parts.finding import Finding, note, ok, problem, warning
from atonce.local.java import OLDEST, PACKAGE, installed_java
from atonce.local.ports import free_port

SPARK = "4.3"
GIB = 1 << 30
DISK_WARNING, DISK_PROBLEM = 5 * GIB, GIB // 2
MEMORY_WARNING = 2 * GIB


def machine() -> Iterator[Finding]:
    yield java()
    yield spark()
    yield ports()
    yield name()
    yield from disks()
    yield memory()


def java() -> Finding:
    found = installed_java()
    if found is None:
        return problem(
            "Java",
            f"no Java {OLDEST} or newer in JAVA_HOME, on the PATH or under /usr/lib/jvm",
            f"install it (Debian: apt-get install {PACKAGE}) or set JAVA_HOME",
        )
    return ok("Java", f"version {found.version} at {found.command}")


def spark() -> Finding:
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return problem("Spark", "PySpark is not installed", f"pip install 'pyspark>={SPARK}'")
    if not version.startswith(f"{SPARK}."):
        return problem(
            "Spark", f"PySpark {version}", f"AtOnce is built for PySpark {SPARK}: pip install 'pyspark=={SPARK}.*'"
        )
    home = os.environ.get("SPARK_HOME")
    if home:
        return warning(
            "Spark",
            f"PySpark {version}, and SPARK_HOME points to {home}",
            "unset SPARK_HOME unless that is the same version: Spark starts from there, not from the pip package",
        )
    return ok("Spark", f"PySpark {version}")


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

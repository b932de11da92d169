"""Real stores for checkpoints: an S3 server over a folder (versitygw), and HDFS in one process."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from atonce.local.child import Child
from atonce.local.java import find_java
from atonce.local.ports import free_port
from atonce.local.servers.jars import classpath, jars
from atonce.local.servers.pins import bundle
from atonce.local.servers.spark_cluster import spark_home

ROOT = Path(__file__).resolve().parents[3]
START_S = 120.0


@dataclass(frozen=True)
class Store:
    address: str
    conf: dict[str, str]
    log: Path
    """What was asked of it, a line a request (S3)."""


@contextlib.contextmanager
def s3(folder: Path) -> Iterator[Store]:
    program = subprocess.run([ROOT / "scripts/versitygw"], check=True, capture_output=True, text=True).stdout.strip()
    (folder / "s3" / "checkpoints").mkdir(parents=True)
    port, log = free_port(), folder / "requests.log"
    account = {"ROOT_ACCESS_KEY": "atonce", "ROOT_SECRET_KEY": "atonce-secret"}
    words = [program, "--quiet", "--port", f"127.0.0.1:{port}", "--access-log", str(log), "posix", str(folder / "s3")]
    conf = {
        "spark.jars": ",".join(str(jar) for jar in jars(bundle("s3a-3.5.0"))),
        "spark.hadoop.fs.s3a.endpoint": f"http://127.0.0.1:{port}",
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": account["ROOT_ACCESS_KEY"],
        "spark.hadoop.fs.s3a.secret.key": account["ROOT_SECRET_KEY"],
    }
    with Child(words, env={**os.environ, **account}, log=folder / "s3.log"):
        _answers(port, folder / "s3.log")
        yield Store("s3a://checkpoints", conf, log)


@contextlib.contextmanager
def hdfs(folder: Path) -> Iterator[Store]:
    port, details = free_port(), folder / "details"
    path = f"{classpath(bundle('hdfs-3.5.0'))}:{spark_home()}/jars/*"
    words = [find_java().command, "-Xmx512m", f"-Dtest.build.data={folder / 'hdfs'}", "-cp", path]
    words += ["org.apache.hadoop.test.MiniDFSClusterManager", "-format", "-datanodes", "1", "-nnport", str(port)]
    with Child([*words, "-writeDetails", str(details)], cwd=folder, log=folder / "hdfs.log"):
        _until(details.exists, folder / "hdfs.log")
        yield Store(f"hdfs://127.0.0.1:{port}/checkpoints", {}, folder / "hdfs.log")


STORES = {"s3": s3, "hdfs": hdfs}


def _answers(port: int, log: Path) -> None:
    def answered() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        return False

    _until(answered, log)


def _until(ready: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while not ready():
        assert time.monotonic() < deadline, f"not ready within {START_S:g} s: {log.read_text()[-2000:]}"
        time.sleep(0.05)

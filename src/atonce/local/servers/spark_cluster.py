"""A Spark standalone cluster on this machine, from the pip package alone: one master, workers that can be killed.

with SparkCluster(workers=2) as cluster:
    session(master=cluster.master)
    cluster.kill_worker(0)      # its executors die with it
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

from atonce.errors import UsageError
from atonce.local.child import Child, ChildFailed
from atonce.local.java import find_java
from atonce.local.ports import free_ports
from atonce.local.scratch import scratch_directory
from atonce.local.servers.cluster_secret import PROPERTIES, VARIABLE, forget_secret, make_secret

READY_TIMEOUT_S = 90.0
DAEMON_HEAP = "384m"


class SparkCluster:
    """Master and workers; `master` is the URL for `--master`. Logs and work folders are scratch and go at the end."""

    def __init__(
        self,
        workers: int = 2,
        *,
        cores: int = 1,
        memory: str = "1g",
        listen: str = "127.0.0.1:0",
    ) -> None:
        if workers < 1:
            raise UsageError(f"a cluster needs at least one worker, got {workers}")
        host, colon, port = listen.rpartition(":")
        if not colon or not host or not port.isdigit():
            raise UsageError(f"listen must be HOST:PORT (port 0 picks a free one), got {listen!r}")
        self._host = host
        free = free_ports(2, host)
        self._port = int(port) or free[0]
        self._web_port = free[1]
        self._worker_count = workers
        self._cores, self._memory = cores, memory
        self.folder = scratch_directory("cluster")
        self._secret = ""
        self._master: Child | None = None
        self._workers: dict[int, Child] = {}

    @property
    def master(self) -> str:
        return f"spark://{self._host}:{self._port}"

    @property
    def properties(self) -> Path:
        """What a driver needs to be let in, for `spark-submit --properties-file`; sessions of ours find it alone."""
        return self.folder / PROPERTIES

    @property
    def workers(self) -> list[int]:
        """Numbers of the workers that were started and not killed by us."""
        return sorted(self._workers)

    @property
    def pids(self) -> tuple[int, ...]:
        """Roots of the process trees of master and workers; executors are among the workers' descendants."""
        children = [*([self._master] if self._master else []), *self._workers.values()]
        return tuple(child.leash_pid for child in children)

    def start(self) -> SparkCluster:
        try:
            self._secret = make_secret(self.master, self.folder)
            self._master = self._launch("master", "org.apache.spark.deploy.master.Master", self._master_arguments())
            self._wait("the master", self._state)
            for number in range(self._worker_count):
                self.start_worker(number)
            self.wait_for_workers(self._worker_count)
        except BaseException:
            self.close()
            raise
        return self

    def start_worker(self, number: int) -> None:
        """A worker under this number, also after the former one was killed."""
        if number in self._workers:
            raise UsageError(f"worker {number} is running already")
        arguments = ["--host", self._host, "--port", "0", "--webui-port", "0", "--cores", str(self._cores)]
        arguments += ["--memory", self._memory, "--work-dir", str(self.folder / f"work-{number}"), self.master]
        self._workers[number] = self._launch(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", arguments)

    def kill_worker(self, number: int) -> None:
        """SIGKILL the worker, its executors and their Python workers."""
        if number not in self._workers:
            raise UsageError(f"there is no worker {number}; running are {self.workers}")
        self._workers.pop(number).kill()

    def wait_for_workers(self, count: int) -> None:
        """Until the master counts this many workers alive."""
        self._wait(f"{count} worker(s)", lambda: (self._state() or {}).get("aliveworkers") == count)

    def ended(self) -> list[str]:
        """Names of the processes that ended by themselves."""
        names = [f"worker {number}" for number, child in self._workers.items() if not child.running]
        return ["master", *names] if self._master and not self._master.running else names

    def close(self) -> None:
        children = [*self._workers.values(), *([self._master] if self._master else [])]
        self._workers.clear()
        self._master = None
        try:
            for child in children:
                child.kill()  # nothing of a standalone cluster's own state outlives it
        finally:
            forget_secret(self.master)
            shutil.rmtree(self.folder, ignore_errors=True)

    def _master_arguments(self) -> list[str]:
        return ["--host", self._host, "--port", str(self._port), "--webui-port", str(self._web_port)]

    def _launch(self, name: str, main: str, arguments: list[str]) -> Child:
        home = spark_home()
        env = {
            **os.environ,
            "SPARK_HOME": str(home),
            "JAVA_HOME": find_java().home,
            "SPARK_LOCAL_IP": self._host,
            "SPARK_DAEMON_MEMORY": DAEMON_HEAP,
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_JAVA_OPTS": os.environ.get("SPARK_DAEMON_JAVA_OPTS", "") + " -Dspark.authenticate=true",
            VARIABLE: self._secret,
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [str(home / "bin" / "spark-class"), main, *arguments]
        return Child(command, env=env, log=self.folder / f"{name}.log", scratch=self.folder)

    def _state(self) -> dict[str, Any] | None:
        """What the master says about itself; None while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{self._host}:{self._web_port}/json/", timeout=5) as answer:
                state: dict[str, Any] = json.load(answer)
                return state
        except (OSError, urllib.error.URLError, ValueError):
            return None

    def _wait(self, what: str, reached: Any) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not reached():
            ended = self.ended()
            if ended or time.monotonic() > deadline:
                why = f"{', '.join(ended)} ended" if ended else f"it took longer than {READY_TIMEOUT_S:g} s"
                raise ChildFailed(f"Spark's cluster is not ready, waited for {what}: {why}.{self._last_words()}")
            time.sleep(0.1)

    def _last_words(self) -> str:
        return "".join(
            f"\n{log.name}:\n{log.read_text(errors='replace')[-800:].strip()}"
            for log in sorted(self.folder.glob("*.log"))
        )

    def __enter__(self) -> SparkCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def spark_home() -> Path:
    """The folder of the pip package, found without importing Spark."""
    package = importlib.util.find_spec("pyspark")
    if package is None or package.origin is None:
        raise UsageError("PySpark is not installed. Next: pip install 'atonce[spark]'")
    return Path(package.origin).parent

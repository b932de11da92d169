"""Apache Kafka itself on this machine: one node or three, KRaft combined mode, children that die with us.

with ApacheKafka(nodes=3) as kafka:
    use(kafka.servers)
    kafka.kill(2)       # SIGKILL, as a power switch would
    kafka.restart(2)
"""

from __future__ import annotations

import shutil
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from atonce.errors import UsageError
from atonce.local.child import Child, ChildFailed
from atonce.local.java import find_java
from atonce.local.ports import free_ports
from atonce.local.private import make_private_directory, write_private
from atonce.local.scratch import scratch_directory
from atonce.local.servers.answering import known_brokers
from atonce.local.servers.jars import classpath
from atonce.local.servers.pins import KAFKA_VERSION, Bundle
from atonce.local.servers.pins import kafka as kafka_bundle

READY_TIMEOUT_S = 120.0
HEAP_MB = 512
_PORT_TRIES = 3
_TAKEN = "Address already in use"


class ApacheKafka:
    """A running Apache Kafka. Data goes into `data`, or into a scratch directory that is removed at the end."""

    def __init__(
        self,
        nodes: int = 1,
        data: Path | str | None = None,
        listen: str = "127.0.0.1:0",
        settings: Mapping[str, str] | None = None,
        listeners: Mapping[str, int] | None = None,
        plugins: tuple[Bundle, ...] = (),
        version: str = KAFKA_VERSION,
        features: Mapping[str, int] | None = None,
    ) -> None:
        """`listeners`: further ones of node 1, security protocol → port; their secrets go into `settings`.

        `plugins`: jars beside Kafka's own, whose classes `settings` names. `version`: one that is pinned.
        `features`: the levels that new data is formatted with, e.g. {"transaction.version": 1}.
        """
        if nodes not in (1, 3):
            raise UsageError(f"nodes must be 1 or 3, got {nodes}: two nodes cannot outvote one that failed")
        self.nodes = list(range(1, nodes + 1))
        self._host, self._first_port = _parse_listen(listen)
        self.port: dict[int, int] = {}
        self._controller_port: dict[int, int] = {}
        self._pick_ports()
        self._settings = dict(settings or {})
        self._listeners = dict(listeners or {})
        self._features = dict(features or {})
        self._bundles = (kafka_bundle(version), *plugins)
        self._scratch = data is None
        self.data = scratch_directory("kafka") if data is None else Path(data).absolute()
        self._children: dict[int, Child] = {}
        self._classpath = ""
        self._java = ""

    @property
    def servers(self) -> str:
        """HOST:PORT[,HOST:PORT…] of all nodes, as `bootstrap.servers` wants it."""
        return ",".join(f"{self._host}:{self.port[node]}" for node in self.nodes)

    def pid(self, node: int = 1) -> int:
        return self._children[node].pid

    def log(self, node: int = 1) -> Path:
        """Where this node's warnings and errors go."""
        return self._folder(node) / "kafka.log"

    def start(self) -> ApacheKafka:
        """Fetches (first time), formats (first time), starts all nodes and returns when each knows all the others."""
        try:
            self._java = find_java().command
            self._classpath = classpath(*self._bundles)
            for left in reversed(range(_PORT_TRIES)):
                self._format()
                for node in self.nodes:
                    self._launch(node)
                try:
                    self.wait_until_ready()
                    break
                except ChildFailed:
                    if not left or not self._port_was_taken():
                        raise
                    self.kill()
                    self._pick_ports()
        except BaseException:
            self.close()
            raise
        return self

    def _pick_ports(self) -> None:
        ports, nodes = free_ports(2 * len(self.nodes), self._host), len(self.nodes)
        self._controller_port = dict(zip(self.nodes, ports[nodes:], strict=True))
        self.port = {node: self._first_port + node - 1 if self._first_port else ports[node - 1] for node in self.nodes}

    def _port_was_taken(self) -> bool:
        """A port that was free is another's by the time Kafka binds it, seconds later; ports that were given stay."""
        return not self._first_port and any(_TAKEN in self.log(node).read_text(errors="replace") for node in self.nodes)

    def kill(self, node: int | None = None) -> None:
        """SIGKILL one node, or all."""
        for each in self._running(node):
            self._children.pop(each).kill()

    def stop(self, node: int | None = None) -> None:
        """SIGTERM one node, or all: Kafka hands over leadership and writes its clean-shutdown mark."""
        for each in self._running(node):
            self._children.pop(each).stop(grace_s=20.0)

    def restart(self, node: int | None = None) -> None:
        """Starts what is down (one node, or all that are) on the same ports and data; returns when it answers."""
        for each in self.nodes if node is None else [node]:
            if each not in self._children:
                self._launch(each)
        self.wait_until_ready()

    def ended(self) -> list[int]:
        """Nodes that were started, were not stopped by us, and run no more."""
        return [node for node, child in self._children.items() if not child.running]

    def wait_until_ready(self) -> None:
        """Until each running node lists every running node as an unfenced broker."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        wanted = set(self._children)
        for node in wanted:
            while not wanted <= known_brokers(self._host, self.port[node]):
                child = self._children[node]
                if not child.running:
                    raise ChildFailed(f"Apache Kafka node {node} ended while starting.{self._last_words(node)}")
                if time.monotonic() > deadline:
                    raise ChildFailed(
                        f"Apache Kafka node {node} was not ready within {READY_TIMEOUT_S:g} s.{self._last_words(node)}"
                    )
                time.sleep(0.05)

    def close(self) -> None:
        """Ends all nodes; scratch data goes, the user's stays."""
        try:
            if self._scratch:
                self.kill()  # nobody reads this data again, so a clean shutdown would be wasted time
            else:
                self.stop()
        finally:
            if self._scratch:
                shutil.rmtree(self.data, ignore_errors=True)

    def _running(self, node: int | None) -> list[int]:
        if node is not None and node not in self.nodes:
            raise UsageError(f"there is no node {node}; nodes are {self.nodes}")
        return [each for each in self.nodes if each in self._children and node in (None, each)]

    def _folder(self, node: int) -> Path:
        return self.data / f"node-{node}"

    def _format(self) -> None:
        """Writes each node's settings, and formats its storage unless a former run did."""
        formerly = sorted(path.name for path in self.data.glob("node-*")) if self.data.exists() else []
        if formerly and formerly != [f"node-{node}" for node in self.nodes]:
            raise UsageError(
                f"{self.data} holds {len(formerly)} node(s), asked for {len(self.nodes)}: use another --data"
            )
        cluster_file = self.data / "cluster.id"
        cluster_id = cluster_file.read_text() if cluster_file.exists() else ""
        running = []
        for node in self.nodes:
            make_private_directory(self._folder(node), "server.properties")
            properties = self._folder(node) / "server.properties"  # listeners may have passwords there
            text = "".join(f"{key}={value}\n" for key, value in self._node_settings(node).items())
            write_private(properties, text.encode())
        if not cluster_id:
            # StorageTool wants Kafka's own form of a UUID; a leading '-' would read as an option.
            cluster_id = "A" + urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        for node in self.nodes:
            if not (self._folder(node) / "log" / "meta.properties").exists():
                command = [
                    *self._command(node, "kafka.tools.StorageTool"),
                    "format",
                    "--cluster-id",
                    cluster_id,
                    "--config",
                    str(self._folder(node) / "server.properties"),
                    *(word for name, level in self._features.items() for word in ("--feature", f"{name}={level}")),
                ]
                running.append(
                    subprocess.Popen(
                        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
                    )
                )
        for process in running:
            words, _ = process.communicate(timeout=READY_TIMEOUT_S)
            if process.returncode != 0:
                raise ChildFailed(f"Kafka's StorageTool could not format {self.data}: {words.decode()[-1000:]}")
        cluster_file.write_text(cluster_id)

    def _launch(self, node: int) -> None:
        properties = str(self._folder(node) / "server.properties")
        scratch = self.data if self._scratch else None
        command = [*self._command(node, "kafka.Kafka"), properties]
        self._children[node] = Child(command, log=self.log(node), scratch=scratch)

    def _command(self, node: int, main: str) -> list[str]:
        return [
            self._java,
            f"-Xmx{HEAP_MB}m",
            "-Djava.awt.headless=true",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-cp",
            self._classpath,
            main,
        ]

    def _node_settings(self, node: int) -> dict[str, str]:
        copies = min(3, len(self.nodes))
        in_sync = 2 if len(self.nodes) == 3 else 1
        more = self._listeners if node == 1 else {}
        voters = ",".join(f"{each}@{self._host}:{self._controller_port[each]}" for each in self.nodes)
        return {
            "process.roles": "broker,controller",
            "node.id": str(node),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": ",".join(
                ["PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT", *(f"{name}:{name}" for name in more)]
            ),
            "listeners": ",".join(
                [
                    f"PLAINTEXT://{self._host}:{self.port[node]}",
                    f"CONTROLLER://{self._host}:{self._controller_port[node]}",
                    *(f"{name}://{self._host}:{port}" for name, port in more.items()),
                ]
            ),
            "log.dirs": str(self._folder(node) / "log"),
            "default.replication.factor": str(copies),
            "min.insync.replicas": str(in_sync),
            "offsets.topic.replication.factor": str(copies),
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": str(copies),
            "transaction.state.log.min.isr": str(in_sync),
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": str(copies),
            "share.coordinator.state.topic.min.isr": str(in_sync),
            "group.initial.rebalance.delay.ms": "0",
            # A killed node may come back only when its former session is over: short, so that crash tests are.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "300",
            "auto.create.topics.enable": "false",
            **self._settings,
        }

    def _last_words(self, node: int) -> str:
        log = self.log(node)
        words = log.read_text(errors="replace")[-1500:].strip() if log.exists() else ""
        return f" Its last output:\n{words}" if words else ""

    def __enter__(self) -> ApacheKafka:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _parse_listen(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"listen must be HOST:PORT (port 0 picks free ones), got {listen!r}")
    return host, int(port)

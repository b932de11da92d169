"""The network between a process and the cluster: `client/net.py` and `client/wire.py` without sockets.

Every request is a step at which its process may die, and a fault may lose it, lose its answer, hold it back until
long after the client has given up, or let it arrive twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from atonce.client.errors import ConnectionLost
from atonce.client.profiles import profile_of
from atonce.errors import UnreachableError
from atonce.records.batch import read_header
from tests.simulation.pipeline.cluster import NODES, VirtualCluster
from tests.simulation.pipeline.fibers import SimulatedProcess, Turns

LATENCY_S = 0.002
NEWEST = 17


class VirtualNetwork:
    """All links of a world. `strike` is asked about every request: what happens to it."""

    def __init__(self, turns: Turns, cluster: VirtualCluster) -> None:
        self._turns = turns
        self.cluster = cluster
        self.requests = 0
        self.down: set[int] = set()
        """Nodes that nobody can reach."""
        self.cut_off: set[SimulatedProcess] = set()
        self.strike: Callable[[SimulatedProcess, str, Any], str] = lambda process, kind, request: ""

    def exchange(self, request: Any, node: int | None, timeout_ms: float) -> Any:
        """The answer; `ConnectionLost` when there is none in time."""
        turns = self._turns
        turns.step()
        self.requests += 1
        kind = type(request).__name__.removesuffix("Request")
        process = turns.current.process
        fault = self.strike(process, kind, request)
        target = node if node is not None else self._any()
        if fault == "lost" or target in self.down or target < 0 or process in self.cut_off:
            turns.pass_time(min(timeout_ms / 1000, 0.5))
            raise ConnectionLost(f"{kind} to node {target}: lost")
        turns.pass_time(LATENCY_S * turns.rng.random())
        if fault == "late":
            self._later(request, target)
            turns.pass_time(min(timeout_ms / 1000, 30.0))
            raise ConnectionLost(f"{kind} to node {target}: no answer in time")
        answer = self.cluster.answer(request, target)
        if fault == "twice" and not _unguarded(request):
            self._later(request, target)
        if fault == "empty" and kind == "Fetch":
            entry = answer.responses[0].partitions[0]
            entry.records, entry.aborted_transactions = b"", []
        turns.pass_time(LATENCY_S * turns.rng.random())
        if fault == "unanswered":
            turns.pass_time(min(timeout_ms / 1000, 0.5))
            raise ConnectionLost(f"{kind} to node {target}: the answer was lost")
        return answer

    def _later(self, request: Any, node: int) -> None:
        """It arrives when nobody waits for it any more."""
        self._turns.later(self._turns.rng.choice((0.01, 0.2, 1.0, 3.0)), lambda: self.cluster.answer(request, node))

    def _any(self) -> int:
        up = [node for node in NODES if node not in self.down]
        return up[int(self._turns.rng.random() * len(up))] if up else -1


def _unguarded(request: Any) -> bool:
    """A Produce that nobody can recognise: a network that doubles what it carries would double its records."""
    return type(request).__name__ == "ProduceRequest" and read_header(_records(request)).producer_id < 0


def _records(request: Any) -> bytes:
    found: bytes = request.topic_data[0].partition_data[0].records
    return found


class VirtualConnections:
    """`Connections` of one client."""

    def __init__(self, network: VirtualNetwork, servers: str, properties: Any, connect_timeout_ms: int) -> None:
        self._network, self._turns = network, network._turns
        self.servers = servers
        self.client_id = "virtual"
        self.broker_version = "4.3"
        self.profile = profile_of(servers, {})
        self._turns.step()
        process = self._turns.current.process
        if process in network.cut_off or len(network.down) == len(NODES):
            self._turns.pass_time(connect_timeout_ms / 1000)
            raise UnreachableError(f"no Kafka broker answers at {servers} within {connect_timeout_ms / 1000:g} s")

    def max_version(self, request_class: Any) -> int:
        return NEWEST

    def nodes(self) -> dict[int, tuple[str, int]]:
        return dict.fromkeys(NODES, ("virtual", 9092))

    def call(self, request: Any, node: int | None, timeout_ms: int) -> Any:
        return self._network.exchange(request, node, timeout_ms)

    def refresh(self) -> None:
        return None

    def open_socket(self, node: int, timeout_ms: int) -> tuple[Any, Any]:
        self._turns.step()
        if node in self._network.down or self._turns.current.process in self._network.cut_off:
            self._turns.pass_time(0.1)
            raise ConnectionLost(f"connecting to node {node} of {self.servers}: refused")
        return self._network, None

    def close(self) -> None:
        return None


class VirtualWire:
    """`Wire`: pipelined requests to one node. A request is carried out when it is sent."""

    def __init__(self, sock: VirtualNetwork, versions: Any, *, node: int, client_id: str) -> None:
        self.node = node
        self._network = sock
        self._waiting: deque[Any] = deque()
        self._closed = False

    @property
    def outstanding(self) -> int:
        return len(self._waiting)

    @property
    def reusable(self) -> bool:
        return not self._closed and not self._waiting

    throttled_s = 0.0

    def max_version(self, request_class: Any) -> int:
        return NEWEST

    def prepare(self, request: Any) -> Any:
        if request.API_VERSION is None:
            request.API_VERSION = 12
        return request

    def send(self, request: Any, splice: Any = None) -> None:
        if splice is not None:
            _, parts = splice
            request.topic_data[0].partition_data[0].records = b"".join(bytes(part) for part in parts[1:3])
        try:
            answer: Any = self._network.exchange(request, self.node, 30_000)
        except ConnectionLost as error:
            answer = error
        if request.expect_response():
            self._waiting.append(answer)

    def receive(self, timeout_ms: int) -> Any:
        self._network._turns.step()
        answer = self._waiting.popleft()
        if isinstance(answer, ConnectionLost):
            self.close()
            raise answer
        return answer

    def close(self) -> None:
        self._closed = True
        self._waiting.clear()

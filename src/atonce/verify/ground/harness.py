"""The broker of a run: one that verify started and may kill and damage, or the user's, which it spares."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from atonce.verify.faults.catalogue import Need

if TYPE_CHECKING:
    from atonce.broker.embedded import Broker


class Harness(Protocol):
    title: str
    """For reports."""
    servers: str
    ours: bool
    """Verify started it. One of the user's is used on scratch topics, and never stopped or damaged."""

    def needs_met(self) -> set[Need]: ...

    def kill(self, node: int | None = None) -> None: ...

    def restart(self, node: int | None = None) -> None: ...

    def pid(self, node: int | None = None) -> int: ...

    def data(self) -> Path: ...

    def close(self) -> None: ...


@runtime_checkable
class FreezesNodes(Protocol):
    """A cluster whose nodes can be made to stand still: to the others a frozen one is one that is cut off."""

    def freeze(self, node: int) -> None: ...

    def thaw(self, node: int) -> None: ...


@runtime_checkable
class Compacts(Protocol):
    """A broker that looks for something to compact so often that a run can wait for it."""

    compacts: bool


class External:
    title = "broker of yours"
    ours = False

    def __init__(self, servers: str) -> None:
        self.servers = servers

    def needs_met(self) -> set[Need]:
        return set()

    def kill(self, node: int | None = None) -> None:
        raise PermissionError("a broker that verify did not start is never killed")

    restart = kill

    def pid(self, node: int | None = None) -> int:
        raise PermissionError("a broker that verify did not start is left alone")

    def data(self) -> Path:
        raise PermissionError("the files of a broker that verify did not start are left alone")

    def close(self) -> None:
        return None


class Embedded:
    """Our own embedded broker in a scratch directory."""

    title = "embedded broker"
    ours = True

    def __init__(self, broker: Broker | None = None) -> None:
        from atonce.broker.embedded import Broker

        self.compacts = broker is None
        self._broker = (broker or Broker(settings={"log.cleaner.backoff.ms": 200})).__enter__()
        self.servers = self._broker.servers

    def needs_met(self) -> set[Need]:
        return {Need.OWN_BROKER, Need.EMBEDDED}

    def kill(self, node: int | None = None) -> None:
        self._broker.kill()

    def restart(self, node: int | None = None) -> None:
        self._broker.restart()

    def pid(self, node: int | None = None) -> int:
        return int(self._broker.pid)

    def data(self) -> Path:
        return Path(self._broker.data)

    def close(self) -> None:
        self._broker.__exit__(None, None, None)


class EmbeddedV1(Embedded):
    """With transaction protocol 1, as Kafka 3.x."""

    title = "embedded broker, transaction protocol 1"

    def __init__(self) -> None:
        from atonce.broker.embedded import Broker

        super().__init__(Broker(settings={"transaction.version": 1}))


class Apache:
    """Apache Kafka, one node or three, started by verify."""

    title = "Apache Kafka"
    ours = True

    def __init__(self, nodes: int = 1) -> None:
        from atonce.local.servers.kafka import ApacheKafka

        # Timed-out transactions are looked for every second instead of every ten, so that F19 and F26 end soon.
        self._kafka = ApacheKafka(
            nodes=nodes,
            settings={
                "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
                "group.min.session.timeout.ms": "1000",
            },
        )
        self._kafka.start()
        self.nodes = nodes
        self.servers: str = self._kafka.servers

    def needs_met(self) -> set[Need]:
        return {Need.OWN_BROKER, Need.THREE_NODES if self.nodes == 3 else Need.ONE_APACHE}

    def kill(self, node: int | None = None) -> None:
        self._kafka.kill(node)

    def restart(self, node: int | None = None) -> None:
        self._kafka.restart(node)

    def pid(self, node: int | None = None) -> int:
        return self._kafka.pid(node or 1)

    def freeze(self, node: int) -> None:
        os.kill(self._kafka.pid(node), signal.SIGSTOP)

    def thaw(self, node: int) -> None:
        os.kill(self._kafka.pid(node), signal.SIGCONT)

    def data(self) -> Path:
        return Path(self._kafka.data)

    def close(self) -> None:
        self._kafka.close()


class Held:
    """Closes a harness at the end of a `with`."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness

    def __enter__(self) -> Harness:
        return self.harness

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.harness.close()

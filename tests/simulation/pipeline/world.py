"""One world: a cluster, a network, a disk, and the drivers that run real pipelines in it. One seed decides it all."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.types import BinaryType, StructField, StructType

from atonce.client import cluster as client_cluster
from atonce.client.net import Connections
from atonce.client.wire import Wire
from atonce.connectors.kafka.read import accounts, stream
from atonce.connectors.kafka.sink import KafkaSink
from atonce.connectors.kafka.source import KafkaSource
from atonce.connectors.kafka.topic import Kafka
from atonce.connectors.kafka.write.spool import Spool
from atonce.coordinator.groups.offset_requests import OffsetToCommit
from atonce.delivery import progress
from atonce.delivery.engine import Placement
from atonce.delivery.events import Event, Step
from atonce.delivery.run import Job, Run
from atonce.guarantee import Guarantee
from atonce.log.results import AppendOrigin
from atonce.records.record import build_batch
from atonce.spark.arrow_job import ArrowJobs
from atonce.spark.channel import Door, knock
from atonce.spark.checkpoint.files import files_at
from tests.simulation.log.workload import read_all
from tests.simulation.pipeline.cluster import VirtualCluster
from tests.simulation.pipeline.disk import VirtualDisk
from tests.simulation.pipeline.fibers import Fiber, KilledFiber, SimulatedProcess, Turns
from tests.simulation.pipeline.network import VirtualConnections, VirtualNetwork, VirtualWire
from tests.simulation.pipeline.sockets import VirtualDoors
from tests.simulation.pipeline.spark_jobs import JobFaults, ModelArrowJobs, ModelFrame, ModelSession
from tests.simulation.pipeline.spark_query import ModelEngine
from tests.simulation.pipeline.virtual import installed, load_rooms, machine

SERVERS = "virtual:9092"
KEY_AND_VALUE = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])


class NoSpool:
    """`Spool`: blobs travel with the rows."""

    folder = None

    def __init__(self, spark: Any, *, repeatable: bool) -> None:
        return None

    def usable(self) -> bool:
        return False

    def nothing(self, *_: Any) -> None:
        return None

    keep = distrust = sweep = remove = nothing


class KeyAndValue:
    """`Planner`: the transform is a projection, and runs as rows; or one with state."""

    def __init__(self, state: Any = None) -> None:
        self._state = state

    def placed(self, session: Any, sink: Any, on_columns: bool) -> Placement:
        return Placement(why="the simulation asks for rows")

    def gives(self, session: Any) -> Any:
        return KEY_AND_VALUE

    def build(self, df: ModelFrame) -> ModelFrame:
        rows = df.map(_key_and_value, KEY_AND_VALUE)
        return rows if self._state is None else rows.hold_back(self._state)


def _key_and_value(batches: Iterator[Any]) -> Iterator[Any]:
    return (batch.select(["key", "value"]) for batch in batches)


class Stepping:
    """`Observer`: every event of a delivery is a step at which the process may die."""

    def __init__(self, world: World, driver: SimulatedDriver) -> None:
        self._world, self._driver = world, driver

    def on_event(self, event: Event) -> None:
        self._world.turns.step()
        self._world.told(self._driver, event)


@dataclass
class SimulatedDriver:
    """One process that runs one pipeline, from its start to whatever ends it."""

    process: SimulatedProcess
    pipeline: SimulatedPipeline
    fiber: Fiber | None = None
    run: Run | None = None
    failure: BaseException | None = None
    done: bool = False
    claimed: bool = False
    busy: bool = False
    """Between a batch's plan and its delivery."""
    moved: bool = False
    """Its ledger was moved while it was idle: the next batch must not go on top of that."""
    overwrote: str = ""

    @property
    def over(self) -> bool:
        return self.fiber is None or self.fiber.ended or self.process.dead


@dataclass
class SimulatedPipeline:
    name: str
    level: Guarantee
    source: Any
    sink: Any
    inputs: str
    output: str
    settings: dict[str, str] = field(default_factory=dict)
    sink_kind: str = "kafka"
    stateful: bool = False

    @property
    def checkpoint(self) -> str:
        return f"/checkpoints/{self.name}"


class World:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.turns = Turns(random.Random(self.rng.getrandbits(64)))
        self.cluster = VirtualCluster(self.turns, random.Random(self.rng.getrandbits(64)))
        self.network = VirtualNetwork(self.turns, self.cluster)
        self.disk = VirtualDisk(self.turns)
        self.doors = VirtualDoors(self.turns)
        self.database: Any = None
        self.jobs = JobFaults()
        self.drivers: list[SimulatedDriver] = []
        self.published: dict[str, list[list[tuple[int, bytes]]]] = {}
        """Input topic → partition → (offset, value): every value is unique."""
        self.keys: dict[bytes, bytes | None] = {}
        self.removed: set[bytes] = set()
        """Values of logs that are gone."""
        self._values = 0
        self.batches = 0
        self.history: list[tuple[Any, ...]] = []
        self.trace: list[str] = []
        self.tracing = False
        self._pids = 100
        self._small = (progress.SMALL_BATCH_ROWS, stream.SMALL_BATCH_ROWS)
        self._ids = random.Random(self.rng.getrandbits(64))

    @contextlib.contextmanager
    def alive(self) -> Iterator[World]:
        load_rooms()
        network = self.network
        stand_ins = [
            *machine(self.turns, self.rng),
            (Connections, lambda *given: VirtualConnections(network, *given)),
            (Wire, VirtualWire),
            (Door, self.doors.door),
            (knock, self.doors.knock),
            (files_at, self.disk.at),
            (ArrowJobs, ModelArrowJobs),
            (Spool, NoSpool),
        ]
        client_cluster._shared.clear()
        with installed(stand_ins), task_contexts(self.turns), locks_of_modules(self.turns):
            try:
                yield self
            finally:
                self.turns.end_world()
                progress.SMALL_BATCH_ROWS, stream.SMALL_BATCH_ROWS = self._small
                client_cluster._shared.clear()

    # Input

    def create_input(self, name: str, partitions: int) -> None:
        self.cluster.create(name, partitions)
        self.published[name] = [[] for _ in range(partitions)]

    def publish(self, name: str, partition: int, count: int) -> None:
        log = self.cluster.topics[name].partitions[partition]
        told = self.published[name][partition]
        records = []
        for number in range(count):
            self._values += 1
            key = f"k{partition}-{number % 3}".encode() if number % 4 != 3 else None
            value = f"{partition}/{self._values}".encode()
            told.append((log.log.log_end_offset + number, value))
            self.keys[value] = key
            records.append((key, value))
        if records:
            batch = build_batch(records, timestamp_ms=self.cluster.clock_ms())
            log.log.append(batch, leader_epoch=log.leader_epoch)
            log.log.flush()

    def publish_aborted(self, name: str, partition: int, count: int) -> None:
        """Records of a transaction that was aborted: nobody may ever see them."""
        place = self.cluster.topics[name].partitions[partition]
        self._values += 1
        producer, values = (
            1_000_000 + self._values,
            [(b"a", f"aborted/{self._values}/{n}".encode()) for n in range(count)],
        )
        batch = build_batch(
            values,
            timestamp_ms=self.cluster.clock_ms(),
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        guard = place.log.start_verification(producer, 0, 0, supports_epoch_bump=True)
        place.log.append(batch, leader_epoch=place.leader_epoch, guard=guard)
        place.log.append_marker(producer, 0, False, 0, leader_epoch=place.leader_epoch)
        place.log.flush()

    def small_rows(self, rows: int) -> None:
        """Batches of the simulation are small: what counts as one is moved instead."""
        self._small = (progress.SMALL_BATCH_ROWS, stream.SMALL_BATCH_ROWS)
        progress.SMALL_BATCH_ROWS = stream.SMALL_BATCH_ROWS = rows

    def add_input_partition(self, name: str) -> None:
        self.cluster.add_partition(name)
        self.published[name].append([])

    def recreate_input(self, name: str, count: int) -> None:
        """The topic is deleted, made again, and filled: its old offsets mean other records now."""
        partitions = len(self.published[name])
        self.removed |= {value for part in self.published[name] for _, value in part}
        self.cluster.delete(name)
        self.create_input(name, partitions)
        for partition in range(partitions):
            self.publish(name, partition, count)

    def cut_input(self, name: str, partition: int, records: int, refill: int) -> None:
        """An unclean election: the last records are gone, others are written in their place, in a new epoch."""
        place = self.cluster.topics[name].partitions[partition]
        told = self.published[name][partition]
        kept, fresh = told[: max(0, len(told) - records)], self.cluster.new_log(name)
        end = kept[-1][0] + 1 if kept else 0
        for header, batch in read_all(place.log):
            if header.last_offset >= end:
                break
            if header.is_control:  # of input that was aborted
                fresh.append_marker(
                    header.producer_id, header.producer_epoch, False, 0, leader_epoch=header.leader_epoch
                )
            else:
                fresh.append(batch, leader_epoch=header.leader_epoch, origin=AppendOrigin.COORDINATOR)
        fresh.flush()
        self.published[name][partition] = [each for each in told if each[0] < fresh.log_end_offset]
        self.removed |= {value for offset, value in told if offset >= fresh.log_end_offset}
        place.log, place.leader_epoch = fresh, place.leader_epoch + 1
        self.publish(name, partition, refill)

    def move_group(self, pipeline: SimulatedPipeline, by: int) -> bool:
        """Whether there was anything to move."""
        desk = self.cluster.desk
        held = desk.groups.fetch_offsets(pipeline.name, None, require_stable=False).answer[1]
        moved = [
            OffsetToCommit(place, max(0, each.committed.offset + by), -1, "")
            for place, each in held.items()
            if place.topic == pipeline.inputs
        ]
        if moved:
            desk.group(desk.groups.commit_offsets(self.cluster.clock_ms(), pipeline.name, "", None, -1, moved))
        return bool(moved)

    # What is seen from outside

    def ledger(self, pipeline: SimulatedPipeline) -> dict[int, int | None]:
        """Input partition → position, as anybody can read it."""
        if pipeline.sink_kind == "sql":
            return self.database.ledger(pipeline.name)
        held = self.cluster.desk.groups.fetch_offsets(pipeline.name, None, require_stable=False).answer[1]
        return {place.partition: each.committed.offset for place, each in held.items()}

    def held_back(self, pipeline: SimulatedPipeline) -> set[bytes]:
        """What the newest state has not let out yet."""
        files = self.disk.roots.get(pipeline.checkpoint, {})
        done = [int(name.removeprefix("commits/")) for name in files if name.startswith("commits/")]
        text = files[f"state/0/0/{max(done) + 1}.delta"] if done else "[]"
        return {value.encode() for _, value in json.loads(text)}

    def visible(self, pipeline: SimulatedPipeline) -> list[list[bytes]]:
        if pipeline.sink_kind == "sql":
            return self.database.rows(pipeline.name)
        return [[record.value for record in part] for part in self.cluster.committed(pipeline.output)]

    # Drivers

    def pipeline(self, name: str, level: Guarantee, inputs: str, output: str, per_batch: int) -> SimulatedPipeline:
        options = {"maxOffsetsPerTrigger": str(per_batch)}
        source = KafkaSource(Kafka(inputs, servers=SERVERS, options=options))
        return SimulatedPipeline(name, level, source, KafkaSink(Kafka(output, servers=SERVERS)), inputs, output)

    def start(self, pipeline: SimulatedPipeline, *, drain: bool = False) -> SimulatedDriver:
        self._pids += 1
        process = SimulatedProcess(f"{pipeline.name}#{self._pids}", self._pids)
        driver = SimulatedDriver(process, pipeline)
        self.drivers.append(driver)
        driver.fiber = self.turns.spawn(process, lambda: self._live(driver, drain), "driver")
        self.note(f"start {process.name}{' to drain' if drain else ''}")
        return driver

    def _live(self, driver: SimulatedDriver, drain: bool) -> None:
        pipeline = driver.pipeline
        session = ModelSession(self.turns, driver.process, self.jobs, pipeline.settings)
        engine = ModelEngine(session, self.disk.at, self.remember, lambda: f"{self._ids.getrandbits(64):016x}")
        job = Job(
            name=pipeline.name,
            guarantee=pipeline.level,
            source=pipeline.source,
            sink=pipeline.sink,
            planner=KeyAndValue(self.disk.at(pipeline.checkpoint, session) if pipeline.stateful else None),
            checkpoint=pipeline.checkpoint,
            trigger={"availableNow": True} if drain else {},
            observer=Stepping(self, driver),
            say=lambda line: self.note(f"{driver.process.name} says: {line[:300]}"),
        )
        try:
            driver.run = run = Run(job, engine)
            try:
                run.start()
                run.wait()
                driver.done = True
            finally:
                run.close()
        except Exception as error:
            driver.failure = error
            self.note(f"{driver.process.name} ends: {type(error).__name__}: {str(error)[:300]}")

    def remember(self, entry: tuple[Any, ...]) -> None:
        self.history.append(entry)
        self.batches += 1

    def told(self, driver: SimulatedDriver, event: Event) -> None:
        if event.step in (Step.CLAIMED, Step.PLANNED, Step.DELIVERED):
            driver.claimed, driver.busy = True, event.step is Step.PLANNED
            if event.step is Step.CLAIMED:
                driver.moved = False  # it has read the ledger anew
            elif driver.moved and event.step is Step.DELIVERED:
                driver.overwrote = f"{driver.process.name} delivered batch {event.batch_id} on top of it"
        if self.tracing:
            self.note(f"{driver.process.name} {event.step.value} {event.batch_id} {event.details()}")

    def note(self, line: str) -> None:
        if self.tracing:
            self.trace.append(f"{self.turns.now:10.3f} {line}")

    # The conductor's own time

    def let_pass(self, seconds: float) -> None:
        self.turns.pass_time(seconds)

    def until(self, ready: Callable[[], bool], seconds: float) -> bool:
        return self.turns.wait(ready, seconds)


@contextlib.contextmanager
def task_contexts(turns: Turns) -> Iterator[None]:
    """`pyspark.TaskContext` is what this fiber's task sees; outside of tasks there is none."""
    import pyspark

    class ContextOfFiber:
        @staticmethod
        def get() -> Any:
            return turns.current.context

    real, pyspark.TaskContext = pyspark.TaskContext, ContextOfFiber
    try:
        yield
    finally:
        pyspark.TaskContext = real


@contextlib.contextmanager
def locks_of_modules(turns: Turns) -> Iterator[None]:
    """What a module makes when it is loaded is shared by all processes here; on a machine each has its own."""
    from tests.simulation.pipeline.virtual import VirtualLock

    kept = (client_cluster._shared_lock, stream._registering, accounts._line)
    client_cluster._shared_lock, stream._registering = VirtualLock(turns), VirtualLock(turns)
    accounts._line = LinePerProcess(turns, type(accounts._line))
    try:
        yield
    finally:
        client_cluster._shared_lock, stream._registering, accounts._line = kept


class LinePerProcess:
    """The line on which a worker tells its driver what it read: one for the workers of each driver."""

    def __init__(self, turns: Turns, line: Any) -> None:
        self._turns, self._line = turns, line
        self._lines: dict[int, Any] = {}

    def tell(self, address: str, secret: str, text: str) -> None:
        pid = self._turns.current.process.pid
        if pid not in self._lines:
            self._lines[pid] = self._line()
        self._lines[pid].tell(address, secret, text)


__all__ = ["KilledFiber", "SimulatedDriver", "SimulatedPipeline", "World"]

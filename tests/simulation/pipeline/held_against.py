"""The model of Spark held against the real one: the same script of at most six steps, and what each batch was.

`python -m tests.simulation.pipeline.held_against FIRST COUNT` plays scripts in both and prints what differs. Of every
call of a batch are kept: its number, where it began and ended, the attempt of its task, its rows, its state's version.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

MOST_STEPS = 6
SEEN = pa.schema([("attempt", pa.int32()), ("rows", pa.int64())])


@dataclass(frozen=True)
class SparkScript:
    seed: int
    stateful: bool
    per_trigger: int
    steps: tuple[tuple[Any, ...], ...]


def spark_script(seed: int) -> SparkScript:
    rng = random.Random(f"spark {seed}")
    steps: list[tuple[Any, ...]] = [
        ("publish", rng.randrange(2), rng.randint(1, 9)),
        ("run", rng.choice((0, 0, 2)), False),
    ]
    kinds = ("publish", "run", "run", "run", "forget commit", "checkpoint back", "checkpoint lost")
    while len(steps) < MOST_STEPS:
        kind = rng.choice(kinds)
        if kind == "publish":
            steps.append((kind, rng.randrange(2), rng.randint(1, 9)))
        elif kind == "run":
            # On which call the batch fails after its rows were read (0: never), and whether its task fails once.
            steps.append((kind, rng.choice((0, 0, 1, 2)), rng.random() < 0.3))
        else:
            steps.append((kind, rng.randint(1, 2)) if kind == "checkpoint back" else (kind,))
    steps[-1] = ("run", 0, False)
    return SparkScript(seed, rng.random() < 0.5, rng.choice((3, 5, 100)), tuple(steps))


class BatchFails(Exception):
    """The user's code fails: the batch was planned and is not committed."""


def seen_by_task(flaky: bool) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Runs in the one task of a batch, on both sides."""

    def count(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow
        from pyspark import TaskContext

        attempt = TaskContext.get().attemptNumber()
        rows = sum(batch.num_rows for batch in batches)
        if flaky and attempt == 0:
            raise ValueError("the first attempt fails")
        arrays = [pyarrow.array([attempt], pyarrow.int32()), pyarrow.array([rows], pyarrow.int64())]
        yield pyarrow.RecordBatch.from_arrays(arrays, names=["attempt", "rows"])

    return count


class Recorder:
    """What `foreachBatch` is given, on both sides."""

    def __init__(self, history: list[Any], files: Any, fails_on: int, collect: Callable[[Any], Any]) -> None:
        self._history, self._files = history, files
        self._fails_on, self._collect = fails_on, collect
        self._calls = 0

    def __call__(self, df: Any, batch: int) -> None:
        self._calls += 1
        found = self._collect(df)
        ends = [self._end(number) for number in (batch - 1, batch)]
        # Named by its version, whatever the state store: 3.delta, 3.changelog, 3_….zip.
        versions = {re.split(r"[._]", name)[0] for name in self._files.names("state/0/0")}
        version = batch + 1 if str(batch + 1) in versions else 0
        self._history.append([batch, *ends, found[0], found[1], version])
        if self._calls == self._fails_on:
            raise BatchFails(f"call {self._calls} of this run")

    def _end(self, number: int) -> Any:
        """Without the topic's name, which is another one on each side."""
        text = self._files.read(f"offsets/{number}") if number >= 0 else None
        return next(iter(json.loads(text.splitlines()[2]).values())) if text is not None else None


def damage(files: Any, step: tuple[Any, ...]) -> None:
    """What happens to a checkpoint while nobody uses it; the state's own files stay, as a backup may have them."""
    numbers = sorted(int(name) for name in files.names("offsets") if name.isdigit())
    commits = sorted(int(name) for name in files.names("commits") if name.isdigit())
    gone = [f"commits/{commits[-1]}"] if step[0] == "forget commit" and commits else []
    if step[0] == "checkpoint back":
        gone = [f"{log}/{number}" for number in numbers[-step[1] :] for log in ("offsets", "commits")]
    for name in gone:
        files.remove(name)
        log, _, number = name.partition("/")
        files.remove(f"{log}/.{number}.crc")  # of Hadoop's local file system: left behind, it stands for the file


# The model


def in_the_model(script: SparkScript) -> list[Any]:
    from tests.simulation.pipeline.fibers import SimulatedProcess
    from tests.simulation.pipeline.spark_jobs import JobFaults, ModelSession
    from tests.simulation.pipeline.spark_query import STATE_LEFT, ModelQuery
    from tests.simulation.pipeline.world import SERVERS, World

    world, history = World(script.seed), []
    root, pids = "/checkpoints/held", itertools.count(1)
    with world.alive():
        world.create_input("t", 2)
        files = world.disk.at(root, None)

        def run(fails_on: int, flaky: bool) -> None:
            from atonce.connectors.kafka.read.stream import register

            process = world.turns.current.process
            session = ModelSession(world.turns, process, JobFaults(), {"spark.master": "local[2,4]"})
            session.task_tries = 4
            register(session)
            reader = session.readStream.format("atonce").option("kafka.bootstrap.servers", SERVERS)
            reader = reader.option("subscribe", "t").option("startingOffsets", "earliest")
            frame = reader.option("maxOffsetsPerTrigger", script.per_trigger).load()
            if script.stateful:
                frame = frame.drop_duplicates("value", files)

            def collect(df: Any) -> Any:
                return tuple(df.coalesce(1).map(seen_by_task(flaky)).collect()[0].values())

            recorder = Recorder(history, files, fails_on, collect)
            query = ModelQuery(frame, files, {"availableNow": True}, recorder, lambda entry: None, lambda: "id")
            while query.is_active():
                query.wait(0.1)
            if STATE_LEFT in str(query.failure()):
                history.append(STATE_LEFT)

        for step in script.steps:
            if step[0] == "publish":
                world.publish("t", step[1], step[2])
            elif step[0] == "run":
                process = SimulatedProcess("driver", next(pids))
                fiber = world.turns.spawn(process, lambda step=step: run(*step[1:]), "driver")
                world.until(lambda fiber=fiber: fiber.ended, 3_600)
                assert fiber.error is None, fiber.error
            elif step[0] == "checkpoint lost":
                world.disk.roots.pop(root, None)
            else:
                damage(files, step)
    return history


# The real one


class RealSpark:
    def __init__(self) -> None:
        from atonce.broker.embedded import Broker
        from atonce.spark.session import session

        self._broker = Broker()
        self._broker.__enter__()
        self.servers = self._broker.servers
        settings = {"spark.sql.shuffle.partitions": "1", "spark.ui.enabled": "false"}
        self.spark = session("local[2,4]", settings)
        self._topics = itertools.count()

    def close(self) -> None:
        self.spark.stop()
        self._broker.__exit__(None, None, None)

    def play(self, script: SparkScript) -> list[Any]:
        from atonce.client.cluster import Cluster
        from atonce.connectors.kafka.topics import create_topic
        from atonce.spark.checkpoint.files import LocalFiles

        topic = f"held-{script.seed}-{next(self._topics)}"
        folder = Path(tempfile.mkdtemp(prefix="held-"))
        files, history, count = LocalFiles(folder / "checkpoint"), [], itertools.count()
        try:
            with Cluster(self.servers) as cluster:
                create_topic(cluster, topic, 2)
            for step in script.steps:
                if step[0] == "publish":
                    self._publish(topic, step[1], [f"v{next(count)}" for _ in range(step[2])])
                elif step[0] == "run":
                    self._run(script, topic, files, history, *step[1:])
                elif step[0] == "checkpoint lost":
                    shutil.rmtree(files.root, ignore_errors=True)
                else:
                    damage(files, step)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return history

    def _publish(self, topic: str, partition: int, values: list[str]) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.servers})
        for value in values:
            producer.produce(topic, value.encode(), partition=partition)
        producer.flush(30)

    def _run(self, script: SparkScript, topic: str, files: Any, history: list[Any], fails_on: int, flaky: bool) -> None:
        from atonce.spark.arrow_job import map_in_arrow
        from tests.simulation.pipeline.spark_query import STATE_LEFT

        reader = self.spark.readStream.format("atonce").option("kafka.bootstrap.servers", self.servers)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        df = reader.option("maxOffsetsPerTrigger", script.per_trigger).load()
        if script.stateful:
            df = df.dropDuplicates(["value"])

        def collect(found: Any) -> Any:
            rows = map_in_arrow(found.coalesce(1), seen_by_task(flaky), "attempt int, rows bigint").collect()
            return tuple(rows[0])

        recorder = Recorder(history, files, fails_on, collect)
        writer = df.writeStream.foreachBatch(lambda found, batch: recorder(found, batch))
        query = writer.option("checkpointLocation", str(files.root)).trigger(availableNow=True).start()
        try:
            query.awaitTermination(120)
        except Exception as error:
            if STATE_LEFT in str(error):
                history.append(STATE_LEFT)
            elif "BatchFails" not in str(error):
                raise
        finally:
            query.stop()


def main(first: int, count: int) -> int:
    import logging

    logging.disable(logging.ERROR)
    real, different = RealSpark(), 0
    try:
        for seed in range(first, first + count):
            script = spark_script(seed)
            told, model = real.play(script), in_the_model(script)
            same = json.dumps(told, sort_keys=True) == json.dumps(model, sort_keys=True)
            different += not same
            if not same:
                print(json.dumps({"seed": seed, "script": script.steps, "spark": told, "model": model}), flush=True)
    finally:
        real.close()
    print(json.dumps({"scripts": count, "different": different}), flush=True)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))

"""A small model of Spark, first half: sessions, plans of columns, and jobs: stages, tasks, retries, speculation.

What it keeps of the real one: a task is tried again when it fails, up to a limit, and then its job fails with the text
of the last error; whatever still runs of a job that failed or was cancelled goes on for up to three seconds; a copy of
a slow task may run beside it, and the first to finish counts; a stage may be run again, and its tasks then begin with
attempt 0 again; a property of the job is what its tasks see of the driver.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from tests.simulation.pipeline.fibers import Fiber, KilledFiber, SimulatedProcess, Turns

LATE_S = 3.0
"""A task may go on for so long after its job is over."""

ArrowStep = Callable[[Iterator[Any]], Iterator[Any]]


class ModelJobError(Exception):
    """A job failed; its text is what Spark's would hold."""


@dataclass
class TaskView:
    """What a task sees as its TaskContext."""

    partition: int
    attempt: int
    task_id: int
    properties: dict[str, str | None]

    def partitionId(self) -> int:
        return self.partition

    def attemptNumber(self) -> int:
        return self.attempt

    def taskAttemptId(self) -> int:
        return self.task_id

    def getLocalProperty(self, name: str) -> str | None:
        return self.properties.get(name)


class JobFaults:
    """What befalls the tasks of this world; a scenario fills it in."""

    def __init__(self) -> None:
        self.lose_task: Callable[[str, int, int], float] = lambda stage, partition, attempt: -1.0
        """Seconds after which the worker of this attempt is lost; below 0: it is not."""
        self.copy_task: Callable[[str, int], bool] = lambda stage, partition: False
        self.rerun_stage: Callable[[str], bool] = lambda stage: False


class ModelContext:
    """`spark.sparkContext` of one driver."""

    def __init__(self, session: ModelSession) -> None:
        self._session = session
        self.master = session.settings["spark.master"]
        self.defaultParallelism = 2
        self._jsc = SimpleNamespace(sc=lambda: session)

    def setLocalProperty(self, name: str, value: str | None) -> None:
        self._session.turns.current.properties[name] = value

    def getLocalProperty(self, name: str) -> str | None:
        return self._session.turns.current.properties.get(name)

    def addJobTag(self, tag: str) -> None:
        self._session.turns.current.tags.append(tag)

    def removeJobTag(self, tag: str) -> None:
        self._session.turns.current.tags.remove(tag)

    def getConf(self) -> dict[str, str]:
        return self._session.settings

    def cancelJobsWithTag(self, tag: str) -> None:
        for job in self._session.jobs:
            if tag in job.tags:
                job.cancelled = True


class ModelSession:
    """A Spark session of one driver process, and the workers that its tasks run in."""

    def __init__(self, turns: Turns, process: SimulatedProcess, faults: JobFaults, settings: dict[str, str]) -> None:
        self.turns = turns
        self.process = process
        self.faults = faults
        self.settings = {"spark.master": "local[2]", "spark.stage.maxConsecutiveAttempts": "1", **settings}
        self.conf = self.settings
        self.sparkContext = ModelContext(self)
        self.jobs: list[ModelJob] = []
        self.task_tries = 1 if self.settings["spark.master"].startswith("local") else 4
        self.task_count = 0
        self.formats: dict[str, Any] = {}
        self.dataSource = SimpleNamespace(register=lambda kind: self.formats.__setitem__(kind.name(), kind))

    @property
    def readStream(self) -> ModelReader:
        return ModelReader(self)

    def worker(self) -> SimulatedProcess:
        """A Python worker of its own for a task; it ends with its driver, a moment later."""
        made = SimulatedProcess(f"{self.process.name}-task", self.process.pid + 1_000)

        def orphaned() -> None:
            made.die_at = min(made.die_at, self.turns.now + LATE_S * self.turns.rng.random())

        self.process.on_death.append(orphaned)
        return made

    # As Spark's own scheduler tells of its stages

    def listenerBus(self) -> Any:
        return SimpleNamespace(waitUntilEmpty=lambda: None)

    def statusTracker(self) -> ModelTracker:
        return ModelTracker(self)


class ModelTracker:
    def __init__(self, session: ModelSession) -> None:
        self._session = session

    def getJobIdsForTag(self, tag: str) -> list[int]:
        return [number for number, job in enumerate(self._session.jobs) if tag in job.tags]

    def getJobInfo(self, number: int) -> Any:
        stages = [(number, each) for each in range(len(self._session.jobs[number].stage_attempts))]
        return _option(SimpleNamespace(stageIds=lambda: stages))

    def getStageInfo(self, stage: tuple[int, int]) -> Any:
        attempts = self._session.jobs[stage[0]].stage_attempts[stage[1]]
        return _option(SimpleNamespace(currentAttemptId=lambda: attempts))


def _option(value: Any) -> Any:
    return SimpleNamespace(isEmpty=lambda: False, get=lambda: value)


class ModelReader:
    """`spark.readStream`: gathers options, then asks the real data source."""

    def __init__(self, session: ModelSession) -> None:
        self._session = session
        self._format = ""
        self._options: dict[str, str] = {}

    def format(self, name: str) -> ModelReader:
        self._format = name
        return self

    def option(self, name: str, value: Any) -> ModelReader:
        self._options[name] = str(value)
        return self

    def load(self) -> ModelFrame:
        source = self._session.formats[self._format](self._options)
        return ModelFrame(self._session, source.streamReader(None))


@dataclass
class ModelFrame:
    """A plan: what the source gives, through functions on columns, with at most one shuffle."""

    sparkSession: ModelSession
    reader: Any
    steps: tuple[Any, ...] = ()
    range: tuple[Any, Any] | None = None
    schema: Any = None
    state: Any = None

    def _with(self, step: Any, **changes: Any) -> ModelFrame:
        kept = {"range": self.range, "schema": self.schema, "state": self.state, **changes}
        return ModelFrame(self.sparkSession, self.reader, (*self.steps, step), **kept)

    def map(self, function: ArrowStep, schema: Any = None) -> ModelFrame:
        return self._with(function, schema=schema or self.schema)

    def coalesce(self, count: int) -> ModelFrame:
        return self._with("coalesce")

    def repartitionById(self, count: int, column: str) -> ModelFrame:
        return self._with(("shuffle", count, column))

    def select(self, *names: str) -> ModelFrame:
        wanted = [name.strip("`") for name in names]
        return self.map(lambda batches: (batch.select(wanted) for batch in batches))

    def drop_duplicates(self, column: str, files: Any) -> ModelFrame:
        """With state: batch N begins with version N of it and leaves version N + 1."""
        return self._with(("state", _new_ones, column), state=files)

    def hold_back(self, files: Any) -> ModelFrame:
        """With state, as windows that close later: the second half of a batch comes out with the next."""
        return self._with(("state", _held_back, "value"), state=files)

    @property
    def columns(self) -> list[str]:
        return [each.name for each in self.schema.fields]

    def of_batch(self, number: int, start: Any, end: Any) -> ModelFrame:
        steps = tuple(_with_state(number, *each[1:], self.state) if _is_state(each) else each for each in self.steps)
        return ModelFrame(self.sparkSession, self.reader, steps, (start, end), self.schema, self.state)

    def collect(self) -> list[dict[str, Any]]:
        found = ModelJob(self).run()
        return [row for batch in found for row in batch.to_pylist()]


def _is_state(step: Any) -> bool:
    return isinstance(step, tuple) and step[0] == "state"


def _with_state(number: int, work: Any, column: str, files: Any) -> ArrowStep:
    def step(batches: Iterator[Any]) -> Iterator[Any]:
        text = files.read(f"state/0/0/{number}.delta") if number else "[]"
        if text is None:
            raise ModelJobError(f"the state store has no version {number}")
        found, state = work(list(batches), column, json.loads(text))
        yield from found
        files.write(f"state/0/0/{number + 1}.delta", json.dumps(state))

    return step


def _new_ones(batches: list[Any], column: str, state: list[Any]) -> tuple[list[Any], list[Any]]:
    """Rows whose value was not seen before."""
    seen, found = set(state), []
    for batch in batches:
        values = [None if each is None else each.decode() for each in batch.column(column).to_pylist()]
        wanted = []
        for at, value in enumerate(values):
            if value not in seen:
                seen.add(value)
                wanted.append(at)
        found.append(batch.take(pa.array(wanted, pa.int64())))
    return found, sorted(seen)


def _in_input_order(row: tuple[bytes | None, bytes]) -> tuple[int, ...]:
    return tuple(int(part) for part in row[1].split(b"/") if part.isdigit())


def _held_back(batches: list[Any], column: str, state: list[Any]) -> tuple[list[Any], list[Any]]:
    rows = [(None if key is None else key.encode(), value.encode()) for key, value in state]
    fresh: list[Any] = []
    for batch in batches:
        fresh += zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
    rows += sorted(fresh, key=_in_input_order)  # whichever order a stage that ran again gives them in
    open_from = len(rows) - max(1, len(fresh) // 2)
    given, kept = rows[: max(0, open_from)], rows[max(0, open_from) :]
    arrays = [pa.array([row[at] for row in given], pa.binary()) for at in (0, 1)]
    state = [(None if key is None else key.decode(), value.decode()) for key, value in kept]
    return [pa.RecordBatch.from_arrays(arrays, names=["key", "value"])], state


class ModelArrowJobs:
    """`ArrowJobs`: functions over columns, built once on the real one."""

    def map(self, df: ModelFrame, function: ArrowStep, schema: Any) -> ModelFrame:
        return df.map(function)


@dataclass
class TaskTry:
    """One attempt of one task."""

    partition: int
    attempt: int
    fiber: Fiber
    process: SimulatedProcess
    output: list[Any] = field(default_factory=list)


class ModelJob:
    def __init__(self, frame: ModelFrame) -> None:
        self._frame = frame
        self._session = frame.sparkSession
        self._turns = self._session.turns
        self.tags = list(self._turns.current.tags)
        self._properties = dict(self._turns.current.properties)
        self.cancelled = False
        self.stage_attempts: list[int] = []
        self._running: list[TaskTry] = []

    def run(self) -> list[Any]:
        self._session.jobs.append(self)
        try:
            return self._run()
        finally:
            self._leave_behind()

    def _run(self) -> list[Any]:
        steps = list(self._frame.steps)
        shuffle = next((at for at, each in enumerate(steps) if isinstance(each, tuple)), None)
        # The state is one partition, and bound to it.
        inputs = self._source_inputs("coalesce" in steps or self._frame.state is not None)
        steps = [each for each in steps if each != "coalesce"]
        if shuffle is None:
            return self._flat(self._stage("only", inputs, steps))
        mapped = self._stage("map", inputs, steps[:shuffle])
        count, column = steps[shuffle][1], steps[shuffle][2]
        placed = _shuffled(mapped, count, column)
        if self._session.faults.rerun_stage("map"):
            # A part of what was computed is gone when some of the senders have read it: it is computed again, whole,
            # and rows come in another order, as behind a shuffle of the user's.
            self.stage_attempts[0] += 1
            turned = [(lambda given=given: (_reversed(batch) for batch in given())) for given in inputs]
            again = _shuffled(self._stage("map", turned, steps[:shuffle], again=True), count, column)
            half = count // 2
            placed = placed[:half] + again[half:]
        sent = [(lambda rows=rows: iter(rows)) for rows in placed]
        return self._flat(self._stage("send", sent, steps[shuffle + 1 :]))

    @staticmethod
    def _flat(found: list[list[Any]]) -> list[Any]:
        return [batch for each in found for batch in each]

    def _source_inputs(self, coalesced: bool) -> list[Callable[[], Iterator[Any]]]:
        start, end = self._frame.range or ({}, {})
        reader = self._frame.reader
        parts = reader.partitions(start, end)
        if coalesced or not parts:
            return [lambda: (batch for part in parts for batch in reader.read(part))]
        return [(lambda part=part: reader.read(part)) for part in parts]

    def _stage(self, name: str, inputs: list[Any], steps: list[ArrowStep], again: bool = False) -> list[list[Any]]:
        if not again:
            self.stage_attempts.append(0)
        done: dict[int, TaskTry] = {}
        tries = dict.fromkeys(range(len(inputs)), 0)
        self._running = [self._launch(name, part, 0, inputs[part], steps) for part in tries]
        for part in tries:
            if self._session.faults.copy_task(name, part):
                tries[part] += 1
                self._running.append(self._launch(name, part, 1, inputs[part], steps))
        while len(done) < len(inputs):
            self._turns.wait(lambda: self.cancelled or any(each.fiber.ended for each in self._running))
            if self.cancelled:
                raise ModelJobError("Job aborted: cancelled as part of cancellation of all jobs")
            ended = next(each for each in self._running if each.fiber.ended)
            self._running.remove(ended)
            part = ended.partition
            if ended.fiber.error is None:
                if part not in done:
                    done[part] = ended
                    self._end_copies(part)
                continue
            if part in done or any(each.partition == part for each in self._running):
                continue
            tries[part] += 1
            if tries[part] >= self._session.task_tries:
                raise ModelJobError(_job_text(ended.fiber.error, tries[part]))
            self._running.append(self._launch(name, part, tries[part], inputs[part], steps))
        return [done[part].output for part in sorted(done)]

    def _launch(self, stage: str, partition: int, attempt: int, given: Any, steps: list[ArrowStep]) -> TaskTry:
        session = self._session
        session.task_count += 1
        worker = session.worker()
        lost_after = session.faults.lose_task(stage, partition, attempt)
        if lost_after >= 0:
            worker.die_at = self._turns.now + lost_after
        view = TaskView(partition, attempt, session.task_count, self._properties)
        made = TaskTry(partition, attempt, None, worker)  # type: ignore[arg-type]

        def work() -> None:
            batches = given()
            for step in steps:
                batches = step(batches)
            made.output.extend(batches)

        made.fiber = self._turns.spawn(worker, work, f"task-{stage}-{partition}.{attempt}", view)
        return made

    def _end_copies(self, part: int) -> None:
        for each in [each for each in self._running if each.partition == part]:
            self._running.remove(each)
            self._late(each)

    def _leave_behind(self) -> None:
        for each in self._running:
            self._late(each)
        self._running = []

    def _late(self, each: TaskTry) -> None:
        """Spark asks it to end; nobody waits until it has."""
        each.process.die_at = min(each.process.die_at, self._turns.now + LATE_S * self._turns.rng.random())


def _reversed(batch: Any) -> Any:
    return batch.take(pa.array(range(batch.num_rows - 1, -1, -1)))


def _shuffled(mapped: list[list[Any]], count: int, column: str) -> list[list[Any]]:
    placed: list[list[Any]] = [[] for _ in range(count)]
    for output in mapped:
        for batch in output:
            slots = batch.column(column).to_pylist()
            for slot in sorted(set(slots)):
                wanted = [number for number, each in enumerate(slots) if each == slot]
                placed[slot % count].append(batch.take(pa.array(wanted)))
    return placed


def _job_text(error: BaseException, tries: int) -> str:
    """As Spark tells it: the Python traceback inside a Java exception."""
    kind = type(error)
    if kind is KilledFiber:
        return (
            f"Job aborted due to stage failure: Task failed {tries} times: Python worker exited unexpectedly (crashed)"
        )
    return (
        f"Job aborted due to stage failure: Task failed {tries} times, most recent failure: PythonException: \n"
        f'Traceback (most recent call last):\n  File "task.py"\n{kind.__module__}.{kind.__qualname__}: {error}\n\n'
        "Driver stacktrace:"
    )

"""An AtOnce pipeline as a subject: rewritten to scratch topics and tables, run in warm processes, held at its steps."""

from __future__ import annotations

import inspect
import pickle
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atonce.connectors.contract import Feed, NotFired, ScratchServer, Topic, Written
from atonce.delivery.events import Step
from atonce.errors import UsageError
from atonce.guarantee import Guarantee
from atonce.verify.audit.output import of_any_run
from atonce.verify.checks.oracle import Look
from atonce.verify.faults.catalogue import Need
from atonce.verify.ground.servers import Servers
from atonce.verify.ground.workload import Workload
from atonce.verify.subject.batch_rows import RECORD_COLUMNS, read_records, read_table_rows
from atonce.verify.subject.contract import Ending, Names
from atonce.verify.subject.process import LAUNCHER, Listener, SubjectProcess
from atonce.verify.subject.rewritten import Grounds, feed_of, grounds, read_back, rewritten
from atonce.verify.subject.worker import MASTER
from atonce.verify.wire.history import History

if TYPE_CHECKING:
    from atonce.pipeline import Pipeline


@dataclass(slots=True, eq=False)
class Hold:
    """Fires at the nth time that an instance reaches a step, and holds it there until released or killed."""

    step: Step
    nth: int
    number: int = 0
    """Which instance."""
    seen: int = 0
    fired_at: float | None = None
    struck: str = ""
    released: bool = False
    _process: SubjectProcess | None = None
    _fired: threading.Event = field(default_factory=threading.Event)

    def reached(self, process: SubjectProcess, message: dict[str, Any]) -> bool:
        if self._fired.is_set() or message["step"] != self.step.value:
            return False
        self.seen += 1
        if self.seen != self.nth:
            return False
        self.fired_at = time.time()
        self.struck = f"step {self.step.value} of batch {message['batch']}"
        self._process = process
        self._fired.set()
        return True

    def wait(self, timeout_s: float) -> None:
        if not self._fired.wait(timeout_s):
            raise NotFired(f"step {self.step.value} was reached {self.seen} times, not {self.nth}")

    def release(self) -> None:
        if self._process is not None:
            self.released = True
            self._process.go()
            self._process = None


class PipelineSubject:
    endless = False
    steps = True

    def __init__(
        self,
        pipeline: Pipeline,
        level: Guarantee,
        logs: Path,
        *,
        records_per_batch: int,
        servers: Servers,
        stateful: bool | None = None,
        launcher: Sequence[str] = LAUNCHER,
    ) -> None:
        self._original = pipeline
        self.level: Guarantee | None = level
        self.title = f"{pipeline.name} ({pipeline._parts()[0].describe()} → {pipeline._parts()[1].describe()})"
        self._per_batch = records_per_batch
        self._servers = servers
        self._stateful = stateful
        """None: not known before the plan has been looked at."""
        self._launcher = launcher
        self._logs = logs
        self._listener = Listener()
        self._idle: list[SubjectProcess] = []
        self._active: dict[int, SubjectProcess] = {}
        self._endings: dict[int, Ending] = {}
        self._holds: list[Hold] = []
        self._left_over: list[SubjectProcess] = []
        """Whose driver was killed and whose workers were not."""
        self._names: Names | None = None
        self._output: Written | Topic | None = None
        self._history = History()
        self._started = 0
        self._standby()

    @property
    def server(self) -> ScratchServer | None:
        return self._servers.sink

    def needs_met(self) -> set[Need]:
        return {Need.SPARK} if self._stateful else {Need.SPARK, Need.STATELESS}

    # Processes ------------------------------------------------------------------------------------------------------

    def _spawn(self) -> SubjectProcess:
        self._started += 1
        conf = {"spark.driver.memory": "768m", **dict(self._original.spark)}
        return SubjectProcess(
            self._listener,
            self._launcher,
            self._original.master or MASTER,
            conf,
            self._logs / f"subject-{self._started}.log",
        )

    def _standby(self) -> None:
        """One more process warms up while another runs, so that a kill costs no cold start."""
        if not any(process.alive for process in self._idle):
            self._idle.append(self._spawn())

    def _take(self) -> SubjectProcess:
        self._idle = [process for process in self._idle if process.alive]
        if not self._idle:
            self._idle.append(self._spawn())
        self._idle.sort(key=lambda process: process.is_warm)
        return self._idle.pop()

    # A run ----------------------------------------------------------------------------------------------------------

    def prepare(self, names: Names, history: History) -> None:
        self.finish()
        self._names, self._history = names, history
        self._endings.clear()
        self._holds = []
        self._servers.fresh(names.run)
        self._write(self._per_batch)
        self._output = read_back(self._original, self._grounds())

    def input(self) -> Feed | Topic:
        return feed_of(self._original, self._grounds())

    def output(self) -> Written | Topic:
        if self._output is None:
            raise NotFired("the subject was asked for its output before its run was prepared")
        return self._output

    def _grounds(self) -> Grounds:
        if self._names is None:
            raise NotFired("the subject was asked for its input before its run was prepared")
        return grounds(self._names, self._servers, self._per_batch)

    def _write(self, per_batch: int) -> None:
        from pyspark import cloudpickle

        if self._names is not None:
            _by_value(self._original)
            on = grounds(self._names, self._servers, per_batch)
            made = rewritten(self._original, self.level, self._names, on)
            self._pickle(self._names).write_bytes(cloudpickle.dumps(made))

    def batches_of(self, records: int) -> None:
        self._per_batch = records

    def larger_batches(self) -> None:
        self._write(self._per_batch + self._per_batch // 2)

    def _pickle(self, names: Names) -> Path:
        return names.scratch / "pipeline.pickle"

    def start(self, number: int = 0) -> None:
        if self._names is None:
            raise NotFired("the subject was started before its run was prepared")
        process = self._active.get(number)
        if process is None or not process.alive or process.busy:
            process = self._active[number] = self._take()
        self._endings.pop(number, None)
        process.on_event = lambda message: self._event(number, message)
        process.on_end = lambda message: self._ended(number, message)
        process.wait_warm()
        self._history.mark("started", f"instance {number}")
        process.run(self._pickle(self._names))
        self._standby()

    def _event(self, number: int, message: dict[str, Any]) -> bool:
        self._history.mark("step", message["step"], message["batch"])
        if message["step"] == "planned":
            for name in ("start", "end"):
                self._history.mark("planned", message["facts"].get(name, ""), message["batch"])
        if message["step"] in ("aborted", "retrying"):
            self._history.mark("said", message["facts"].get("why", ""))
        process = self._active.get(number)
        if process is None:
            return True
        return not any(hold.reached(process, message) for hold in self._holds if hold.number == number)

    def _ended(self, number: int, message: dict[str, Any]) -> None:
        if message["event"] == "done":
            self._endings[number] = Ending(0, "")
        else:
            words = f"{message['kind']}: {message['message']}"
            self._endings[number] = Ending(message["code"], words, message["refused"], message["replaced"])
        self._history.mark("ended", f"instance {number}: {self._endings[number].words[:300] or 'done'}")

    def kill(self, number: int = 0) -> None:
        process = self._active.pop(number, None)
        if process is not None:
            process.kill()
            self._history.mark("killed", f"instance {number}")
            self._standby()

    def kill_driver(self, number: int = 0) -> None:
        process = self._active.pop(number, None)
        if process is not None:
            process.kill_driver()
            self._left_over.append(process)
            self._history.mark("killed", f"the driver of instance {number}")
            self._standby()

    def pause(self, number: int = 0) -> None:
        if number in self._active:
            self._active[number].signal(signal.SIGSTOP)
            self._history.mark("paused", f"instance {number}")

    def resume(self, number: int = 0) -> None:
        if number in self._active:
            self._active[number].signal(signal.SIGCONT)
            self._history.mark("resumed", f"instance {number}")

    def running(self, number: int = 0) -> bool:
        process = self._active.get(number)
        return process is not None and process.alive and process.busy

    def ending(self, number: int = 0) -> Ending | None:
        process = self._active.get(number)
        if number not in self._endings and process is not None and not process.alive:
            self._endings[number] = Ending(1, f"its process died: {process.last_words()[-600:]}")
        return self._endings.get(number)

    def finish(self) -> None:
        """Idle processes are kept warm for the next run; one that is still busy is killed."""
        for process in self._active.values():
            process.signal(signal.SIGCONT)
            if process.busy or not process.alive:
                process.kill()
            elif len(self._idle) < 2:
                self._idle.append(process)
            else:
                process.kill()
        self._active.clear()
        for process in self._left_over:
            process.kill()
        self._left_over = []

    def close(self) -> None:
        self.finish()
        for process in self._idle:
            process.kill()
        self._idle = []
        self._listener.close()

    def hold_at(self, step: Step, nth: int, number: int = 0) -> Hold:
        hold = Hold(step, nth, number)
        self._holds.append(hold)
        return hold

    def workers(self) -> list[int]:
        process = self._active.get(0)
        return process.workers() if process is not None else []

    def look(self, workload: Workload, sent_from_ms: int) -> Look | None:
        if self._names is None:
            return None
        records, result = self._names.scratch / "records.pickle", self._names.scratch / "batch.parquet"
        records.write_bytes(pickle.dumps(workload.all))
        output = self.output()
        process = self._active.get(0) or self._take()
        self._active[0] = process
        seen = process.look(
            self._pickle(self._names), records, result, RECORD_COLUMNS if isinstance(output, Topic) else ()
        )
        if "failed" in seen:
            raise UsageError(f"the pipeline's plan cannot be looked at: {seen['failed']}")
        look = Look(stateful=seen["stateful"], mode=seen["mode"], trouble=seen["trouble"], shaky=seen.get("shaky", ""))
        if not look.trouble and isinstance(output, Topic):
            records_given = read_records(result, output, workload.partitions, sent_from_ms)
            look = replace(look, rows=of_any_run(records_given, self._names.run))
        elif not look.trouble:
            rows, exact = read_table_rows(result)
            look = replace(look, rows=of_any_run(rows, self._names.run), exact=exact)
        self._stateful = look.stateful if self._stateful is None else self._stateful
        return look

    def last_words(self) -> str:
        process = self._active.get(0)
        return process.last_words() if process is not None else ""

    def with_level(self, level: Guarantee) -> None:
        """The same pipeline at another level, in the same warm processes."""
        self.level = level
        self._original = replace(self._original, guarantee=level)


def _by_value(pipeline: Pipeline) -> None:
    """The user's functions and classes travel whole: their module may not be found from the subject's process."""
    from pyspark import cloudpickle

    for made in (*pipeline.transforms, pipeline.arrow, type(pipeline.source), type(pipeline.sink)):
        module = inspect.getmodule(made) if callable(made) else None
        if module is not None and not module.__name__.startswith(("atonce.", "__main__")):
            cloudpickle.register_pickle_by_value(module)

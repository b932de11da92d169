"""Carries a script out in a world: faults strike while pipelines run, a supervisor starts what ended, and all is audited.

When the script is over everything heals, zombies wake, what still runs is stopped, and one last start must drain the
input and end well. A refusal is kept where a step excuses it: the log or the ledger is not the same any more.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from atonce.errors import AtOnceError, InvariantError, RefusedError, ReplacedError, RetriableError, UnreachableError
from atonce.guarantee import Guarantee
from atonce.verify.checks.allowed import Anomaly
from tests.simulation.pipeline import audit
from tests.simulation.pipeline.audit import Guilt
from tests.simulation.pipeline.database import VirtualDatabase, sql_pipeline
from tests.simulation.pipeline.fibers import StuckWorld
from tests.simulation.pipeline.script import Script, ScriptStep
from tests.simulation.pipeline.spark_query import CONCURRENT, METADATA_GONE
from tests.simulation.pipeline.world import SimulatedDriver, SimulatedPipeline, World

LONGEST_S = 6 * 3600.0
DRAIN_S = 1_800.0
STOP_S = 600.0
_TORN_BY_TWO = ("is missing, so what batch", "doesn't exist")
_MIXED_BY_TWO = "the ledger is behind"
_STATE_MISSING = "the state store has no version"
_WENT_BACK = ("went back to before this instance began", "the database went back: a restore")


@dataclass
class Outcome:
    script: Script
    anomalies: list[Guilt] = field(default_factory=list)
    batches: int = 0
    hours: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    trace: list[str] = field(default_factory=list)
    refused: bool = False


def play(script: Script, *, tracing: bool = False) -> Outcome:
    world = World(script.seed)
    world.tracing = tracing
    world.turns.turbulence = script.shape.turbulence
    outcome = Outcome(script)
    with world.alive():
        world.turns.ends_at = world.turns.now + LONGEST_S
        world.small_rows(script.shape.small_rows)
        conductor = Conductor(world, script, outcome)
        try:
            conductor.perform()
        except StuckWorld as stuck:
            outcome.anomalies.append(Guilt(Anomaly.STUCK, str(stuck)))
        outcome.batches = world.batches
        outcome.hours = (world.turns.now - 1_000) / 3600
        outcome.requests = world.network.requests
        outcome.trace = world.trace
    return outcome


class Conductor:
    def __init__(self, world: World, script: Script, outcome: Outcome) -> None:
        self.world = world
        self.script = script
        self.outcome = outcome
        self.rng = random.Random(f"conductor {script.seed}")
        self.excused = False
        """Something happened after which a pipeline may refuse to go on."""
        self.level = script.shape.level
        self.live: dict[str, SimulatedDriver] = {}
        self.judged: set[int] = set()
        self.backups: dict[str, list[dict[str, str]]] = {}
        self.pipelines = self._pipelines()
        self.refused: set[str] = set()
        self.shared = False
        """Two drivers have used one checkpoint at once, which Spark does not allow."""
        self.shortened = False
        """A checkpoint has lost files: with a second driver, plans of the old one and of the new may stand side by side."""

    def _pipelines(self) -> list[SimulatedPipeline]:
        shape, world = self.script.shape, self.world
        world.create_input("in", shape.inputs)
        if shape.sink == "sql":
            world.database = VirtualDatabase(world.turns)
        made = []
        for number in range(shape.pipelines):
            name = f"p{number}"
            if shape.sink == "sql":
                pipeline = sql_pipeline(world, name, self.level, "in", shape.per_batch)
            else:
                world.cluster.create(f"out-{name}", shape.outputs)
                pipeline = world.pipeline(name, self.level, "in", f"out-{name}", shape.per_batch)
            pipeline.stateful = shape.stateful
            if shape.on_cluster:
                pipeline.settings = {"spark.master": "spark://model:7077", "spark.driver.host": "virtual"}
            made.append(pipeline)
        return made

    # The performance

    def perform(self) -> None:
        for step in self.script.steps:
            self.supervise()
            self.world.note(f"--- {step}")
            getattr(self, "_" + step.kind.replace(" ", "_"))(*step.args)
            if step.kind not in ("publish", "wait"):
                self.outcome.faults[step.kind if step.kind != "strike" else f"{step.args[1]} {step.args[0]}"] += 1
            if step.kind == "wait":
                self._look()
            if self.outcome.anomalies:
                return
        self._heal()
        for pipeline in self.pipelines:
            self._drain(pipeline)
        for pipeline in self.pipelines:
            self._audit(pipeline)

    def supervise(self) -> None:
        """As an operator's supervisor: what ended is started again, unless it refused and was right."""
        for pipeline in self.pipelines:
            driver = self.live.get(pipeline.name)
            if driver is not None and not driver.over:
                continue
            if driver is not None:
                self._judge(driver)
            if pipeline.name not in self.refused:
                self.live[pipeline.name] = self.world.start(pipeline)

    def _judge(self, driver: SimulatedDriver) -> None:
        if id(driver) in self.judged:
            return
        self.judged.add(id(driver))
        if driver.overwrote:
            self.outcome.anomalies.append(Guilt(audit.OVERWRITTEN, driver.overwrote))
        crash = driver.fiber.error if driver.fiber is not None else None
        failure = driver.failure
        if crash is not None and isinstance(crash, Exception):
            failure = crash
        if failure is None or isinstance(failure, RetriableError | UnreachableError | ReplacedError):
            return
        if CONCURRENT in str(failure) or (self.shared and METADATA_GONE in str(failure)):
            return  # two drivers met on one checkpoint, and one of them noticed
        if not driver.claimed and any(each in str(failure) for each in _WENT_BACK):
            return  # within its start: it ends, and the next start finds the database as it is now
        self.excused |= self.shared and any(each in str(failure) for each in _TORN_BY_TWO)
        self.excused |= self.shared and self.shortened and _MIXED_BY_TWO in str(failure)
        words = f"{driver.process.name}: {type(failure).__name__}: {failure}"
        torn = _STATE_MISSING in str(failure) and not self.shared
        if torn or isinstance(failure, InvariantError) or not isinstance(failure, AtOnceError):
            self.outcome.anomalies.append(Guilt(audit.BROKEN, words))
        elif isinstance(failure, RefusedError) and self.excused:
            self.refused.add(driver.pipeline.name)
            self.outcome.refused = True
        else:
            self.outcome.anomalies.append(Guilt(audit.REFUSED, words))

    def _heal(self) -> None:
        world = self.world
        world.network.strike = lambda process, kind, request: ""
        world.network.down.clear()
        world.cluster.remote_until = 0.0
        if world.database is not None:
            world.database.away_until, world.database.doubt = 0.0, ""
        world.network.cut_off.clear()
        world.jobs.__init__()  # type: ignore[misc]
        for driver in world.drivers:
            driver.process.dies_at_step = driver.process.pauses_at_step = -1
        asleep = max((each.process.paused_until for each in world.drivers), default=0.0)
        world.note("--- everything heals, zombies wake")
        world.let_pass(max(1.0, asleep - world.turns.now) + self.rng.random())
        for driver in world.drivers:
            if not driver.over and driver.run is not None:
                driver.run.stop()
            elif not driver.over:
                world.turns.kill(driver.process)  # still starting
        if not world.until(lambda: all(each.over for each in world.drivers), STOP_S):
            still = [each.process.name for each in world.drivers if not each.over]
            self.outcome.anomalies.append(Guilt(Anomaly.STUCK, f"told to stop, and still running: {still}"))
        for driver in world.drivers:
            self._judge(driver)

    def _drain(self, pipeline: SimulatedPipeline) -> None:
        for _ in range(3):
            if self.outcome.anomalies or pipeline.name in self.refused:
                return
            driver = self.world.start(pipeline, drain=True)
            if not self.world.until(lambda driver=driver: driver.over, DRAIN_S):
                self.outcome.anomalies.append(Guilt(Anomaly.STUCK, f"{pipeline.name} does not drain its input"))
                return
            self._judge(driver)
            if driver.done:
                return
        if pipeline.name not in self.refused:
            words = f"{pipeline.name}: three starts in a row end with {driver.failure!r}"
            self.outcome.anomalies.append(Guilt(Anomaly.STUCK, words))

    # What is seen

    def _look(self) -> None:
        """At any moment, what is visible is what the ledger says was delivered."""
        if self.level is not Guarantee.EFFECTIVELY_ONCE or self.excused or self.rng.random() > 0.3:
            return
        if self.script.shape.stateful:
            return  # some of it is in the state
        for pipeline in self.pipelines:
            if pipeline.sink_kind == "kafka" and self.world.cluster.desk.markers:
                continue  # a commit whose markers are on their way
            if pipeline.sink_kind == "sql" and self.world.database.holder is not None:
                continue
            self._compare(pipeline, self.world.ledger(pipeline))

    def _audit(self, pipeline: SimulatedPipeline) -> None:
        if self.outcome.anomalies:
            return
        whole = dict.fromkeys(range(len(self.world.published["in"])))
        if pipeline.name in self.refused:
            if self.level is Guarantee.EFFECTIVELY_ONCE:
                self._compare_refused(pipeline)
            return
        self._compare(pipeline, whole)

    def _compare(self, pipeline: SimulatedPipeline, upto: dict[int, int | None]) -> None:
        world = self.world
        if pipeline.stateful and self.shared and self.shortened:
            return  # a driver of before wakes, and writes the state of its own cut over that of the new one
        wanted = [
            [value for offset, value in part if upto.get(at, 0) is None or offset < (upto.get(at, 0) or 0)]
            for at, part in enumerate(world.published[pipeline.inputs])
        ]
        if pipeline.stateful:
            held = world.held_back(pipeline)
            wanted = [[value for value in part if value not in held] for part in wanted]
        found = world.visible(pipeline)
        kept = [[value for value in part if value not in world.removed] for part in found]
        self.outcome.anomalies += audit.compared(self.level, wanted, world.keys, kept)

    def _compare_refused(self, pipeline: SimulatedPipeline) -> None:
        """It stopped somewhere: what was delivered until then came once, and nothing that was never published."""
        found = self.world.visible(pipeline)
        got = Counter(value for part in found for value in part)
        doubled = [value for value, count in got.items() if count > 1]
        alien = [value for value in got if value not in self.world.keys]
        if doubled:
            self.outcome.anomalies.append(Guilt(Anomaly.DUPLICATE, str(doubled[:5])))
        if alien:
            self.outcome.anomalies.append(Guilt(Anomaly.UNEXPECTED, str(alien[:5])))

    # The steps

    def _some(self) -> SimulatedDriver:
        return self.live[self.rng.choice(self.pipelines).name]

    def _publish(self, partition: int, count: int) -> None:
        self.world.publish("in", partition % len(self.world.published["in"]), count)

    def _aborted_input(self, partition: int, count: int) -> None:
        self.world.publish_aborted("in", partition % len(self.world.published["in"]), count)

    def _wait(self, seconds: float) -> None:
        self.world.let_pass(seconds)

    def _kill(self, steps: int) -> None:
        process = self._some().process
        process.dies_at_step = process.steps + steps
        self.world.until(lambda: process.dead, 1.0)

    def _stop(self) -> None:
        driver = self._some()
        if driver.run is not None:
            driver.run.stop()

    def _pause(self, steps: int, seconds: float) -> None:
        process = self._some().process
        process.pauses_at_step, process.pause_s = process.steps + steps, seconds
        self.world.let_pass(0.05)

    def _zombie(self, steps: int, seconds: float, newcomer_after: float) -> None:
        """It is paused, taken for dead, and another is started; then it wakes."""
        driver = self._some()
        process = driver.process
        process.pauses_at_step, process.pause_s = process.steps + steps, seconds
        self.world.until(lambda: process.paused_until > self.world.turns.now or process.dead, 1.0)
        self.world.let_pass(newcomer_after)
        self._two_at_once()
        self.live[driver.pipeline.name] = self.world.start(driver.pipeline)

    def _two_at_once(self) -> None:
        self.shared = True
        self.excused |= self.script.shape.stateful  # both write versions of one state

    def _newcomer(self) -> None:
        self._two_at_once()
        pipeline = self._some().pipeline
        self.live[pipeline.name] = self.world.start(pipeline)

    def _strike(self, kind: str, fate: str, nth: int, times: int) -> None:
        left, before = {"skip": nth - 1, "times": times}, self.world.network.strike

        def strike(process: Any, asked: str, request: Any) -> str:
            if asked == kind and left["times"] > 0:
                if left["skip"] > 0:
                    left["skip"] -= 1
                else:
                    left["times"] -= 1
                    return fate
            return before(process, asked, request)

        self.world.network.strike = strike

    def _empty_fetches(self, times: int) -> None:
        """As remote storage that is slow: the records are not on the leader's own disk."""
        self._strike("Fetch", "empty", 1, times)
        self.world.cluster.remote_until = self.world.turns.now + 20.0

    def _fail_over(self, node: int) -> None:
        self.world.cluster.fail_over(node)

    def _node_down(self, node: int, seconds: float) -> None:
        self.world.network.down.add(node)
        self.world.cluster.fail_over(node)
        self.world.turns.later(seconds, lambda: self.world.network.down.discard(node))

    def _cut_off(self, seconds: float) -> None:
        process = self._some().process
        self.world.network.cut_off.add(process)
        self.world.turns.later(seconds, lambda: self.world.network.cut_off.discard(process))

    def _lose_task(self, nth: int, seconds: float) -> None:
        left = [nth]

        def lose(stage: str, partition: int, attempt: int) -> float:
            left[0] -= 1
            return seconds if left[0] == 0 else -1.0

        self.world.jobs.lose_task = lose

    def _copy_task(self, nth: int) -> None:
        left = [nth]

        def copy(stage: str, partition: int) -> bool:
            left[0] -= 1
            return left[0] == 0

        self.world.jobs.copy_task = copy

    def _rerun_stage(self) -> None:
        left = [1]

        def rerun(stage: str) -> bool:
            left[0] -= 1
            return left[0] == 0

        self.world.jobs.rerun_stage = rerun

    # Checkpoints

    def _backup(self) -> None:
        for pipeline in self.pipelines:
            self.backups.setdefault(pipeline.name, []).append(self.world.disk.kept(pipeline.checkpoint))

    def _down(self) -> SimulatedDriver:
        """A driver that is dead for now: nobody that one sees uses its checkpoint."""
        driver = self._some()
        self.world.turns.kill(driver.process)
        return driver

    def _checkpoint_lost(self) -> None:
        pipeline = self._down().pipeline
        self.world.disk.roots.pop(pipeline.checkpoint, None)
        self.shortened = True
        self.excused |= pipeline.stateful

    def _checkpoint_back(self, batches: int, with_state: bool) -> None:
        """As an older copy of it: its newest batches are not there. Versions of the state are files of their own."""
        pipeline = self._down().pipeline
        files = self.world.disk.roots.get(pipeline.checkpoint, {})
        planned = [int(name.rpartition("/")[2]) for name in files if name.startswith("offsets/")]
        gone = set(sorted(planned)[-batches:])
        logs = [name for name in files if name.startswith(("offsets/", "commits/"))]
        lost = [name for name in logs if int(name.rpartition("/")[2]) in gone]
        if with_state:
            lost += [name for name in files if name.startswith("state/") and _version(name) - 1 in gone]
        for name in lost:
            del files[name]
        self.shortened = True
        self.excused |= pipeline.stateful  # refused, unless the same batches are cut again

    # Another log, another ledger

    def _input_made_again(self, count: int) -> None:
        self.excused = True
        self.world.recreate_input("in", count)

    def _input_cut(self, records: int, refill: int) -> None:
        self.excused = True
        self.world.cut_input("in", self.rng.randrange(len(self.world.published["in"])), records, refill)

    def _more_input(self) -> None:
        self.world.add_input_partition("in")

    def _more_output(self) -> None:
        pipeline = self._some().pipeline
        if pipeline.sink_kind == "kafka":
            self.world.cluster.add_partition(pipeline.output)

    def _group_moved(self, by: int, back: bool) -> None:
        """Somebody's tool sets the group elsewhere."""
        self.excused = True
        driver = self._some()
        exact = self.level is Guarantee.EFFECTIVELY_ONCE
        moved = self.world.move_group(driver.pipeline, -by if back else by)
        driver.moved = moved and exact and driver.claimed and not driver.busy

    # Databases

    def _database_back(self, commits: int, unnoticed: bool) -> None:
        self.excused |= self.world.database.go_back(commits, unnoticed=unnoticed) or self.script.shape.stateful

    def _database_back_under_two(self, steps: int, seconds: float) -> None:
        """A newcomer claims and sleeps, the database forgets its claim, and the next one is given the same epoch."""
        self._newcomer()
        driver = self._some()
        self.world.until(lambda: driver.claimed or driver.over, 1.0)
        process = driver.process
        process.pauses_at_step, process.pause_s = process.steps + steps, seconds
        self.world.until(lambda: process.paused_until > self.world.turns.now or process.dead, 0.2)
        self._database_back(1, True)
        self.live[driver.pipeline.name] = self.world.start(driver.pipeline)

    def _database_away(self, seconds: float) -> None:
        self.world.database.away_until = self.world.turns.now + seconds

    def _commit_in_doubt(self, fate: str) -> None:
        self.world.database.doubt = fate


def _version(state_file: str) -> int:
    number = state_file.rpartition("/")[2].partition(".")[0]
    return int(number) if number.isdigit() else 0


def performed(step: ScriptStep) -> str:
    return step.kind

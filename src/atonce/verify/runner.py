"""Runs a subject under faults, one after the other: fresh topics, inject, recover, drain, audit."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from atonce.connectors.contract import Feature, Feed, MergesRows, NotFired, Topic
from atonce.delivery.events import Step
from atonce.errors import AtOnceError
from atonce.guarantee import Guarantee
from atonce.verify.audit.audit import audit
from atonce.verify.audit.coverage import struck_in, there_is
from atonce.verify.audit.identity import Out, identify
from atonce.verify.audit.judge import judge, recovery_s
from atonce.verify.audit.points import Coverage
from atonce.verify.audit.readers import CommittedReader, Watch
from atonce.verify.audit.table_watch import TableWatch
from atonce.verify.checks.allowed import ALLOWED, Anomaly
from atonce.verify.checks.findings import Finding, found
from atonce.verify.checks.merged import Winners
from atonce.verify.checks.oracle import Checked, Look, against_batch, against_input
from atonce.verify.checks.output import Compared, Oracle, require_told_apart
from atonce.verify.faults.catalogue import Need
from atonce.verify.faults.learn import Learned, learn
from atonce.verify.faults.variants import Variant
from atonce.verify.ground.feeds import TopicFeed
from atonce.verify.ground.fitting import Unclean, fitted, possible
from atonce.verify.ground.harness import Compacts, Harness
from atonce.verify.ground.layout import Layout, laid_out
from atonce.verify.ground.workload import Recipe, Workload
from atonce.verify.results import RAN, Result, State
from atonce.verify.scene import Limits, Scene
from atonce.verify.select import LARGE
from atonce.verify.subject.contract import Names, Subject
from atonce.verify.wire.cluster import Cluster
from atonce.verify.wire.history import WRITES, Mark
from atonce.verify.wire.proxy import Proxy

SENT_AFTER_MS = 30 * 60 * 1000
"""The input is an hour old: output with a younger time than this was given the time of sending."""
LOOK_S, LARGE_LOOK_S = 0.05, 1.0
USUAL_S = 15.0
"""What a clean run takes on an ordinary machine."""
KEYS_REPEATED = 3
"""So many keys must come more than once to tell whether a command chooses partitions by key."""


@dataclass(slots=True, kw_only=True)
class Stage:
    """What stays the same from run to run."""

    subject: Subject
    harness: Harness
    proxy: Proxy
    recipe: Recipe
    """The input with whatever features it can have."""
    scratch: Path
    seed: int
    identify: str = "whole"
    final_only: bool | None = None
    """Judge the last value of every key; None: a pipeline is asked, a command is judged by every record."""
    one_to_one: bool = False
    """A command promises one output for every input: its clean run is held to that."""
    fixed_topics: tuple[str, str] | None = None
    """(input, output) of a command that names its topics itself; they are made anew for every run."""
    limits: Limits = field(default_factory=Limits)
    tell: Callable[[str, Result | None], None] = lambda _title, _result: None
    """Called before a run with its title, and after it with its result."""
    at_ms: int = 0
    """The time of the first record of the input, long before any of the output is sent."""
    large: bool = False
    """More than a small batch holds, in one batch: every path of the data plane runs."""
    oracle: Oracle | None = None
    learned: Learned = field(default_factory=Learned)
    checked: str = ""
    """How the clean run itself was checked."""
    trouble: str = ""
    """What went wrong with the subject although there was no fault."""
    not_fed: dict[Feature, str] = field(default_factory=dict)
    """What its input does not have, and why."""
    there: Coverage = field(default_factory=Coverage)
    """What can be struck."""
    _layout: Layout | None = None
    _workload: Workload | None = None
    _possible: frozenset[Feature] | None = None
    _cluster: Cluster | None = None
    _run: int = 0

    @property
    def cluster(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self.harness.servers)
        return self._cluster

    @property
    def workload(self) -> Workload:
        if self._workload is None:
            self._workload = self.recipe(frozenset())
        return self._workload

    def enlarged(self, recipe: Recipe, records_per_batch: int) -> Stage:
        """The same subject over much more input, without what this one is known not to take."""
        self.subject.batches_of(records_per_batch)
        features = self.workload.features
        if self._layout is not None and isinstance(self.harness, Compacts) and self.harness.compacts:
            features |= {Feature.GAPS}
        big = replace(self, recipe=lambda _: recipe(features), large=True, oracle=None, checked="", there=Coverage())
        big._layout, big._workload, big._possible = None, None, features
        return big

    # One run --------------------------------------------------------------------------------------------------------

    def scene(self, variant: Variant | None) -> Scene:
        self._run += 1
        title = variant.slug if variant else "clean"
        run = f"av{self.seed % 100000}-{self._run}-{title}{'-large' if self.large else ''}".lower()
        given = self.fixed_topics
        names = Names(
            run=run,
            input=given[0] if given else f"{run}-in",
            output=given[1] if given else f"{run}-out",
            group=f"{run}-group",
            scratch=self.scratch / run,
            servers=self.proxy.servers,
            options=variant.options if variant else {},
        )
        names.scratch.mkdir(parents=True, exist_ok=True)
        self.proxy.clear()
        history = self.proxy.new_page()
        self.subject.prepare(names, history)
        feed, topics = self._fed()
        output = self.subject.output()
        written = None if isinstance(output, Topic) else output
        watch = self._watched(output) if isinstance(output, Topic) else None
        watched = written is not None and not self.subject.endless
        table_watch = TableWatch(written, LARGE_LOOK_S if self.large else LOOK_S) if written and watched else None
        if table_watch is not None:
            table_watch.start()
        return Scene(
            fault=variant.fault if variant else None,
            variant=variant.name if variant else "clean",
            names=names,
            cluster=self.cluster,
            proxy=self.proxy,
            harness=self.harness,
            history=history,
            subject=self.subject,
            workload=self.workload,
            feed=feed,
            watch=watch,
            output_topics=(output.name, *output.beside) if isinstance(output, Topic) else (),
            written=written,
            table_watch=table_watch,
            rng=random.Random(f"{self.seed}/{title}"),
            limits=self.limits,
            counts=self.learned.counts,
            needs=self.learned.met,
            batches=self.learned.batches,
            final_only=bool(self.final_only),
            server=self.subject.server,
            commits_to_the_end=self.learned.commits_to_the_end,
            sent_from_ms=self.sent_from_ms,
            input_topics=topics,
        )

    @property
    def sent_from_ms(self) -> int:
        return self.at_ms + SENT_AFTER_MS if self.at_ms else 0

    def _fed(self) -> tuple[Feed, tuple[str, str]]:
        """The first part of the input is there. And its topics, where it goes by some."""
        for topic in dict.fromkeys(self.fixed_topics or ()):
            self.cluster.delete_topic(topic)
        given = self.subject.input()
        if self._possible is None:
            self._possible, self.not_fed = possible(
                given, generated=self.workload.generated, ours=self.harness.ours, endless=self.subject.endless
            )
            self._made(self._possible)
        beside = given.beside[0] if isinstance(given, Topic) and given.beside else None
        if isinstance(given, Topic):
            if self._layout is None:
                self._layout = laid_out(self.recipe(self._possible))
                self._workload = self._layout.workload
            feed: Feed = TopicFeed(self.cluster, given.name, self._layout, beside, beside_later=given.found_later)
        else:
            feed = given
        feed.prepare(self.workload.partitions)
        feed.give(self.workload.head)
        return feed, (given.name, beside or "") if isinstance(given, Topic) else ("", "")

    def _made(self, features: frozenset[Feature]) -> None:
        """The next run's input has these features."""
        self._possible, self._layout, self._workload = features, None, self.recipe(features)

    def _watched(self, output: Topic) -> Watch:
        self.cluster.create_topic(output.name, self.workload.partitions)
        watch = Watch(CommittedReader(self.cluster.clone(), output.name))
        watch.start()
        return watch

    def _end(self, scene: Scene) -> None:
        self.subject.finish()
        self.proxy.clear()
        scene.close()
        if scene.table_watch is not None:
            scene.table_watch.stop()
        if scene.watch is not None:
            scene.watch.stop()
            scene.watch.reader.cluster.close()
        for group in scene.history.groups():
            self.cluster.dismiss_members(group, sorted(scene.members(group)))
            self.cluster.delete_group(group)
        scene.feed.remove()
        for topic in scene.output_topics:
            self.cluster.delete_topic(topic)

    # The clean run --------------------------------------------------------------------------------------------------

    def clean(self) -> Result:
        """The oracle: what comes out when nothing goes wrong, and what the subject is made of. What of the input
        the subject does not take is found here, and left out by name."""
        self.tell("large clean run" if self.large else "clean run", None)
        done: list[Result] = []

        def attempt(features: frozenset[Feature] | None) -> str:
            if features is not None:
                self._made(features)
            try:
                done.append(self._clean())
            except Unclean as error:
                return str(error)
            return ""

        words = attempt(None)
        if words and self._possible and not self.large:
            tries: dict[frozenset[Feature], str] = {self._possible: words}
            left_out = fitted(self._possible, lambda f: tries.pop(f) if f in tries else attempt(f))
            self.not_fed = {**self.not_fed, **left_out}
        elif words:
            raise Unclean(words)
        self.tell(done[-1].name, done[-1])
        return done[-1]

    def clean_or_stuck(self) -> Result:
        """Of a subject that has come to its end over less input: when it does not over more, that is what it does."""
        began = time.time()
        try:
            return self.clean()
        except Unclean as error:
            stuck = found(Anomaly.STUCK, [str(error)])
            result = self._clean_result(began, stuck)
            self.tell(result.name, result)
            return result

    def _clean_result(self, began: float, bad: Sequence[Finding], marks: Sequence[Mark] = ()) -> Result:
        expected = self.oracle.expected if self.oracle is not None else 0
        return Result(
            fault="clean",
            variant="large" if self.large else "run",
            title="no fault: what a run without faults gives",
            where="",
            may_show="-",
            state=State.BROKEN if bad else State.KEPT,
            why="; ".join(f"{f.anomaly.value}: {f.examples[0]}" for f in bad),
            expected=expected,
            delivered=expected,
            findings=tuple(bad),
            duration_s=time.time() - began,
            began_at=began,
            marks=tuple(marks),
            records=len(self.workload.all),
        )

    def _clean(self) -> Result:
        began = time.time()
        scene = self.scene(None)
        scene.patience = 3.0
        scene.limits = replace(self.limits, drain_s=4 * self.limits.drain_s)
        try:
            scene.start()
            self._await_first_plan(scene)
            drained = self._to_the_end(scene)
            outs, findings = self._clean_audit(scene, drained)
            took = time.time() - (scene.history.marks[0].at if scene.history.marks else began)
            look = self.subject.look(self.workload, self.sent_from_ms)
            self.learned = learn(scene)
            self.there = there_is(scene, commits=Need.CUT_COMMITS in self.learned.met)
            if look is not None and self.final_only is None:
                # An aggregation that tells what changed: how often depends on where batches end, the last value not.
                self.final_only = look.stateful and look.mode != "append" and scene.watch is not None
            self.oracle = Oracle(
                outs,
                identify(self.identify),
                bool(self.final_only),
                self._compared(outs, look is None, scene.written is not None),
                self.workload.nasty,
            )
            require_told_apart(self.oracle)
            checked = self._check_oracle(self.oracle, look)
            self.checked = checked.words
            self.trouble = look.trouble if look is not None and not look.stateful else ""
            self._stretch(took, scene)
            return self._clean_result(began, (*findings, *checked.findings), scene.history.marks)
        finally:
            self._end(scene)

    def _await_first_plan(self, scene: Scene) -> None:
        """What is added with the rest of the input is new only to a pipeline that has planned without it."""
        if not self.subject.steps:
            return
        deadline = time.monotonic() + scene.limits.fire_s
        while not scene.said(Step.PLANNED) and self.subject.ending(0) is None and time.monotonic() < deadline:
            time.sleep(0.02)

    def _stretch(self, took: float, scene: Scene) -> None:
        """Every wait is measured by what the clean run took, so that a slow machine does not turn a fault into none."""
        quiet = max(self.limits.quiet_s, 1.5 * longest_silence(scene))
        self.limits = replace(
            self.limits,
            fire_s=max(self.limits.fire_s, 3 * took),
            drain_s=max(self.limits.drain_s, 4 * took),
            quiet_s=quiet if self.subject.endless else self.limits.quiet_s,
            pace=max(self.limits.pace, took / USUAL_S),
        )

    def _compared(self, outs: Sequence[Out], command: bool, table: bool) -> Compared:
        """What else of a record is compared: all that a pipeline says of it; of a command what its clean run shows."""
        if self.identify != "whole":
            return Compared(nulls=False)
        if table:
            return Compared()
        output = self.subject.output()
        if not command:
            return Compared(headers=True, times=True, partitions=isinstance(output, Topic) and bool(output.partitioner))
        given = {tuple((name.encode(), value) for name, value in record.headers) for record in self.workload.all}
        places: dict[bytes, set[int]] = {}
        for out in outs:
            if out.key:
                places.setdefault(out.key, set()).add(out.partition)
        times = Counter(out.key for out in outs if out.key)
        return Compared(
            headers={out.headers for out in outs} <= given,
            times=True,
            partitions=sum(n > 1 for n in times.values()) >= KEYS_REPEATED
            and all(len(p) == 1 for p in places.values()),
        )

    def _clean_audit(self, scene: Scene, drained: bool) -> tuple[tuple[Out, ...], list[Finding]]:
        checked = audit(scene, None, drained)
        if scene.refusal is not None or not drained:
            ended = scene.refusal or self.subject.ending(0)
            words = [line for line in (ended.words if ended else "").splitlines() if line.strip()]
            # A pipeline's error begins with what is wrong, a command's log ends with it: last in what is told.
            telling = words[:1] if self.subject.steps else words[-1:]
            log = [line for line in self.subject.last_words().splitlines() if line.strip() and line not in telling]
            why = "\n".join([*log[-10:], *telling]) or "none"
            raise Unclean(
                f"the clean run did not come to its end, so there is nothing to compare with. Its last words:\n{why}"
            )
        return checked.outs, [f for f in checked.findings if f.anomaly not in ALLOWED[Guarantee.EFFECTIVELY_ONCE]]

    def _check_oracle(self, oracle: Oracle, look: Look | None) -> Checked:
        if look is None:
            return against_input(self.workload, oracle.outs, one_to_one=self.one_to_one)
        output = self.subject.output()
        table = not isinstance(output, Topic)
        merged = not isinstance(output, Topic) and output.merges
        merge = output.merge() if merged and isinstance(output, MergesRows) else None
        winners = Winners(merge, self.workload) if merge is not None else None
        return against_batch(oracle, look, table=table, merged=merged, winners=winners, sets_aside=output.sets_aside)

    def _to_the_end(self, scene: Scene) -> bool:
        """The rest of the input comes, and all of it is dealt with."""
        scene.send_tail()
        if not self.subject.endless and self.subject.running(0):
            # It planned its end before the rest came: let it end, then run it once more.
            if not scene.drain() or scene.refusal is not None:
                return scene.refusal is not None
            scene.start()
        elif not self.subject.running(0):
            scene.start()
        return scene.drain()

    # A faulted run --------------------------------------------------------------------------------------------------

    def applies(self, variant: Variant) -> str:
        """Empty when it does; else why not."""
        missing = sorted(need.value for need in variant.needs if need not in self.learned.met)
        if missing:
            return "needs " + "; ".join(missing)
        level = self.subject.level
        if level is not None and (level not in variant.levels or variant.fault.may_show(level) is None):
            return f"does not apply at level {level.value}"
        return ""

    def run(self, variant: Variant) -> Result:
        if why := self.applies(variant):
            return self._result(variant, State.NOT_APPLICABLE, why)
        self.tell(variant.title, None)
        began = time.time()
        scene = self.scene(variant)
        try:
            try:
                variant.play(scene)
            except NotFired as error:
                return self._told(self._result(variant, State.NOT_EXERCISED, str(error), scene, began))
            drained = self._to_the_end(scene)
            checked = audit(scene, self.oracle, drained)
            state, why, kept = judge(variant, scene, checked.findings)
            if state in (State.KEPT, State.OBSERVED) and (idle := scene.without_effect()):
                state, why = State.NOT_EXERCISED, f"never took effect: {idle}"
            return self._told(self._result(variant, state, why, scene, began, kept, len(checked.outs)))
        except (AtOnceError, OSError) as error:
            return self._told(self._result(variant, State.NOT_EXERCISED, f"could not be run: {error}", scene, began))
        finally:
            self._end(scene)

    def _told(self, result: Result) -> Result:
        self.tell(result.name, result)
        return result

    def _result(
        self,
        variant: Variant,
        state: State,
        why: str = "",
        scene: Scene | None = None,
        began: float = 0.0,
        findings: tuple[Finding, ...] = (),
        delivered: int = 0,
    ) -> Result:
        level = self.subject.level
        recovery = recovery_s(scene) if scene is not None else None
        return Result(
            fault=variant.fault.name,
            variant=f"{variant.name}{LARGE}" if self.large else variant.name,
            title=variant.fault.title,
            where=variant.fault.where,
            may_show=(variant.fault.may_show(level) or "") if level else "",
            state=state,
            why=why,
            expected=self.oracle.expected if self.oracle else 0,
            delivered=delivered,
            findings=findings,
            recovery_s=recovery,
            duration_s=time.time() - began if began else 0.0,
            struck=scene.struck if scene else "",
            notes=tuple(scene.notes) if scene else (),
            began_at=began,
            marks=tuple(scene.history.marks) if scene else (),
            records=len(self.workload.all),
            points=struck_in(scene) if scene is not None and state in RAN else (),
        )

    def close(self) -> None:
        self.subject.finish()
        if self._cluster is not None:
            self._cluster.close()


def longest_silence(scene: Scene) -> float:
    """Between two things that the subject wrote, once it had begun."""
    times = sorted(entry.at for entry in scene.history.of(*WRITES))
    return max((later - earlier for earlier, later in pairwise(times)), default=0.0)

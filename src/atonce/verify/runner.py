"""Runs a subject under faults, one after the other: fresh topics, inject, recover, drain, audit."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from atonce.connectors.contract import Feed, NotFired, Topic, Written
from atonce.errors import AtOnceError, UsageError
from atonce.guarantee import Guarantee
from atonce.verify.audit.audit import audit
from atonce.verify.audit.identity import Out, identify
from atonce.verify.audit.judge import judge, recovery_s
from atonce.verify.audit.readers import CommittedReader, Watch
from atonce.verify.audit.table_watch import TableWatch
from atonce.verify.checks.allowed import ALLOWED
from atonce.verify.checks.findings import Finding
from atonce.verify.checks.oracle import Checked, Look, against_batch, against_input
from atonce.verify.checks.output import Oracle, require_told_apart
from atonce.verify.faults.learn import Learned, learn
from atonce.verify.faults.variants import Variant
from atonce.verify.ground.feeds import TopicFeed
from atonce.verify.ground.harness import Harness
from atonce.verify.ground.workload import Workload
from atonce.verify.results import Result, State
from atonce.verify.scene import Limits, Scene
from atonce.verify.subject.contract import Names, Subject
from atonce.verify.wire.cluster import Cluster
from atonce.verify.wire.proxy import Proxy


@dataclass(slots=True, kw_only=True)
class Stage:
    """What stays the same from run to run."""

    subject: Subject
    harness: Harness
    proxy: Proxy
    workload: Workload
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
    oracle: Oracle | None = None
    learned: Learned = field(default_factory=Learned)
    checked: str = ""
    """How the clean run itself was checked."""
    _cluster: Cluster | None = None
    _run: int = 0

    @property
    def cluster(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self.harness.servers)
        return self._cluster

    # One run --------------------------------------------------------------------------------------------------------

    def scene(self, variant: Variant | None) -> Scene:
        self._run += 1
        title = f"{variant.fault.name}-{variant.name}" if variant else "clean"
        run = f"av{self.seed % 100000}-{self._run}-{title}".lower()
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
        feed, output = self._fed(), self.subject.output()
        written = None if isinstance(output, Topic) else output
        watch = self._watched(output) if isinstance(output, Topic) else None
        table_watch = TableWatch(written) if written is not None and not self.subject.endless else None
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
        )

    def _fed(self) -> Feed:
        """The first part of the input is there."""
        for topic in dict.fromkeys(self.fixed_topics or ()):
            self.cluster.delete_topic(topic)
        given = self.subject.input()
        feed = TopicFeed(self.cluster, given.name) if isinstance(given, Topic) else given
        feed.prepare(self.workload.partitions)
        feed.give(self.workload.head)
        return feed

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
        """The oracle: what comes out when nothing goes wrong, and what the subject is made of."""
        self.tell("clean run", None)
        began = time.time()
        scene = self.scene(None)
        scene.patience = 3.0
        scene.limits = replace(self.limits, drain_s=4 * self.limits.drain_s)
        try:
            scene.start()
            drained = self._to_the_end(scene)
            outs, findings = self._clean_audit(scene, drained)
            took = time.time() - (scene.history.marks[0].at if scene.history.marks else began)
            look = self.subject.look(self.workload)
            self.learned = learn(scene)
            if look is not None and self.final_only is None:
                # An aggregation that tells what changed: how often depends on where batches end, the last value not.
                self.final_only = look.stateful and look.mode != "append" and scene.watch is not None
            self.oracle = Oracle(outs, identify(self.identify), bool(self.final_only))
            require_told_apart(self.oracle)
            checked = self._check_oracle(self.oracle, look, scene.written)
            self.checked = checked.words
            self.limits = replace(
                self.limits,
                fire_s=max(self.limits.fire_s, 3 * took),
                drain_s=max(self.limits.drain_s, 4 * took),
            )
            bad = (*findings, *checked.findings)
            result = Result(
                fault="clean",
                variant="run",
                title="no fault: what a run without faults gives",
                where="",
                may_show="-",
                state=State.BROKEN if bad else State.KEPT,
                why="; ".join(f"{f.anomaly.value}: {f.examples[0]}" for f in bad),
                expected=self.oracle.expected,
                delivered=self.oracle.expected,
                findings=bad,
                duration_s=time.time() - began,
                began_at=began,
                marks=tuple(scene.history.marks),
            )
        finally:
            self._end(scene)
        self.tell("clean run", result)
        return result

    def _clean_audit(self, scene: Scene, drained: bool) -> tuple[tuple[Out, ...], list[Finding]]:
        checked = audit(scene, None, drained)
        if scene.refusal is not None or not drained:
            ended = scene.refusal or self.subject.ending(0)
            said = "\n".join([ended.words if ended else "", self.subject.last_words()])
            lines = list(dict.fromkeys(line for line in said.splitlines() if line.strip()))
            why = "\n".join(lines[-12:]) or "none"
            raise UsageError(
                f"the clean run did not come to its end, so there is nothing to compare with. Its last words:\n{why}"
            )
        return checked.outs, [f for f in checked.findings if f.anomaly not in ALLOWED[Guarantee.EFFECTIVELY_ONCE]]

    def _check_oracle(self, oracle: Oracle, look: Look | None, written: Written | None) -> Checked:
        if look is None:
            return against_input(self.workload, oracle.outs, one_to_one=self.one_to_one)
        return against_batch(oracle, look, table=written is not None, merged=written is not None and written.merges)

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
            variant=variant.name,
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
        )

    def close(self) -> None:
        self.subject.finish()
        if self._cluster is not None:
            self._cluster.close()

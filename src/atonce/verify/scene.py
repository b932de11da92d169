"""One run of one fault: everything a scenario can do to a subject, its broker and its wire."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from atonce.connectors.contract import Feed, NotFired, ScratchServer, Strike, Written
from atonce.delivery.events import Step
from atonce.errors import AtOnceError
from atonce.verify.audit.readers import Watch
from atonce.verify.audit.table_watch import TableWatch
from atonce.verify.faults.catalogue import Fault, Need
from atonce.verify.ground.harness import Harness
from atonce.verify.ground.workload import Workload
from atonce.verify.subject.contract import Ending, Hold, Names, Subject
from atonce.verify.wire.cluster import Cluster
from atonce.verify.wire.history import History
from atonce.verify.wire.proxy import Proxy
from atonce.verify.wire.rules import Action, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Each is stretched on a machine on which the clean run was slow."""

    fire_s: float = 25.0
    """How long a fault may wait for its moment."""
    drain_s: float = 45.0
    """How long a subject may take to come to the end after the fault has passed, before it counts as stuck."""
    quiet_s: float = 1.0
    """A command has come to the end when it has read everything and has written nothing for so long."""
    pace: float = 1.0
    """How much slower than usual the clean run was: every other wait is so much longer."""

    @classmethod
    def for_quiet(cls, quiet_s: float) -> Limits:
        """Of a command that may be silent for so long before it writes again: a fault waits for its moment, and the end
        for its output, longer than that."""
        usual = cls()
        return cls(fire_s=max(usual.fire_s, 5 * quiet_s), drain_s=max(usual.drain_s, 5 * quiet_s), quiet_s=quiet_s)


@dataclass(slots=True, kw_only=True)
class Scene:
    fault: Fault | None
    """None: the clean run."""
    variant: str
    names: Names
    cluster: Cluster
    proxy: Proxy
    harness: Harness
    history: History
    subject: Subject
    workload: Workload
    feed: Feed
    watch: Watch | None
    """On an output topic."""
    output_topics: tuple[str, ...]
    """Removed at the end of the run."""
    written: Written | None
    """Of an output that is no topic."""
    table_watch: TableWatch | None
    rng: random.Random
    limits: Limits
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many requests of each API the clean run sent: where a fault can strike."""
    needs: frozenset[Need] = frozenset()
    """What subject, broker and database are, as the clean run showed."""
    batches: int = 0
    """How many batches the clean run delivered of what was there at its start (AtOnce pipelines)."""
    final_only: bool = False
    """Only the last value of each key is judged: a fault in an early batch would be mended by later updates."""
    server: ScratchServer | None = None
    """The output's, where verify has made one ready."""
    struck: str = ""
    fault_at: float | None = None
    restarts: int = 0
    notes: list[str] = field(default_factory=list)
    refusal: Ending | None = None
    refusal_seen: Ending | None = None
    """The broker refused damaged files, and was then given the undamaged ones back."""
    served_damage: str = ""
    """The broker served what it should have refused."""
    input_removed: bool = False
    must_say: Step | None = None
    """What the subject leaves out it must say aloud, by this step."""
    must_refuse: str = ""
    """What an effectively-once pipeline may not go on over, although nothing is lost or doubled at once."""
    hanging: bool = False
    tail_sent: bool = False
    input_ends: dict[int, int] = field(default_factory=dict)
    after: list[Callable[[], None]] = field(default_factory=list)
    """Put right at the end of the run, whatever happens."""
    soon: bool = False
    """What is set up now must strike in the rest of the run."""
    beside: list[Strike] = field(default_factory=list)
    """Of the other fault of a pair: they strike when their moment comes."""
    commits_to_the_end: bool = False
    """In the clean run the subject's group had committed all its input in the end."""
    patience: float = 1.0
    """The clean run waits longer, to learn how long the subject is ever quiet."""
    sent_from_ms: int = 0
    """Output with a time from here on was given the time of sending."""
    input_topics: tuple[str, str] = ("", "")
    """The input's, and the one beside it."""
    rules: list[Rule] = field(default_factory=list)
    holds: list[tuple[Step, Hold]] = field(default_factory=list)
    _rows: tuple[int, float] | None = None
    _look_again_at: float = 0.0
    _caught_up_at: float | None = None

    # The fault ------------------------------------------------------------------------------------------------------

    def rule(self, *apis: str, action: Action, nth: int = 1, **more: Any) -> Rule:
        made = Rule(apis=frozenset(apis), action=action, nth=nth, **more)
        if self.beside:
            self._give_way(made)
        self.rules.append(self.proxy.add(made))
        return made

    def _give_way(self, rule: Rule) -> None:
        """The other fault of a pair has chosen its request already: this one takes the next."""
        first = rule.nth
        while self.proxy.collides(rule):
            rule.nth += 1
            if rule.nth > first + 8:
                raise NotFired(f"both faults of the pair strike the same requests ({', '.join(sorted(rule.apis))})")

    def armed(self, *apis: str, action: Action, nth: int | None = None, **more: Any) -> Rule:
        """A rule at a moment that surely comes."""
        return self.rule(*apis, action=action, nth=nth or self.some(*apis), **more)

    def inject(self, *apis: str, action: Action, nth: int | None = None, **more: Any) -> Rule:
        """Sets the rule, starts the subject and waits until the fault has struck."""
        rule = self.armed(*apis, action=action, nth=nth, **more)
        self.start()
        self.strike(rule)
        return rule

    def kill_subject(self) -> None:
        """For a rule to call: the instance under test dies at exactly that request."""
        self.subject.kill(0)

    def some(self, *apis: str, most: int = 6) -> int:
        """A moment that surely comes: the clean run sent at least that many of these."""
        if self.soon:
            return 1
        there = sum(self.counts.get(api, 0) for api in apis)
        return self.rng.randint(1, max(1, min(most, there * 2 // 3)))

    def some_batch(self) -> int:
        last = 1 if self.soon else max(1, self.batches)
        return last if self.final_only else self.rng.randint(1, last)

    def hold_at(self, step: Step, nth: int | None = None) -> Hold:
        hold = self.subject.hold_at(step, nth or self.some_batch())
        self.holds.append((step, hold))
        return hold

    def strike(self, rule: Rule | Strike) -> None:
        """Wait until the fault has struck, and remember when and where."""
        deadline = time.monotonic() + self.limits.fire_s
        while True:
            try:
                rule.wait(0.2)
                break
            except NotFired as error:
                ended = self.subject.ending(0)
                late = time.monotonic() > deadline
                if late or (rule.fired_at is None and ended and not self._revive(ended)):
                    if ended and not ended.refused:
                        raise NotFired(f"the subject ended first: {ended.words[-300:] or error}") from None
                    raise
        self.note_fault(rule.struck)

    def without_effect(self) -> str:
        """What was set up and never took effect, in words; empty when all of it did."""
        idle = [rule.words + (f": {rule.trouble}" if rule.trouble else "") for rule in self.proxy.without_effect()]
        idle += [
            strike.struck or "the other fault of the pair"
            for strike in self.beside
            if not isinstance(strike, Rule) and strike.fired_at is None
        ]
        return "; ".join(idle)

    def said(self, step: Step) -> bool:
        """The subject has told of this step."""
        return any(mark.what == "step" and mark.detail == step.value for mark in self.history.marks)

    def note_fault(self, words: str) -> None:
        self.fault_at = self.fault_at or time.time()
        self.struck = self.struck or words
        self.history.mark("fault", words)

    # The subject ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.proxy.positions.clear()
        self.subject.start(0)

    def kill(self) -> None:
        self.subject.kill(0)
        self.dismiss()

    def dismiss(self, members: set[str] | None = None) -> None:
        """The coordinator is told at once that a killed member is gone; by itself it waits for its session."""
        for group in self.history.groups():
            known = members if members is not None else self.members(group)
            if known:
                self.cluster.dismiss_members(group, sorted(known))

    def members(self, group: str | None = None) -> set[str]:
        joined = self.history.of("join_group", "sync_group", "consumer_group_heartbeat")
        return {
            member
            for entry in joined
            if group is None or entry.facts.group == group
            for member in (entry.facts.member, entry.facts.extra.get("member"))
            if member
        }

    def _revive(self, ended: Ending) -> bool:
        """What a supervisor does: a subject that died by itself is started again, some times."""
        if ended.refused or ended.code == 0 or self.restarts >= 8 or self.fault is None:
            return False  # without a fault nothing excuses an end
        self.restarts += 1
        self.notes.append(f"ended by itself and was started again: {ended.words[-200:]}")
        self.dismiss()
        self.start()
        return True

    # Coming to the end ----------------------------------------------------------------------------------------------

    def send_tail(self) -> None:
        if not self.tail_sent:
            self.tail_sent = True
            self.feed.give(self.workload.tail)
        self.input_ends = self.feed.ends()

    def until(self, done: Callable[[], bool], timeout_s: float, what: str) -> None:
        timeout_s *= self.limits.pace
        deadline = time.monotonic() + timeout_s
        while not done():
            if time.monotonic() > deadline:
                raise NotFired(f"{what} did not happen within {timeout_s:g} s")
            time.sleep(0.02)

    def drain(self) -> bool:
        """Everything that is there has been dealt with; False when the subject never gets there (stuck)."""
        deadline = time.monotonic() + self.limits.drain_s
        while time.monotonic() < deadline:
            ended = self.subject.ending(0)
            if ended is not None and ended.code == 0 and not self.subject.endless:
                self.history.mark("drained")
                return True
            if ended is not None:
                if ended.refused:
                    self.refusal = ended
                    return True
                if not self._revive(ended):
                    self.notes.append(f"the subject ended by itself: {ended.words[-300:]}")
                    return False
            if self.subject.endless and self._at_the_end():
                self.history.mark("drained")
                return True
            time.sleep(0.03)
        return False

    def _at_the_end(self) -> bool:
        at = self.proxy.positions
        if any(at.get((self.names.input, p), -1) < end for p, end in self.input_ends.items()):
            self._caught_up_at = None
            return False
        # What was read last may still be under way to the output: quiet counts from then on.
        self._caught_up_at = self._caught_up_at or time.time()
        quiet_since = max(
            self._caught_up_at, self.history.last_write_at(), self.last_seen_at(), self.table_changed_at()
        )
        if time.time() - quiet_since <= self.limits.quiet_s * self.patience:
            return False
        # One that commits to the end when nothing goes wrong may be waiting for something when it has not yet.
        return not self.commits_to_the_end or self.committed_to_the_end()

    def committed_to_the_end(self) -> bool:
        try:
            for group in self.history.groups():
                at = self.cluster.committed(group).get(self.names.input, {})
                if all(at.get(p, (0, ""))[0] >= end for p, end in self.input_ends.items()):
                    return True
        except (OSError, AtOnceError):
            pass  # the coordinator is moving; look again later
        return False

    def table_changed_at(self) -> float:
        """When the number of rows last changed, as far as we looked."""
        if self.written is None:
            return 0.0
        if time.monotonic() < self._look_again_at and self._rows is not None:
            return self._rows[1]
        began = time.monotonic()
        count = len(self.written.rows())
        if self._rows is None or self._rows[0] != count:
            self._rows = (count, time.time())
        # A look may be expensive, such as a command of the user's: it takes a fifth of the time at most.
        self._look_again_at = time.monotonic() + 5 * (time.monotonic() - began)
        return self._rows[1]

    def last_seen_at(self) -> float:
        seen = self.watch.reader.seen if self.watch else []
        return seen[-1].at if seen else 0.0

    def close(self) -> None:
        for put_right in reversed(self.after):
            try:
                put_right()
            except (OSError, AtOnceError) as error:
                self.notes.append(f"while putting things right: {error}")

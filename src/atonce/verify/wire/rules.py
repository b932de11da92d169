"""Rules for the proxy: which request, what to do with it, and whether it happened. Once, unless `times` says more.

A rule counts when it has *acted*: the request was cut, the late one was answered, the answer really was another one.
Firing alone says only that its request came. Of two rules on one request one could not act, so they are refused.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from atonce.connectors.contract import NotFired
from atonce.errors import InvariantError
from atonce.verify.wire.decode import Facts, Request


class Action(StrEnum):
    """What happens to the request that a rule picks."""

    DROP_REQUEST = "drop-request"  # the broker never sees it; the connection is cut
    DROP_RESPONSE = "drop-response"  # the broker acts on it; its answer is lost with the connection
    DELAY = "delay"  # call, and the connection is cut; the request reaches the broker when it is released
    DUPLICATE = "duplicate"  # the broker gets it twice
    STALL = "stall"  # call, and this connection stands still until released; then the broker gets it
    FAIL = "fail"  # answered with an error in the broker's name; the broker never sees it
    CALL_BEFORE = "call-before"  # call, and the broker never sees the request
    CALL_WITH = "call-with"  # pass it on and call at the same moment
    CALL_AFTER = "call-after"  # call when the broker has answered; the answer is lost
    CALL_BESIDE = "call-beside"  # call before it is passed on, then go on as if nothing had been
    CHANGE = "change"  # the broker acts on it; its answer says something else (fabricate.py)


@dataclass(slots=True, kw_only=True, eq=False)
class Rule:
    """Fires on the `nth` request that matches and, with `times`, on those after it. `acted`: it took effect."""

    apis: frozenset[str]
    action: Action
    nth: int = 1
    topic: str | None = None
    group: str | None = None
    transactional_id: str | None = None
    only_if: Callable[[Request, Facts], bool] | None = None
    call: Callable[[], None] | None = None
    change: Callable[[Request, Any], Any] | None = None
    """The answer's body → the body that the subject gets instead."""
    error: int = 0
    times: int = 1
    helps: bool = False
    """It goes along with another rule: whoever never sends such a request need not be struck by it."""
    seen: int = 0
    fired_at: float | None = None
    struck: str = ""
    """The request that it struck, in words."""
    answer: bytes | None = None
    """What the broker answered to a delayed or duplicated request."""
    acted: bool = False
    trouble: str = ""
    """Why it fired and had no effect."""
    _fired: threading.Event = field(default_factory=threading.Event)
    _done: threading.Event = field(default_factory=threading.Event)
    _called: threading.Event = field(default_factory=threading.Event)
    _release: threading.Event = field(default_factory=threading.Event)

    def matches(self, request: Request, facts: Facts) -> bool:
        """Counts; true for the nth, and for as many as `times` says."""
        if self.seen >= self.nth + self.times - 1 or request.api not in self.apis:
            return False
        if self.topic is not None and self.topic not in facts.topics:
            return False
        if self.group is not None and self.group != facts.group:
            return False
        if self.transactional_id is not None and self.transactional_id != facts.transactional_id:
            return False
        if self.only_if is not None and not self.only_if(request, facts):
            return False
        self.seen += 1
        return self.seen >= self.nth

    def fire(self, request: Request, facts: Facts) -> None:
        self.fired_at = time.time()
        where = ", ".join(filter(None, [*facts.topics, facts.group, facts.transactional_id]))
        self.struck = f"{request.api} v{request.version}" + (f" ({where})" if where else "")
        self._fired.set()

    @property
    def fired(self) -> bool:
        return self._fired.is_set()

    @property
    def spent(self) -> bool:
        """It strikes nothing any more."""
        return self.seen >= self.nth + self.times - 1

    def finish(self, trouble: str = "") -> None:
        """Its action is over: it took effect, or `trouble` says why not. One effect is enough where it fires often."""
        if trouble:
            self.trouble = self.trouble or trouble
        else:
            self.acted = True
        if self.acted or self.spent:
            self._done.set()

    def run_call(self) -> str:
        """What the scenario does at that moment; why it failed, if it did."""
        try:
            if self.call is not None:
                self.call()
        except Exception as error:  # whatever it is, it is told, and the run counts as not exercised
            self.trouble = self.trouble or f"{type(error).__name__}: {error}"
        finally:
            self._called.set()
        return self.trouble

    def collides(self, other: Rule) -> bool:
        """True when both would strike the same request. What `only_if` picks cannot be told before it comes."""
        if not self.apis & other.apis or self.only_if is not None or other.only_if is not None:
            return False
        mine = (self.topic, self.group, self.transactional_id)
        its = (other.topic, other.group, other.transactional_id)
        if mine != its or self.apis != other.apis:
            # They count different requests; one of them may well be the same.
            return all(one is None or two is None or one == two for one, two in zip(mine, its, strict=True))
        return self._next() < other._next() + other._left() and other._next() < self._next() + self._left()

    def _next(self) -> int:
        """How many more requests of its kind there are until it strikes."""
        return max(1, self.nth - self.seen)

    def _left(self) -> int:
        return min(self.times, self.nth + self.times - 1 - self.seen)

    @property
    def words(self) -> str:
        kind = ", ".join(sorted(self.apis))
        return f"{self.action.value} on request {self.nth} of {kind}" + (f" ({self.topic})" if self.topic else "")

    def wait(self, timeout_s: float) -> None:
        """Until the rule has fired and its action has had its effect."""
        if not self._fired.wait(timeout_s):
            apis = ", ".join(sorted(self.apis))
            raise NotFired(
                f"{self.action.value} on request {self.nth} of {apis} never happened within {timeout_s:g} s "
                f"({self.seen} such requests were seen)"
            )
        if self.action in (Action.DELAY, Action.STALL):  # done only when released
            if self.call is not None and not self._called.wait(timeout_s):
                raise NotFired(f"{self.action.value} began on {self.struck}, and what it calls has not ended")
            if self.trouble:
                self._require_effect()
            return
        if not self._done.wait(timeout_s):
            raise NotFired(f"{self.action.value} began on {self.struck} and did not end within {timeout_s:g} s")
        self._require_effect()

    def _require_effect(self) -> None:
        if not self.acted:
            raise NotFired(f"{self.action.value} on {self.struck} had no effect: {self.trouble}")

    def release(self) -> None:
        self._release.set()

    @property
    def released(self) -> bool:
        return self._release.is_set()

    def wait_released(self, timeout_s: float) -> None:
        """Until a delayed or stalled request has gone on its way."""
        if not self._done.wait(timeout_s):
            raise NotFired(f"{self.struck or 'the request'} was released and did not reach the broker")
        self._require_effect()


def refuse_collision(rule: Rule, others: Iterable[Rule]) -> None:
    """Of two rules on one request only the first would act, and the other would seem to have been tried."""
    for other in others:
        if not other.spent and rule.collides(other):
            raise InvariantError(
                f"two rules would strike one request: {rule.words}, and {other.words}. Next: give them different "
                "requests, or make them one rule (a STALL can call, too)."
            )

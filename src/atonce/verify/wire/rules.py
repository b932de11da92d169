"""Rules for the proxy: which request, what to do with it, and whether it happened. Once, unless `times` says more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from atonce.connectors.contract import NotFired
from atonce.verify.wire.decode import Facts, Request


class Action(StrEnum):
    """What happens to the request that a rule picks."""

    DROP_REQUEST = "drop-request"  # the broker never sees it; the connection is cut
    DROP_RESPONSE = "drop-response"  # the broker acts on it; its answer is lost with the connection
    DELAY = "delay"  # the connection is cut; the request reaches the broker when it is released
    DUPLICATE = "duplicate"  # the broker gets it twice
    STALL = "stall"  # this connection stands still until released
    FAIL = "fail"  # answered with an error in the broker's name; the broker never sees it
    CALL_BEFORE = "call-before"  # call, and the broker never sees the request
    CALL_WITH = "call-with"  # pass it on and call at the same moment
    CALL_AFTER = "call-after"  # call when the broker has answered; the answer is lost
    CALL_BESIDE = "call-beside"  # call before it is passed on, then go on as if nothing had been
    CHANGE = "change"  # the broker acts on it; its answer says something else (fabricate.py)


@dataclass(slots=True, kw_only=True, eq=False)
class Rule:
    """Fires on the `nth` request that matches and, with `times`, on those after it. `fired` says that it did."""

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
    seen: int = 0
    fired_at: float | None = None
    struck: str = ""
    """The request that it struck, in words."""
    answer: bytes | None = None
    """What the broker answered to a delayed or duplicated request."""
    _fired: threading.Event = field(default_factory=threading.Event)
    _done: threading.Event = field(default_factory=threading.Event)
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

    def finish(self) -> None:
        self._done.set()

    def wait(self, timeout_s: float) -> None:
        """Until the rule has fired and its action is done."""
        if not self._fired.wait(timeout_s):
            apis = ", ".join(sorted(self.apis))
            raise NotFired(
                f"{self.action.value} on request {self.nth} of {apis} never happened within {timeout_s:g} s "
                f"({self.seen} such requests were seen)"
            )
        if self.action in (Action.DELAY, Action.STALL):
            return  # done only when released
        if not self._done.wait(timeout_s):
            raise NotFired(f"{self.action.value} began on {self.struck} and did not end within {timeout_s:g} s")

    def release(self) -> None:
        self._release.set()

    @property
    def released(self) -> bool:
        return self._release.is_set()

    def wait_released(self, timeout_s: float) -> None:
        """Until a delayed or stalled request has gone on its way."""
        if not self._done.wait(timeout_s):
            raise NotFired(f"{self.struck or 'the request'} was released and did not reach the broker")

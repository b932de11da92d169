"""Fetch sessions (KIP-227): a consumer names its partitions once, and afterwards only what has changed.

The answer to an incremental fetch names only partitions with news. A session is found by its id and must be continued
with its next epoch; whatever does not fit is answered with an error that makes the client begin a new one.
"""

from __future__ import annotations

import random
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from atonce.broker.messages import ErrorCode

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
NO_SESSION = 0
_MAX_EPOCH = 2**31 - 1
# A session that was used this recently is not pushed out by a new one.
_EVICTION_S = 120.0

# (topic name or id, partition)
Key = tuple[str | UUID, int]


@dataclass(slots=True)
class Wanted:
    """One partition of a fetch, and what the client was last told about it."""

    topic: str | UUID
    partition: int
    fetch_offset: int
    max_bytes: int
    leader_epoch: int
    last_fetched_epoch: int
    told: tuple[int, ...] | None = None  # what the last answer said besides records

    @property
    def key(self) -> Key:
        return (self.topic, self.partition)


@dataclass(slots=True)
class Session:
    session_id: int
    epoch: int
    partitions: OrderedDict[Key, Wanted] = field(default_factory=OrderedDict)
    used_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Opened:
    """What to read for a request, and whether only news go into the answer."""

    error: ErrorCode
    wanted: list[Wanted]
    session: Session | None = None
    incremental: bool = False

    @property
    def session_id(self) -> int:
        return self.session.session_id if self.session is not None else NO_SESSION


class FetchSessions:
    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: OrderedDict[int, Session] = OrderedDict()  # the longest unused first

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, session_id: int, epoch: int, wanted: list[Wanted], forgotten: Iterable[Key]) -> Opened:
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if session_id != NO_SESSION:
                self._sessions.pop(session_id, None)
            if epoch == FINAL_EPOCH:
                return Opened(ErrorCode.none, wanted)
            return Opened(ErrorCode.none, wanted, self._begin(wanted))
        session = self._sessions.get(session_id)
        if session is None:
            return Opened(ErrorCode.fetch_session_id_not_found, [])
        if session.epoch != epoch:
            return Opened(ErrorCode.invalid_fetch_session_epoch, [])
        for key in forgotten:
            session.partitions.pop(key, None)
        for update in wanted:
            known = session.partitions.get(update.key)
            if known is not None:
                update.told = known.told
            session.partitions[update.key] = update
        session.epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
        session.used_at = time.monotonic()
        self._sessions.move_to_end(session_id)
        return Opened(ErrorCode.none, list(session.partitions.values()), session, True)

    def _begin(self, wanted: list[Wanted]) -> Session | None:
        """A new session, or None when all slots are taken by busy ones: the client then sends full fetches."""
        now = time.monotonic()
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.used_at < _EVICTION_S:
                return None
            del self._sessions[oldest.session_id]
        while True:
            session_id = random.randrange(1, 2**31 - 1)
            if session_id not in self._sessions:
                break
        session = Session(session_id, INITIAL_EPOCH + 1, OrderedDict((one.key, one) for one in wanted), now)
        self._sessions[session_id] = session
        return session

    @staticmethod
    def rotate(session: Session, served: Iterable[Key]) -> None:
        """Partitions that gave records go to the end, so that a full answer does not starve the others."""
        for key in served:
            if key in session.partitions:
                session.partitions.move_to_end(key)

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
# A consumer needs one session on its connection.
_PER_CONNECTION = 4
# Partitions that all sessions may remember: about 50 MB.
_MOST_PARTITIONS = 200_000

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
    owner: int = 0  # the connection that began it


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
        self._owned: dict[int, list[int]] = {}  # by connection, the oldest first
        self._orphans: OrderedDict[int, None] = OrderedDict()  # those whose connection is gone
        self._sessions: OrderedDict[int, Session] = OrderedDict()  # the longest unused first

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, session_id: int, epoch: int, wanted: list[Wanted], forgotten: Iterable[Key], owner: int = 0
    ) -> Opened:
        """`owner` is the connection: one of them keeps a few sessions, so nobody takes all slots."""
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if session_id != NO_SESSION:
                self._drop(session_id)
            if epoch == FINAL_EPOCH:
                return Opened(ErrorCode.none, wanted)
            return Opened(ErrorCode.none, wanted, self._begin(wanted, owner))
        session = self._sessions.get(session_id)
        if session is None:
            return Opened(ErrorCode.fetch_session_id_not_found, [])
        if session.epoch != epoch:
            return Opened(ErrorCode.invalid_fetch_session_epoch, [])
        for key in forgotten:
            session.partitions.pop(key, None)
        if wanted and self._partitions() + len(wanted) > _MOST_PARTITIONS:
            self._drop(session_id)
            return Opened(ErrorCode.fetch_session_id_not_found, [])
        for update in wanted:
            known = session.partitions.get(update.key)
            if known is not None:
                update.told = known.told
            session.partitions[update.key] = update
        session.epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
        session.used_at = time.monotonic()
        self._sessions.move_to_end(session_id)
        return Opened(ErrorCode.none, list(session.partitions.values()), session, True)

    def connection_closed(self, owner: int) -> None:
        """Its sessions may be continued by another connection of the client, but go first when slots are wanted."""
        self._orphans.update(dict.fromkeys(self._owned.pop(owner, ())))

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        self._orphans.pop(session_id, None)
        if session is not None and session_id in self._owned.get(session.owner, ()):
            self._owned[session.owner].remove(session_id)
            if not self._owned[session.owner]:
                del self._owned[session.owner]

    def _has_room(self, wanted: int, now: float) -> bool:
        """Make room by giving up sessions that nobody misses; False if there is none."""
        while len(self._sessions) >= self._slots or self._partitions() + wanted > _MOST_PARTITIONS:
            oldest = next(iter(self._sessions.values()), None)
            if self._orphans:
                self._drop(next(iter(self._orphans)))
            elif oldest is not None and now - oldest.used_at >= _EVICTION_S:
                self._drop(oldest.session_id)
            else:
                return False
        return True

    def _partitions(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def _begin(self, wanted: list[Wanted], owner: int) -> Session | None:
        """A new session, or None when all slots are taken by busy ones: the client then sends full fetches."""
        now = time.monotonic()
        mine = self._owned.get(owner, [])
        if len(mine) >= _PER_CONNECTION:
            self._drop(mine[0])
        if not self._has_room(len(wanted), now):
            return None
        while True:
            session_id = random.randrange(1, 2**31 - 1)
            if session_id not in self._sessions:
                break
        session = Session(session_id, INITIAL_EPOCH + 1, OrderedDict((one.key, one) for one in wanted), now, owner)
        self._sessions[session_id] = session
        self._owned.setdefault(owner, []).append(session_id)
        return session

    @staticmethod
    def rotate(session: Session, served: Iterable[Key]) -> None:
        """Partitions that gave records go to the end, so that a full answer does not starve the others."""
        for key in served:
            if key in session.partitions:
                session.partitions.move_to_end(key)

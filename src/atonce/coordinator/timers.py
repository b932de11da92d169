"""Deadlines by key: set, move, cancel, and take what is due. A heap with stale entries skipped."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Timers(Generic[K]):
    def __init__(self) -> None:
        self._deadlines: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._order = 0

    def set(self, key: K, deadline_ms: int) -> None:
        if self._deadlines.get(key) == deadline_ms:
            return
        self._deadlines[key] = deadline_ms
        self._order += 1  # keys need no order of their own
        heapq.heappush(self._heap, (deadline_ms, self._order, key))
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._deadlines):
            self._heap = [entry for entry in self._heap if self._deadlines.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)

    def cancel(self, key: K) -> None:
        self._deadlines.pop(key, None)

    def deadline(self, key: K) -> int | None:
        return self._deadlines.get(key)

    def next_deadline_ms(self) -> int | None:
        while self._heap:
            deadline_ms, _, key = self._heap[0]
            if self._deadlines.get(key) == deadline_ms:
                return deadline_ms
            heapq.heappop(self._heap)
        return None

    def due(self, now_ms: int) -> K | None:
        """The key whose deadline passed first, or None. It stays due until it is set again or cancelled."""
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is None or deadline_ms > now_ms:
            return None
        return self._heap[0][2]

"""Is it the same topic as before? A topic that was deleted and made again has its name, and another id."""

from __future__ import annotations

import time

from atonce.client.cluster import Cluster
from atonce.client.read.ranges import Wanted

PATIENCE_MS = 5_000
"""A broker may not know of a topic for a moment after it was made, or still know the one before it."""


class Identity:
    """Of one range's topic, over all its fetches."""

    def __init__(self, cluster: Cluster, wanted: Wanted) -> None:
        self._cluster, self._wanted = cluster, wanted
        self.topic_id = wanted.topic_id
        """Fetches ask for this topic; None: for the name."""
        self._doubted_since: float | None = None

    def confirmed(self) -> None:
        self._doubted_since = None

    def doubted(self, error: str) -> str | None:
        """A broker does not know the id. None as long as this may pass; then what became of the topic, in words."""
        now = time.monotonic()
        self._doubted_since = now if self._doubted_since is None else self._doubted_since
        found = self._cluster.topic(self._wanted.topic, refresh=True)
        if (found is not None and found.id == self._wanted.topic_id) or now - self._doubted_since < PATIENCE_MS / 1000:
            return None
        lost = f"{self._wanted}: offset {self._wanted.start} and on are wanted of the topic with id "
        if found is None:
            return f"{lost}{self._wanted.topic_id}, but it was deleted, and there is none of its name ({error})."
        return (
            f"{lost}{self._wanted.topic_id}, but the topic of that name has id {found.id} now: it was deleted and "
            "made again, so its offsets mean other records."
        )

    def given_up(self) -> None:
        """Go on with whatever has the name."""
        self.topic_id = None
        self._doubted_since = None

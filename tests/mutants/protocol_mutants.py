"""Drivers of transaction protocol 1 with one thing wrong each. Run in the place of `atonce.verify.subject.worker`.

`protocol_mutants.py NAME ADDRESS TOKEN MASTER CONF`
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any


def no_fence() -> None:
    """Nothing of the new epoch stands in the partitions before they are written to."""
    from atonce.client.epoch_per_batch import EpochPerBatch

    def fence(self: Any, places: Iterable[Any]) -> None:
        self._fenced |= set(places)

    EpochPerBatch._fence = fence  # type: ignore[method-assign]


def bump_too_late() -> None:
    """The epoch is raised when the next attempt begins, and not when the last one has ended."""
    from atonce.client.epoch_per_batch import EpochPerBatch

    bump, ready = EpochPerBatch._next_epoch, EpochPerBatch.ready

    def bump_then_ready(self: Any) -> None:
        bump(self, 20_000)
        ready(self)

    EpochPerBatch._next_epoch = lambda self, _: self._forget()  # type: ignore[method-assign]
    EpochPerBatch.ready = bump_then_ready  # type: ignore[method-assign]


def grant_after_end() -> None:
    """A task is granted a partition between EndTxn and the next epoch: the round was closed too late."""
    from atonce.client.epoch_per_batch import EpochPerBatch

    end = EpochPerBatch._send_end

    def end_and_grant(self: Any, commit: bool, timeout_ms: int) -> Any:
        answer = end(self, commit, timeout_ms)
        if commit:
            self._add(set(self._added))
        return answer

    EpochPerBatch._send_end = end_and_grant  # type: ignore[method-assign]


def added_not_cleared() -> None:
    """What was added to a transaction once is believed to be in every later one."""
    from atonce.client.epoch_per_batch import EpochPerBatch

    ever: set[Any] = set()

    def grant(self: Any, place: Any, producer_id: int, epoch: int) -> None:
        self._add({place} - ever)
        ever.add(place)

    EpochPerBatch.grant = grant  # type: ignore[method-assign]


def few_epochs() -> None:
    """No mutant: the epochs of a producer id run out after a few batches, as `protocol_ground` has them."""
    from atonce.client import epoch_per_batch

    epoch_per_batch.ROTATE_FROM_EPOCH = 6


MUTANTS: dict[str, Callable[[], None]] = {
    made.__name__.replace("_", "-"): made
    for made in (no_fence, bump_too_late, grant_after_end, added_not_cleared, few_epochs)
}

if __name__ == "__main__":
    name = sys.argv.pop(1)
    if name != "healthy":
        MUTANTS[name]()
    from atonce.verify.subject.worker import main

    main()

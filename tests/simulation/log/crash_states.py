"""Run something on a forgetful storage; before each of its operations cut the power on copies, reopen, check.

ATONCE_CRASH_STATE=operation:subset in the environment runs one case only; a failure prints that pair.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

from tests.simulation.log.forgetful import ForgetfulStorage

ONLY = os.environ.get("ATONCE_CRASH_STATE")

Check = Callable[[ForgetfulStorage, str], None]


def crash_images(storage: ForgetfulStorage, operation: int, subsets: int) -> list[tuple[str, ForgetfulStorage]]:
    """Killed (the kernel keeps everything), everything unsynced gone, and some subsets in between."""
    images = [("killed", storage.killed), ("nothing", lambda: storage.power_cut(None))]
    for seed in range(subsets):
        rng = random.Random(operation * 1000 + seed)
        images.append((str(seed), lambda rng=rng: storage.power_cut(rng)))  # type: ignore[misc]
    return [(name, make()) for name, make in images if ONLY in (None, f"{operation}:{name}")]


def check_every_operation(
    storage: ForgetfulStorage, run: Callable[[], None], check: Check, *, subsets: int, first: int = 1
) -> int:
    """Returns how many operations there were. `check` sees what the run has acknowledged up to that moment."""

    def before_step(operation: int) -> None:
        if operation < first:
            return
        for name, image in crash_images(storage, operation, subsets):
            try:
                check(image, name)
            except Exception as error:
                raise AssertionError(
                    f"operation {operation} ({storage.history[-1]}), subset {name}: {type(error).__name__}: {error}; "
                    f"replay with ATONCE_CRASH_STATE={operation}:{name}"
                ) from error

    storage.before_step = before_step
    run()
    before_step(storage.operations + 1)
    return storage.operations

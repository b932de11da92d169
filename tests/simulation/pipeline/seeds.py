"""Where seeds come from: any text gives the same ones in the same order."""

from __future__ import annotations

import random
from collections.abc import Iterator


def seeds(first: str) -> Iterator[int]:
    rng = random.Random(f"seeds {first}")
    while True:
        yield rng.randrange(1 << 40)

"""Fill the compiler's cache: `python -m atonce.records.warm`, so that no worker's first task waits for a compiler."""

from __future__ import annotations

import importlib
import sys
import time

COMPILED = (
    "atonce.records.headers",
    "atonce.records.columns",
    "atonce.records.partitioner",
    "atonce.records.encode",
    "atonce.records.walk_compiled",
)


def warm() -> float:
    """Seconds spent. Signatures are explicit, so importing a module compiles it, or loads what was compiled before."""
    begun = time.monotonic()
    for name in COMPILED:
        importlib.import_module(name)
    return time.monotonic() - begun


if __name__ == "__main__":
    print(f"compiled codec ready after {warm():.1f} s", file=sys.stderr)

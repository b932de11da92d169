"""Spark's Python worker daemon, with the imports that every task needs already done before it forks.

Named by `spark.python.daemon.module`. A worker forked from here starts its first task in milliseconds; without it each
new worker pays about two seconds for pyarrow, numba and the compiled codec. Spark's planners have daemons of their own.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
from collections.abc import Callable
from typing import Any

# No thread may exist when the daemon forks: OpenBLAS and OpenMP would start theirs on import.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
# Arrow would give a buffer's memory back to the system after 10 ms, and to touch new memory costs as much as filling
# it. What a task reads next needs the same buffers again.
os.environ.setdefault("MIMALLOC_PURGE_DELAY", "2000")

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 64 << 20
PRELOADED = (
    "numpy",
    "pyarrow",
    "pyarrow.compute",
    "pyspark.worker",
    "pyspark.sql.pandas.types",
    "atonce.connectors.kafka.read.stream",
    "atonce.client.read.fetch",
    "atonce.connectors.kafka.write.send",
    "atonce.connectors.sql.postgres.task",
)


def preload() -> None:
    for name in PRELOADED:
        # A worker that cannot import something says so itself, in the task that needs it.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # Spark's workers collect garbage after every task; what was loaded here is none, and need not be looked at again.
    gc.collect()
    gc.freeze()


def keep_memory() -> None:
    """The C library, too, keeps what was freed, for buffers from the network and of NumPy. Only where it is glibc."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        libc.mallopt(_MMAP_THRESHOLD, _KEPT_BYTES // 2)


def until_the_jvm_is_gone(worker: Callable[..., int]) -> Callable[..., int]:
    """A worker whose JVM has ended has nobody left to tell; Spark's own would print a stack trace."""

    def quiet(*arguments: Any) -> int:
        try:
            return worker(*arguments)
        except BrokenPipeError:
            return 1

    return quiet


if __name__ == "__main__":
    import pyspark.daemon

    pyspark.daemon.worker = until_the_jvm_is_gone(pyspark.daemon.worker)
    keep_memory()
    preload()
    pyspark.daemon.manager()

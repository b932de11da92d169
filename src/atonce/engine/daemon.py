"""Spark's Python worker daemon, with the imports that every task needs already done before it forks.

Named by `spark.python.daemon.module`. A worker forked from here starts its first task in milliseconds; without it each
new worker pays about two seconds for pyarrow, numba and the compiled codec. Spark runs one daemon per kind of worker and
passes its module as the argument; the planners need less than the tasks do.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys

# No thread may exist when the daemon forks: OpenBLAS and OpenMP would start theirs on import.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

TASKS = "pyspark.worker"
FOR_TASKS = (
    "numpy",
    "pyarrow",
    "pyarrow.compute",
    "pyspark.worker",
    "pyspark.sql.pandas.types",
    "atonce.engine.source",
    "atonce.sinks.kafka_send",
)
FOR_PLANNERS = ("atonce.engine.source",)


def preload(worker_module: str) -> None:
    for name in FOR_TASKS if worker_module == TASKS else FOR_PLANNERS:
        # A worker that cannot import something says so itself, in the task that needs it.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


if __name__ == "__main__":
    from pyspark.daemon import manager

    preload(sys.argv[1] if len(sys.argv) > 1 else TASKS)
    manager()

"""Spark's classes, loaded and checked once and kept: the JVM then starts with two fifths less CPU.

`python -m atonce.spark.start.class_archive` makes the archive (Java's class data sharing) in the user's cache by
running a small session; `make setup` does that. Sessions use it when it is there; Java itself ignores one that does
not fit.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

TRAINING = "atonce.connectors.kafka.training"
"""A small session over topics, run as a program: it touches what pipelines use."""
QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"


_PYSPARK_OF = ".pyspark"
"""Beside each archive, the path of the PySpark that it was made for."""


def archive_file() -> Path:
    """Where the archive for this PySpark and this Java is kept, whether it is there or not."""
    import pyspark

    from atonce.local.java import find_java

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    fits = f"{_pyspark()} {pyspark.__version__} {find_java().home}"
    return cache / "atonce" / "class-archive" / f"{hashlib.sha256(fits.encode()).hexdigest()[:16]}.jsa"


def java_options() -> str:
    """What a session passes to its JVM: nothing when there is no archive."""
    file = archive_file()
    return f"-XX:SharedArchiveFile={file} {QUIET}" if file.exists() else ""


def make() -> Path:
    """Run a session that touches what pipelines use; its JVM writes the archive when it ends."""
    file = archive_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(f".{os.getpid()}.draft")
    try:
        command = [sys.executable, "-m", TRAINING, str(draft)]
        trained = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=300)
        if trained.returncode:
            raise SystemExit(f"training ended with {trained.returncode}:\n{trained.stderr[-3000:]}")
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
    file.with_suffix(_PYSPARK_OF).write_text(_pyspark())
    remove_orphans(file.parent)
    return file


def remove_orphans(folder: Path) -> None:
    """An archive takes 180 MB, and nobody can use it any more when the environment that it was made for is gone."""
    for note in folder.glob(f"*{_PYSPARK_OF}"):
        if not Path(note.read_text()).exists():
            note.with_suffix(".jsa").unlink(missing_ok=True)
            note.unlink(missing_ok=True)


def _pyspark() -> str:
    import pyspark

    return str(Path(pyspark.__file__).parent)


if __name__ == "__main__":
    print(f"class archive in {make()}")

"""The programs we compare with, fetched and built for the benchmark only. Sources are in `bench/` of the checkout."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from atonce.errors import AtOnceError, UsageError
from atonce.local.java import find_compiler, find_java
from atonce.local.servers.jars import cache_root, classpath, jars
from atonce.local.servers.pins import FLINK, KAFKA, SPARK_CONNECTOR, STREAMS, Bundle

ROOT = Path(__file__).resolve().parents[1]
SPARK_VERSION = "4.2.0"
QUIX_VERSION = "3.28.0"
HEAP = "-Xmx1g"


class PeerMissing(AtOnceError):
    """A peer could not be built or fetched."""


def programs() -> Path:
    """The folder of the peers' sources."""
    folder = ROOT / "bench"
    if not folder.is_dir():
        raise UsageError("peers' sources are in the bench/ folder of a checkout, and this is not one: use --peers none")
    return folder


def java_program(name: str, *bundles: Bundle) -> list[str]:
    """The command that runs bench/java/NAME.java, compiled once per change of its source."""
    return java_command(programs() / "java" / f"{name}.java", *bundles)


def java_command(source: Path, *bundles: Bundle) -> list[str]:
    path = classpath(*bundles)
    mark = hashlib.sha256(source.read_bytes() + path.encode()).hexdigest()[:16]
    classes = cache_root() / "classes" / f"{source.stem}-{mark}"
    if not (classes / f"{source.stem}.class").exists():
        classes.mkdir(parents=True, exist_ok=True)
        command = [find_compiler(), "-nowarn", "-d", str(classes), "-cp", path, str(source)]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if answer.returncode != 0:
            raise PeerMissing(f"{source.name} does not compile:\n{answer.stderr[-1500:]}")
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return [find_java().command, HEAP, quiet, "-cp", os.pathsep.join([str(classes), path]), source.stem]


def java_loop(servers: str, source: str, target: str, group: str, per_transaction: int, longest_ms: int) -> list[str]:
    return [*java_program("CopyLoop", KAFKA), servers, source, target, group, str(per_transaction), str(longest_ms)]


def streams(servers: str, source: str, target: str, group: str, commit_ms: int, scratch: Path) -> list[str]:
    return [*java_program("StreamsCopy", KAFKA, STREAMS), servers, source, target, group, str(commit_ms), str(scratch)]


def flink(servers: str, source: str, target: str, group: str, checkpoint_ms: int, scratch: Path) -> list[str]:
    return [*java_program("FlinkCopy", FLINK), servers, source, target, group, str(checkpoint_ms), str(scratch)]


def quix(servers: str, source: str, target: str, group: str, commit_s: float, scratch: Path) -> list[str]:
    program = str(programs() / "python" / "quix_copy.py")
    return [str(quix_python()), program, servers, source, target, group, str(commit_s), str(scratch)]


def librdkafka_loop(
    servers: str, source: str, target: str, group: str, per_transaction: int, longest_ms: int
) -> list[str]:
    program = str(programs() / "python" / "librdkafka_copy.py")
    return [sys.executable, program, servers, source, target, group, str(per_transaction), str(longest_ms)]


def spark(servers: str, source: str, target: str, checkpoint: Path, per_batch: int) -> list[str]:
    """Spark with its own JVM connector: the last version whose connector can be had, in an environment of its own."""
    program = str(programs() / "python" / "spark_copy.py")
    listed = ",".join(str(path) for path in jars(SPARK_CONNECTOR))
    return [str(spark_python()), program, servers, source, target, str(checkpoint), listed, str(per_batch)]


def spark_python() -> Path:
    """PySpark with its own connector, in an environment of its own."""
    return _python_with(SPARK_VERSION, ROOT / ".venv-spark42", peer="spark")


def quix_python() -> Path:
    """Quix Streams brings its own pins, so it has an environment of its own too."""
    return _python_with(QUIX_VERSION, ROOT / ".venv-quix", peer="quix")


def _python_with(version: str, folder: Path, *, peer: str) -> Path:
    """The interpreter of a peer's environment, made on first use from files whose checksums are known."""
    pinned = programs() / "python" / f"requirements-{peer}.txt"
    python = folder / "bin" / "python"
    ready = folder / f".ready-{version}"
    if not ready.exists():
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            [str(python), "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(pinned)],
        ):
            answer = subprocess.run(command, capture_output=True, text=True, timeout=1200)
            if answer.returncode != 0:
                raise PeerMissing(
                    f"what {pinned.name} pins could not be installed into {folder.name}: {answer.stderr[-500:]}. "
                    f"Check the network, or leave `{peer}` out of --peers."
                )
        ready.touch()
    return python


def environment() -> dict[str, str]:
    """For every contestant alike: nothing of ours leaks into a peer's Spark, but where this package is found."""
    env = {key: value for key, value in os.environ.items() if key not in ("SPARK_HOME", "PYSPARK_PYTHON", "PYTHONPATH")}
    return {**env, "JAVA_HOME": find_java().home, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)}

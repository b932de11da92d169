"""Writes the lock file of one version of Apache Kafka: every jar that its broker needs, with the bytes found today.

python scripts/lock_kafka.py 3.9.2
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from atonce.local.java import find_java
from atonce.local.servers import jars

LOCKS = Path(jars.__file__).parent / "locks"
LOGGER = ("org.slf4j", "slf4j-simple", "1.7.36")
"""Writes to standard error; Kafka's own choice would need a settings file."""
OTHER_LOGGERS = ("slf4j-reload4j", "log4j-slf4j-impl")


def lock(version: str) -> None:
    with tempfile.TemporaryDirectory(prefix="atonce-lock-") as folder:
        _retrieve([("org.apache.kafka", "kafka_2.13", version), LOGGER], Path(folder))
        lines = sorted(_line(path) for path in Path(folder).glob("*.jar"))
    kept = [line for line in lines if not any(f":{name}:" in line for name in OTHER_LOGGERS)]
    head = f"# Apache Kafka {version}: the broker, its tools for formatting, the Java client, and a logger."
    (LOCKS / f"kafka-{version}.lock").write_text("\n".join([head, *kept]) + "\n")
    print(f"{version}: {len(kept)} jars")


def _retrieve(modules: list[tuple[str, ...]], into: Path) -> None:
    wanted = into / "ivy.xml"
    wanted.write_text(jars._ivy_file(modules, transitive=True))
    pattern = f"{into}/[organisation]=[artifact]=[revision]=([classifier]).[ext]"
    cache = ["-cache", str(jars.cache_root() / "ivy"), "-ivy", str(wanted), "-types", "jar", "bundle"]
    subprocess.run([*jars._ivy(find_java()), *cache, "-retrieve", pattern], check=True, capture_output=True)


def _line(path: Path) -> str:
    module = path.stem.replace("=", ":").rstrip(":")
    return f"{module} {hashlib.sha256(path.read_bytes()).hexdigest()}"


if __name__ == "__main__":
    for each in sys.argv[1:]:
        lock(each)

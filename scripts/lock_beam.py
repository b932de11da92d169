"""Writes the lock file of Apache Beam: every jar that Beam's Flink runner and KafkaIO need, with the bytes found today.

python scripts/lock_beam.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lock_kafka import LOCKS, LOGGER, OTHER_LOGGERS, _line

from atonce.local.java import find_java
from atonce.local.servers import jars

VERSION, FLINK = "2.70.0", "1.19"
KAFKA_CLIENTS = "3.9.1"
"""KafkaIO leaves the client to its user; the pom's own default is older than transactions as we know them."""
NOT_NEEDED = (
    ("io.confluent", "*"),
    ("com.google.cloud.hosted.kafka", "*"),
    ("com.github.erosb", "*"),
    ("org.apache.beam", "beam-runners-java-job-service"),
)
"""Schema registries, a cloud's logins, a server for jobs of other languages: nothing here uses them."""
LOCK = LOCKS / f"beam-{VERSION}.lock"


def lock() -> None:
    modules = [
        ("org.apache.beam", f"beam-runners-flink-{FLINK}", VERSION),
        ("org.apache.beam", "beam-sdks-java-io-kafka", VERSION),
        ("org.apache.kafka", "kafka-clients", KAFKA_CLIENTS),
        LOGGER,
    ]
    with tempfile.TemporaryDirectory(prefix="atonce-lock-") as folder:
        wanted = Path(folder) / "ivy.xml"
        left_out = "".join(f'<exclude org="{org}" module="{module}"/>' for org, module in NOT_NEEDED)
        described = jars._ivy_file(modules, transitive=True).replace("</dependencies>", f"{left_out}</dependencies>")
        wanted.write_text(described)
        pattern = f"{folder}/[organisation]=[artifact]=[revision]=([classifier]).[ext]"
        cache = ["-cache", str(jars.cache_root() / "ivy"), "-ivy", str(wanted), "-types", "jar", "bundle"]
        done = subprocess.run(
            [*jars._ivy(find_java()), *cache, "-retrieve", pattern], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            sys.exit(done.stdout[-3000:] + done.stderr[-1000:])
        lines = sorted(_line(path) for path in Path(folder).glob("*.jar"))
    kept = [line for line in lines if not any(f":{name}:" in line for name in OTHER_LOGGERS)]
    head = f"# Apache Beam {VERSION}: its runner on Flink {FLINK}, KafkaIO, Kafka's client, and a logger."
    LOCK.write_text("\n".join([head, *kept]) + "\n")
    print(f"{LOCK.name}: {len(kept)} jars")


if __name__ == "__main__":
    lock()

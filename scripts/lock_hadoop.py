"""Writes the lock files of what the tests of remote checkpoints run: Hadoop's S3 client with the parts of the AWS SDK
that it uses, Spark's module for clouds, and HDFS in one process.

python scripts/lock_hadoop.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from lock_kafka import LOCKS, _line, _retrieve

from atonce.local.servers import jars

HADOOP = "3.5.0"
"""As in the PySpark that .venv has."""
SDK = "2.35.4"
CLOUD = "4.1.2"
"""The newest of Spark's module for clouds that has been published; its classes are the same for 4.1 to 4.3."""
PARTS = ("s3", "sts", "s3-transfer-manager", "netty-nio-client", "apache-client")
THEIRS = ("software.amazon", "org.reactivestreams")
"""Everything else that the SDK asks for comes with Spark."""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="atonce-lock-") as folder:
        _retrieve([("software.amazon.awssdk", part, SDK) for part in PARTS], Path(folder))
        sdk = [_line(path) for path in Path(folder).glob("*.jar") if path.name.startswith(THEIRS)]
    s3 = [
        ("org.apache.hadoop", "hadoop-aws", HADOOP),
        ("org.apache.spark", "spark-hadoop-cloud_2.13", CLOUD),
        ("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", "1.3.1"),
    ]
    _write(f"s3a-{HADOOP}", "Hadoop's S3 client, Spark's module for clouds.", [*sdk, *_lines(s3)])
    _write(
        f"hdfs-{HADOOP}", "HDFS in one process.", _lines([("org.apache.hadoop", "hadoop-client-minicluster", HADOOP)])
    )


def _lines(modules: list[tuple[str, str, str]]) -> list[str]:
    import hashlib

    with tempfile.TemporaryDirectory(prefix="atonce-lock-") as folder:
        jars.retrieve(modules, Path(folder))
        return [
            f"{':'.join(each)} {hashlib.sha256((Path(folder) / f'{each[1]}-{each[2]}.jar').read_bytes()).hexdigest()}"
            for each in modules
        ]


def _write(name: str, words: str, lines: list[str]) -> None:
    (LOCKS / f"{name}.lock").write_text("\n".join([f"# {words}", *sorted(lines)]) + "\n")
    print(f"{name}: {len(lines)} jars")


if __name__ == "__main__":
    main()

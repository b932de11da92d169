"""The jars we run, each pinned by its checksum, so that nobody can hand us anything else.

One lock file per bundle in `locks/`, one line per jar: ORGANISATION:NAME:REVISION[:CLASSIFIER] SHA256. A new version of
Apache Kafka is one more file there, written by `python scripts/lock_kafka.py VERSION`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from atonce.errors import UsageError

KAFKA_VERSION = "4.3.1"
"""The one that runs unless another is asked for."""
FLINK_VERSION = "2.2.0"
_LOCKS = Path(__file__).parent / "locks"
_KAFKA = "kafka-"


@dataclass(frozen=True, slots=True)
class Pin:
    """One jar as Maven names it, and the SHA-256 of its bytes."""

    organisation: str
    name: str
    revision: str
    sha256: str
    classifier: str = ""

    @property
    def file(self) -> str:
        return "-".join(filter(None, [self.name, self.revision, self.classifier])) + ".jar"


@dataclass(frozen=True, slots=True)
class Bundle:
    """Jars that are fetched together and cached in one folder."""

    name: str
    pins: tuple[Pin, ...]


def bundle(name: str) -> Bundle:
    """The jars of one lock file."""
    lines = (_LOCKS / f"{name}.lock").read_text().splitlines()
    return Bundle(name, tuple(_pin(line) for line in lines if line and not line.startswith("#")))


def kafka_versions() -> list[str]:
    """Versions of Apache Kafka that are pinned, oldest first."""
    names = (path.stem.removeprefix(_KAFKA) for path in _LOCKS.glob(f"{_KAFKA}[0-9]*.lock"))
    return sorted(names, key=lambda version: tuple(int(part) for part in version.split(".")))


def kafka(version: str) -> Bundle:
    """The broker of a version: a whole one (3.9.2), or the newest we have of a line (3.9)."""
    known = kafka_versions()
    found = [each for each in known if each == version or each.startswith(f"{version}.")]
    if not found:
        raise UsageError(f"Apache Kafka {version!r} is not one of: {', '.join(known)}")
    return bundle(f"{_KAFKA}{found[-1]}")


def _pin(line: str) -> Pin:
    module, sha256 = line.split()
    organisation, name, revision, *classifier = module.split(":")
    return Pin(organisation, name, revision, sha256, *classifier)


KAFKA = kafka(KAFKA_VERSION)
TOOLS = bundle("kafka-tools-4.3.1")
STREAMS = bundle("kafka-streams-4.3.1")
TIERED = bundle("kafka-tiered-4.3.1")
SPARK_CONNECTOR = bundle("spark-kafka-4.2.0")
FLINK = bundle(f"flink-{FLINK_VERSION}")

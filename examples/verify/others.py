"""The programs that docs/others.md is about: prepares one, and prints the command for `atonce verify --app`.

    python examples/verify/others.py flink
    atonce verify --expect effectively-once --app "$(python examples/verify/others.py flink)"

From a checkout; jars and packages are fetched once, pinned by their checksums.
"""

import shlex
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from bench import peers  # noqa: E402

from atonce.local.servers.jars import jars  # noqa: E402
from atonce.local.servers.pins import (  # noqa: E402
    FLINK,
    FLINK_VERSION,
    KAFKA,
    KAFKA_VERSION,
    SPARK_CONNECTOR,
    STREAMS,
    bundle,
)

BEAM_VERSION, BEAM_FLINK_VERSION = "2.70.0", "1.19"
BEAM = bundle(f"beam-{BEAM_VERSION}")

PLACES = "{servers} {input} {output} {group}"


@dataclass(frozen=True)
class Other:
    """Somebody else's program, and what its documentation promises of it."""

    title: str
    promises: str
    prepare: Callable[[Path], list[str]]
    """Given a directory that outlives one start of the program: its words, before those of the run."""
    after: Callable[[Path], list[str]] = lambda _: []
    """Its words behind those of the run."""

    def command(self, scratch: Path) -> str:
        words = [shlex.join(self.prepare(scratch)), PLACES, shlex.join(self.after(scratch))]
        return " ".join(filter(None, words))


def _java(name: str, *bundles: object) -> Callable[[Path], list[str]]:
    return lambda _: peers.java_command(HERE / "java" / f"{name}.java", *bundles)


OTHERS = {
    "streams": Other(
        f"Kafka Streams {KAFKA_VERSION}, processing.guarantee=exactly_once_v2",
        "effectively-once",
        _java("StreamsExactlyOnce", KAFKA, STREAMS),
    ),
    "flink": Other(
        f"Apache Flink {FLINK_VERSION}, KafkaSink with DeliveryGuarantee.EXACTLY_ONCE",
        "effectively-once",
        _java("FlinkExactlyOnce", FLINK),
        lambda scratch: [str(scratch)],
    ),
    "beam": Other(
        f"Apache Beam {BEAM_VERSION} on Flink {BEAM_FLINK_VERSION}, KafkaIO.write().withEOS",
        "effectively-once",
        _java("BeamExactlyOnce", BEAM),
        lambda scratch: [str(scratch)],
    ),
    "spark": Other(
        f"Spark {peers.SPARK_VERSION}, its own Kafka connector",
        "at-least-once",
        lambda _: [str(peers.spark_python()), str(HERE / "spark_connector.py")],
        lambda scratch: [str(scratch), ",".join(str(path) for path in jars(SPARK_CONNECTOR))],
    ),
    "quix": Other(
        f'Quix Streams {peers.QUIX_VERSION}, processing_guarantee="exactly-once"',
        "effectively-once",
        lambda _: [str(peers.quix_python()), str(HERE / "quix_exactly_once.py")],
    ),
}

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in OTHERS:
        sys.exit(f"usage: others.py {'|'.join(OTHERS)}")
    print(OTHERS[sys.argv[1]].command(Path(tempfile.mkdtemp(prefix="others-"))))

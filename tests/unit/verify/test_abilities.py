"""Sources and sinks say what verify may do with them; verify itself knows none of them by name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import atonce
from atonce.connectors.contract import Ground, NeedsServer, SampledSource, Topic, VerifiedSink, VerifiedSource
from atonce.errors import UsageError
from atonce.verify.ground.servers import servers_for
from atonce.verify.subject.contract import Names
from atonce.verify.subject.rewritten import feed_of, grounds, read_back, rewritten

VERIFY = Path(__file__).parents[3] / "src/atonce/verify"
POSTGRES = "postgresql://nobody@nowhere.invalid/none"
GROUND = Ground(
    input="run-in", output="run-out", folder=Path("/scratch"), servers="here:1", records_per_batch=7, timer_s=0.5
)


@dataclass(frozen=True)
class Plain:
    """A source, or a sink, of somebody who never thought of verify."""

    def describe(self) -> str:
        return "a well in the desert"


class Server:
    url = "scratch://"
    server = None

    def __init__(self) -> None:
        self.runs: list[str] = []

    def fresh(self, run: str) -> None:
        self.runs.append(run)

    def close(self) -> None: ...


def names() -> Names:
    return Names(run="run", input="in", output="out", group="g", scratch=Path("/scratch"), servers="here:1")


def on_scratch(source: Any, sink: Any) -> Any:
    servers = servers_for(source, sink, lambda _: Server())
    pipeline = atonce.Pipeline("p").read(source).write(sink)
    return pipeline, grounds(names(), servers, 10)


def test_a_source_that_does_not_say_how_it_is_fed_is_refused_with_what_it_lacks() -> None:
    pipeline, on = on_scratch(Plain(), atonce.Kafka("out"))
    with pytest.raises(UsageError, match=r"cannot feed a well in the desert.*scratch_source, feed and static"):
        feed_of(pipeline, on)


def test_a_sink_that_does_not_say_how_it_is_read_back_is_refused_with_what_it_lacks() -> None:
    pipeline, on = on_scratch(atonce.Kafka("in"), Plain())
    for asked in (lambda: rewritten(pipeline, None, names(), on), lambda: read_back(pipeline, on)):
        with pytest.raises(UsageError, match=r"a well in the desert.*on_scratch\(folder\).*scratch_sink and read_back"):
            asked()


def test_what_cannot_be_verified_is_told_before_anything_starts() -> None:
    pipeline, _ = on_scratch(atonce.Kafka("in"), Plain())
    with pytest.raises(UsageError, match="a well in the desert"):
        pipeline.verify(harness=lambda: pytest.fail("a broker was started"))


def test_a_source_and_a_sink_that_ask_for_the_same_kind_of_server_share_one() -> None:
    started: list[Any] = []

    def start(kind: Any) -> Any:
        started.append(kind)
        return Server()

    outbox = atonce.Table(POSTGRES, table="outbox")
    both = servers_for(outbox, atonce.Postgres(POSTGRES, table="orders"), start)
    assert len(started) == 1 and both.source is both.sink
    both.fresh("run-1")
    assert both.sink is not None and both.sink.runs == ["run-1"]  # type: ignore[attr-defined]
    assert servers_for(outbox, atonce.Kafka("out"), start).sink is None
    assert servers_for(atonce.Table("sqlite:///shop.db", table="outbox"), atonce.Kafka("out"), start).source is None


def test_what_stands_beside_the_real_output_or_input_stays_untouched() -> None:
    """A dead-letter topic and the directory of read files are the user's as much as topic and path."""
    kafka = atonce.Kafka("out", on_error="dead-letter", dead_letter="real-bad")
    assert kafka.scratch_sink(GROUND).dead_letter == "run-out-dead-letter"
    read = kafka.read_back(GROUND)
    assert read == Topic("run-out", beside=("run-out-dead-letter",), partitioner="murmur2", sets_aside=True)
    files = atonce.Files("in", clean_source="archive", archive_dir="/real")
    assert files.scratch_source(GROUND).archive_dir == "/scratch/archive"


def test_a_topic_chosen_by_column_cannot_be_moved() -> None:
    with pytest.raises(UsageError, match="chooses its topic by column"):
        atonce.Kafka().scratch_sink(GROUND)


def test_built_in_parts_have_the_abilities_that_verify_asks_for() -> None:
    assert isinstance(atonce.Kafka("in"), VerifiedSource) and isinstance(atonce.Kafka("in"), SampledSource)
    assert isinstance(atonce.Postgres(POSTGRES, table="t"), VerifiedSink)
    assert isinstance(atonce.Postgres(POSTGRES, table="t"), NeedsServer)
    assert not isinstance(atonce.SQLite("out.db", table="t"), NeedsServer)


NAMED = re.compile(
    r"\b(psycopg|sqlite3|Postgres\w*|SQLite\w*)\b|\bhasattr\(|\bgetattr\(|\.__name__ *(==|in\b)|isinstance\([^)]*\b(Kafka|Files|Table)\b"
)


def test_verify_knows_no_system_by_name_and_finds_no_ability_by_a_string() -> None:
    """The wire room is about Kafka's protocol, whose messages have other fields in every version."""
    files = [path for path in VERIFY.rglob("*.py") if path.parent.name != "wire"]
    assert len(files) > 30
    found = [
        f"{path.relative_to(VERIFY)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if NAMED.search(line)
    ]
    assert found == []


def test_no_room_of_verify_is_overfull() -> None:
    rooms = {path.parent for path in VERIFY.rglob("*.py")}
    assert {room.name: len(list(room.glob("*.py"))) for room in rooms if len(list(room.glob("*.py"))) > 15} == {}
    top = {path.stem for path in VERIFY.glob("*.py")}
    assert top == {"__init__", "session", "runner", "scene", "select", "results"}

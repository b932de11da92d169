"""`atonce consume`: print a topic's records, committed ones only unless asked otherwise. Joins no group."""

from __future__ import annotations

import base64
import json as json_
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atonce.cli.parts.foreground import stoppable
from atonce.cli.parts.servers import ConfigOption, ServersOption, connected
from atonce.errors import UsageError

if TYPE_CHECKING:
    from atonce.client.cluster import Cluster

HELP = """Print the records of a topic. It joins no group and commits nothing.

[bold]--json[/bold] prints one object a line, always with topic, partition, offset, timestamp, key, value and headers;
bytes that are no text as {"base64": "…"}. `produce --json` takes them.

Stops at the end that was there when it started; [bold]--follow[/bold] waits for more until Ctrl-C.

Examples:

  atonce consume orders-out

  atonce consume orders-out --from latest --follow

  atonce consume orders-out --partition 0 --from 120 --max 10 --json

  atonce consume orders-out --isolation read_uncommitted   # aborted too
"""
ISOLATIONS = ("read_committed", "read_uncommitted")
POLL_S = 0.2


def register(app: typer.Typer) -> None:
    app.command("consume", help=HELP)(consume)


def consume(
    topic: str,
    servers: ServersOption = None,
    start: Annotated[str, typer.Option("--from", help="earliest, latest, or an offset.")] = "earliest",
    from_beginning: Annotated[
        bool,
        typer.Option("--from-beginning", help="The same as --from earliest, as Kafka's console consumer calls it."),
    ] = False,
    partition: Annotated[int | None, typer.Option(help="Only this partition.")] = None,
    maximum: Annotated[int | None, typer.Option("--max", min=0, help="Stop after so many records.")] = None,
    isolation: Annotated[str, typer.Option(help="read_committed or read_uncommitted.")] = "read_committed",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more until Ctrl-C.")] = False,
    keys: Annotated[bool, typer.Option("--keys", help="Print KEY<tab>VALUE.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per line, with offset and headers.")] = False,
    config: ConfigOption = None,
) -> None:
    if from_beginning:
        start = "earliest"
    if isolation not in ISOLATIONS:
        raise UsageError(f"--isolation {isolation!r} is not one of: {', '.join(ISOLATIONS)}")
    if start not in ("earliest", "latest") and not start.isdigit():
        raise UsageError(f"--from {start!r} is not earliest, latest or an offset")
    with stoppable(), connected(servers, config) as cluster:
        printed = 0
        for batch in _read(cluster, topic, partition, start, isolation, follow, headers=json):
            left = batch.num_rows if maximum is None else min(batch.num_rows, maximum - printed)
            for row in batch.slice(0, left).to_pylist():
                print(_as_json(row) if json else _as_text(row, keys))
            sys.stdout.flush()
            printed += left
            if maximum is not None and printed >= maximum:
                break


def _read(
    cluster: Cluster, topic: str, partition: int | None, start: str, isolation: str, follow: bool, *, headers: bool
) -> Iterator[Any]:
    """Partition after partition up to the end seen now; with `follow`, round after round."""
    from atonce.client.offsets import EARLIEST, LATEST, TopicPartition, list_offsets
    from atonce.client.read.fetch import fetch

    found = cluster.topic(topic, refresh=True)
    if found is None:
        raise UsageError(f"there is no topic {topic!r}: `atonce topics list` shows them all")
    indexes = [each.index for each in found.partitions]
    if partition is not None and partition not in indexes:
        raise UsageError(f"topic {topic} has partitions 0 to {len(indexes) - 1}, not {partition}")
    wanted = [TopicPartition(topic, index) for index in ([partition] if partition is not None else indexes)]
    earliest = list_offsets(cluster, dict.fromkeys(wanted, EARLIEST), isolation)
    ends = list_offsets(cluster, dict.fromkeys(wanted, LATEST), isolation)
    if start == "latest":
        positions = dict(ends)
    elif start == "earliest":
        positions = dict(earliest)
    else:
        positions = {tp: max(int(start), earliest[tp]) for tp in wanted}
    while True:
        for tp in wanted:
            if positions[tp] < ends[tp]:
                yield from fetch(
                    cluster, topic, tp.partition, positions[tp], ends[tp], isolation=isolation, headers=headers
                )
                positions[tp] = ends[tp]
        if not follow:
            return
        time.sleep(POLL_S)
        ends = list_offsets(cluster, dict.fromkeys(wanted, LATEST), isolation)


def _as_text(row: dict[str, Any], keys: bool) -> str:
    value = _text(row["value"])
    return f"{_text(row['key'])}\t{value}" if keys else value


def _text(data: bytes | None) -> str:
    return "" if data is None else data.decode(errors="replace")


def _as_json(row: dict[str, Any]) -> str:
    shown = {
        "topic": row["topic"],
        "partition": row["partition"],
        "offset": row["offset"],
        "timestamp": _iso(row["timestamp"]),
        "key": _json_bytes(row["key"]),
        "value": _json_bytes(row["value"]),
        "headers": [{"key": each["key"], "value": _json_bytes(each["value"])} for each in row.get("headers") or []],
    }
    return json_.dumps(shown, ensure_ascii=False)


def _json_bytes(data: bytes | None) -> Any:
    """Text where it is text; other bytes are marked as such, so that nothing is lost."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="milliseconds")

"""`atonce transactions`: list, describe, find hanging ones, abort."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from atonce.cli.parts.screen import JsonOption, confirm, print_json, print_table
from atonce.cli.parts.servers import ConfigOption, ServersOption, connected
from atonce.errors import EXIT_FAILED, UsageError

HELP = """See and repair transactions. A pipeline's transactional id is its name.

Examples:

  atonce transactions list

  atonce transactions describe orders

  atonce transactions find-hanging

  atonce transactions abort orders --yes

  atonce transactions abort --topic orders-out --partition 0 --start-offset 123
"""

commands = typer.Typer(help=HELP, no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(commands, name="transactions")


@commands.command("list")
def list_(servers: ServersOption = None, json: JsonOption = False, config: ConfigOption = None) -> None:
    """All transactional ids with their state.

    Example: atonce transactions list --json
    """
    from atonce.client.operate import hanging

    with connected(servers, config) as cluster:
        found = hanging.list_transactions(cluster)
    if json:
        print_json(found)
    else:
        rows = [(t.transactional_id, t.state, t.producer_id, t.coordinator) for t in found]
        print_table(("transactional id", "state", "producer id", "coordinator"), rows, empty="no transactional ids")


@commands.command()
def describe(
    transactional_id: str, servers: ServersOption = None, json: JsonOption = False, config: ConfigOption = None
) -> None:
    """One transactional id: producer, epoch, age and the partitions it has written to.

    Example: atonce transactions describe orders
    """
    from atonce.client.operate import hanging

    with connected(servers, config) as cluster:
        found = hanging.describe_transaction(cluster, transactional_id)
    if json:
        print_json(found)
        return
    print_table(
        ("", transactional_id),
        [
            ("state", found.state),
            ("producer id", str(found.producer_id)),
            ("epoch", str(found.epoch)),
            ("coordinator", f"broker {found.coordinator}"),
            ("time-out", f"{found.timeout_ms / 1000:g} s"),
            ("opened", _age(found.started_ms)),
            ("partitions", ", ".join(f"{p.topic}-{p.partition}" for p in found.partitions) or "none"),
        ],
    )


@commands.command("find-hanging")
def find_hanging(
    servers: ServersOption = None,
    topic: Annotated[list[str] | None, typer.Option(help="Look here only. Can be repeated.")] = None,
    older_than: Annotated[
        float, typer.Option(help="Seconds since the last write; Kafka's transaction.max.timeout.ms is 900.")
    ] = 900.0,
    json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Transactions that are open on a partition and that no coordinator will ever end. Exit code 1 if there are any.

    They hold up every read_committed reader of the partition. `abort` ends them.

    Example: atonce transactions find-hanging --topic orders-out
    """
    from atonce.client.operate import hanging

    with connected(servers, config) as cluster:
        found = hanging.find_hanging(cluster, topic, older_than_ms=int(older_than * 1000))
    if json:
        print_json(found)
    else:
        print_table(
            ("topic", "partition", "start offset", "producer id", "epoch", "last write"),
            [(h.topic, h.partition, h.start_offset, h.producer_id, h.epoch, _age(h.last_timestamp_ms)) for h in found],
            empty="no hanging transactions",
        )
    if found:
        raise typer.Exit(EXIT_FAILED)


@commands.command()
def abort(
    transactional_id: Annotated[str | None, typer.Argument(help="Fence this id and abort what it left open.")] = None,
    servers: ServersOption = None,
    topic: Annotated[str | None, typer.Option(help="For a hanging transaction: its topic,")] = None,
    partition: Annotated[int | None, typer.Option(help="its partition")] = None,
    start_offset: Annotated[int | None, typer.Option(help="and its start offset.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: ConfigOption = None,
) -> None:
    """Abort a transaction. A running producer or pipeline with this id is fenced and stops.

    Example: atonce transactions abort orders --yes
    """
    from atonce.client.operate import hanging

    if (transactional_id is None) == (topic is None):
        raise UsageError("abort wants either a TRANSACTIONAL_ID, or --topic, --partition and --start-offset")
    if transactional_id is not None:
        with connected(servers, config) as cluster:
            confirm(f"Fence transactional id {transactional_id} and abort what is open?", yes=yes)
            before = hanging.abort_by_id(cluster, transactional_id)
        print(f"fenced {transactional_id} (it was {before.state}, epoch {before.epoch})")
        return
    if topic is None or partition is None or start_offset is None:
        named = f"topic {topic}, partition {partition}, start offset {start_offset}"
        raise UsageError(f"a hanging transaction is named by topic, partition and start offset, got {named}")
    with connected(servers, config) as cluster:
        confirm(f"Write an abort marker on {topic}-{partition} for what starts at {start_offset}?", yes=yes)
        ended = hanging.abort_hanging(cluster, topic, partition, start_offset)
    print(f"aborted the transaction of producer {ended.producer_id} on {topic}-{partition} from {start_offset}")


def _age(since_ms: int) -> str:
    if since_ms < 0:
        return "not open"
    return f"{max(0.0, time.time() - since_ms / 1000):.0f} s ago"

"""`atonce topics`: list, describe, create and delete topics."""

from __future__ import annotations

from typing import Annotated

import typer

from atonce.cli.parts.screen import JsonOption, confirm, print_json, print_table
from atonce.cli.parts.servers import ConfigOption, ServersOption, connected, parse_pairs
from atonce.errors import UsageError

HELP = """List, describe, create and delete topics.

Examples:

  atonce topics list --servers 127.0.0.1:9092

  atonce topics create orders --partitions 4

  atonce topics describe orders --json

  atonce topics delete orders --yes
"""

commands = typer.Typer(help=HELP, no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(commands, name="topics")


@commands.command("list")
def list_(
    servers: ServersOption = None,
    internal: Annotated[bool, typer.Option("--internal", help="Kafka's own topics too.")] = False,
    json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """All topics with their partitions and copies.

    Example: atonce topics list --json
    """
    from atonce.client.operate import admin

    with connected(servers, config) as cluster:
        found = admin.topics(cluster, internal=internal)
    if json:
        print_json(found)
    else:
        rows = [(each.name, each.partitions, each.replication, each.internal) for each in found]
        print_table(("topic", "partitions", "copies", "internal"), rows, empty="no topics")


@commands.command()
def describe(
    topic: str,
    servers: ServersOption = None,
    json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Leader, copies and offsets of each partition.

    "stable" is where a read_committed reader stops: below "latest" while a transaction is open.

    Example: atonce topics describe orders
    """
    from atonce.client.operate import admin

    with connected(servers, config) as cluster:
        partitions = admin.describe_topic(cluster, topic)
        settings = admin.topic_settings(cluster, topic) if json else {}
    if json:
        print_json({"topic": topic, "partitions": partitions, "settings": settings})
        return
    print_table(
        ("partition", "leader", "replicas", "in sync", "earliest", "stable", "latest"),
        [(p.partition, p.leader, p.replicas, p.in_sync, p.earliest, p.stable, p.latest) for p in partitions],
    )


@commands.command()
def create(
    topic: str,
    servers: ServersOption = None,
    partitions: Annotated[int, typer.Option(min=1, help="Number of partitions.")] = 4,
    replication: Annotated[int, typer.Option(help="Copies; -1 leaves it to the broker.")] = -1,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A topic setting, KEY=VALUE. Can be repeated.")
    ] = None,
    if_missing: Annotated[bool, typer.Option("--if-missing", help="A topic that exists is fine.")] = False,
    config: ConfigOption = None,
) -> None:
    """Create a topic.

    Example: atonce topics create orders --partitions 8 --set cleanup.policy=compact
    """
    from atonce.client.operate import admin

    with connected(servers, config) as cluster:
        made = admin.create_topic(
            cluster, topic, partitions, replication, parse_pairs("--set", settings), exists_ok=if_missing
        )
    print(f"created {topic} with {partitions} partition(s)" if made else f"{topic} exists already")


@commands.command()
def delete(
    topics: list[str],
    servers: ServersOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: ConfigOption = None,
) -> None:
    """Delete topics and all their records.

    Example: atonce topics delete orders orders-out --yes
    """
    from atonce.client.operate import admin

    with connected(servers, config) as cluster:
        missing = sorted(set(topics) - {each.name for each in admin.topics(cluster, internal=True)})
        if missing:
            raise UsageError(f"there is no topic {', '.join(missing)}; nothing was deleted")
        confirm(f"Delete {', '.join(topics)} with all records?", yes=yes)
        for topic in topics:
            admin.delete_topic(cluster, topic)
            print(f"deleted {topic}")

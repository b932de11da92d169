"""`atonce groups`: consumer groups, pipelines included, and how far each is behind."""

from __future__ import annotations

import typer

from atonce.cli.parts.screen import JsonOption, print_json, print_table
from atonce.cli.parts.servers import ConfigOption, ServersOption, connected
from atonce.errors import UsageError

HELP = """List consumer groups and describe their lag. A pipeline's group carries its name.

Examples:

  atonce groups list

  atonce groups describe orders --servers 127.0.0.1:9092

  atonce groups describe orders --json | jq .lag
"""

commands = typer.Typer(help=HELP, no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(commands, name="groups")


@commands.command("list")
def list_(servers: ServersOption = None, json: JsonOption = False, config: ConfigOption = None) -> None:
    """All groups with state and total lag.

    Example: atonce groups list --json
    """
    from atonce.client.operate import admin

    with connected(servers, config) as cluster:
        found = [
            (group, sum(each.lag for each in admin.group_lag(cluster, group.group))) for group in admin.groups(cluster)
        ]
    if json:
        print_json([{"group": g.group, "state": g.state, "type": g.type, "lag": lag} for g, lag in found])
    else:
        rows = [(g.group, g.state, g.type, lag) for g, lag in found]
        print_table(("group", "state", "type", "lag"), rows, empty="no groups")


@commands.command()
def describe(group: str, servers: ServersOption = None, json: JsonOption = False, config: ConfigOption = None) -> None:
    """Committed offset, end and lag per partition, and the members.

    A pipeline has no members: Spark assigns its partitions, and the group holds its ledger.

    Example: atonce groups describe orders
    """
    from atonce.client.operate import admin
    from atonce.client.operate.members import group_members

    with connected(servers, config) as cluster:
        known = {each.group: each for each in admin.groups(cluster)}
        if group not in known:
            raise UsageError(f"there is no group {group!r}: `atonce groups list` shows them all")
        lags = admin.group_lag(cluster, group)
        members = group_members(cluster, group, known[group].type)
    total = sum(each.lag for each in lags)
    if json:
        offsets = [
            {"topic": e.topic, "partition": e.partition, "committed": e.committed, "latest": e.latest, "lag": e.lag}
            for e in lags
        ]
        found = known[group]
        print_json(
            {
                "group": group,
                "state": found.state,
                "type": found.type,
                "lag": total,
                "offsets": offsets,
                "members": members,
            }
        )
        return
    print(f"{group}: {known[group].state or 'state unknown'}, {len(members)} member(s), lag {total}")
    print_table(
        ("topic", "partition", "committed", "latest", "lag"),
        [(e.topic, e.partition, e.committed, e.latest, e.lag) for e in lags],
        empty="no committed offsets",
    )
    if members:
        rows = [(m.client_id, m.host, m.partitions, m.member_id) for m in members]
        print_table(("client", "host", "partitions", "member"), rows)

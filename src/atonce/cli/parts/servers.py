"""Which cluster a command means: --servers, else this project's running embedded broker, else 127.0.0.1:9092."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from atonce.errors import UsageError

if TYPE_CHECKING:
    from atonce.client.cluster import Cluster

FALLBACK = "127.0.0.1:9092"
BROKER_DATA = ".atonce/broker"

ServersOption = Annotated[
    str | None,
    typer.Option(
        "--servers",
        envvar="ATONCE_SERVERS",
        help="HOST:PORT[,…]. Default: the embedded broker running on .atonce/ here, else 127.0.0.1:9092.",
    ),
]
ConfigOption = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        help="A client setting by Kafka's name, KEY=VALUE. Repeatable. Secrets as '${NAME}' or '${file:PATH}'.",
    ),
]


def chosen_servers(servers: str | None) -> str:
    if servers:
        return servers
    from atonce.broker.address import find_running

    return find_running(BROKER_DATA) or FALLBACK


def parse_config(pairs: list[str] | None) -> Mapping[str, str]:
    from atonce.client.config import SECRET
    from atonce.local.secrets import from_command_line

    config = {}
    for key, value in parse_pairs("--config", pairs).items():
        name = key.removeprefix("kafka.")
        config[name] = from_command_line(f"--config {name}", value, secret=SECRET.search(name) is not None)
    return config


def parse_pairs(option: str, pairs: list[str] | None, form: str = "KEY=VALUE") -> dict[str, str]:
    """What a repeated option was given."""
    found = {}
    for pair in pairs or []:
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not key:
            raise UsageError(f"{option} wants {form}, got {pair!r}")
        found[key] = value
    return found


@contextmanager
def connected(servers: str | None, config: list[str] | None = None) -> Iterator[Cluster]:
    """A cluster that answers, or UnreachableError with the address that does not."""
    from atonce.client.cluster import Cluster

    with Cluster(chosen_servers(servers), parse_config(config)) as cluster:
        yield cluster

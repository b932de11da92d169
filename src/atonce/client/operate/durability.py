"""Settings under which a Kafka cluster may forget what it has acknowledged: asked, and told in one line each."""

from __future__ import annotations

from collections.abc import Iterable

from atonce.client.cluster import Cluster
from atonce.client.operate import admin
from atonce.errors import AtOnceError

LEDGER_TOPICS = ("__consumer_offsets", "__transaction_state")
"""Where Kafka keeps a pipeline's progress, and the outcome of its transactions."""
_UNCLEAN = "unclean.leader.election.enable"
_OF_THE_EMBEDDED = "allow.any.replication.factor"
_IN_SYNC = "min.insync.replicas"
_SYNCED = "flush.messages"


def is_embedded(cluster: Cluster) -> bool:
    """It keeps one synced copy by design, and is known by a setting of its own."""
    try:
        brokers = admin.brokers(cluster)
        return len(brokers) == 1 and _OF_THE_EMBEDDED in admin.broker_settings(cluster, brokers[0].id)
    except AtOnceError:
        return False


def forgetful(cluster: Cluster, *, inputs: Iterable[str], outputs: Iterable[str]) -> list[str]:
    """Of these topics, where they exist. Of an input only the log itself matters: nobody waits for our copies there."""
    embedded = is_embedded(cluster)
    found = {each.name: each for each in admin.topics(cluster, internal=True)}
    written = set(outputs)
    lines: list[str] = []
    for name in sorted({*inputs, *written} & found.keys()):
        if embedded:
            lines += _of_embedded(cluster, name)
            continue
        lines += _of_topic(cluster, name, found[name].replication, written=name in written)
    return lines


def _of_embedded(cluster: Cluster, name: str) -> list[str]:
    """Its own topics are synced whatever is set."""
    if name in LEDGER_TOPICS or admin.topic_settings(cluster, name).get(_SYNCED, "1") == "1":
        return []
    return [
        f"topic {name} has {_SYNCED} above 1: acknowledged records that are not synced yet are gone with the power. "
        "Next: set it to 1"
    ]


def _of_topic(cluster: Cluster, name: str, copies: int, *, written: bool) -> list[str]:
    try:
        settings = admin.topic_settings(cluster, name)
    except AtOnceError as error:
        return [f"settings of topic {name} could not be asked for: {error}. Next: allow DESCRIBE_CONFIGS"]
    lines = []
    if settings.get(_UNCLEAN) == "true":
        lines.append(
            f"topic {name} has {_UNCLEAN}=true: a copy that lags may become the leader, and acknowledged records are "
            "forgotten. Next: set it to false"
        )
    if copies == 1:
        lines.append(f"topic {name} has replication factor 1: it is gone with one disk. Next: give it three copies")
    elif written and settings.get(_IN_SYNC) == "1":
        lines.append(
            f"topic {name} has {_IN_SYNC}=1 with {copies} copies: an acknowledged record may exist once. Next: set it "
            "to 2"
        )
    return lines

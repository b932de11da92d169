"""What `atonce doctor` checks on a Kafka cluster: versions, features, settings, readers, transactions, clock."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

from atonce.cli.parts.finding import Finding, note, ok, problem, warning
from atonce.client.cluster import Cluster
from atonce.client.operate import admin, hanging
from atonce.client.operate.durability import LEDGER_TOPICS, forgetful
from atonce.connectors.kafka.protocol import VERIFICATION, asked
from atonce.connectors.kafka.topic import Kafka
from atonce.errors import AtOnceError, UsageError

OUR_TIMEOUT_MS = Kafka("any").transaction_timeout_ms
# Pipelines commit their position again at least daily; two days leave room for one that is down over night.
LEAST_RETENTION_MINUTES = 2 * 24 * 60
OPEN_FOR_LONG_MS = 15 * 60_000
SKEW_WARNING_MS = 2_000


def cluster_findings(cluster: Cluster) -> Iterator[Finding]:
    """One check that cannot be made (an ACL, an old broker) is a finding too, and does not stop the others."""
    for subject, check in (
        ("brokers", _brokers),
        ("transactions", _transaction_version),
        ("settings", _settings),
        ("progress", _progress),
        ("clock", _clock),
        ("open transactions", _open_transactions),
        ("readers", _readers),
    ):
        try:
            yield from check(cluster)
        except AtOnceError as error:
            yield note(subject, f"could not be looked at: {error}", "allow DESCRIBE and DESCRIBE_CONFIGS to see it")


def _brokers(cluster: Cluster) -> Iterator[Finding]:
    found = admin.brokers(cluster)
    brokers = ", ".join(f"{each.id} at {each.host}:{each.port}" for each in found)
    yield ok("brokers", f"{len(found)}, Kafka {cluster.broker_version}: {brokers}")
    thin = [each.name for each in admin.topics(cluster) if each.replication < 2]
    if len(found) > 1 and thin:
        yield warning(
            "copies",
            f"{len(thin)} topic(s) have one copy only: {', '.join(thin[:5])}",
            "a lost disk loses them: give topics three copies and min.insync.replicas=2",
        )
    elif len(found) == 1:
        yield note(
            "copies",
            "one broker, so one copy of everything",
            "it survives a killed process, not a lost disk; use three brokers where that matters",
        )


def _transaction_version(cluster: Cluster) -> Iterator[Finding]:
    features = cluster.features()
    yield ok("features", ", ".join(f"{name} {number}" for name, number in sorted(features.items())) or "none told")
    try:
        found = asked(cluster)
    except UsageError as error:
        yield problem("transactions", f"no Kafka sink: {error}", "use a newer Kafka for the output")
        return
    if found.unverified:
        yield problem(
            "transactions",
            found.words,
            f"set {VERIFICATION}=true, or accept what is left with unverified_transactions: allow at the sink",
        )
    else:
        yield ok("transactions", found.words)


def _settings(cluster: Cluster) -> Iterator[Finding]:
    first = admin.brokers(cluster)[0].id
    settings = admin.broker_settings(cluster, first)
    longest = _number(settings, "transaction.max.timeout.ms")
    if longest is not None and longest < OUR_TIMEOUT_MS:
        yield problem(
            "transaction time-out",
            f"the broker allows {longest / 1000:g} s, pipelines ask for {OUR_TIMEOUT_MS / 1000:g} s",
            "raise transaction.max.timeout.ms, or set transaction_timeout_ms of the sink and keep batches shorter",
        )
    elif longest is not None:
        yield ok("transaction time-out", f"up to {longest / 1000:g} s, pipelines ask for {OUR_TIMEOUT_MS / 1000:g} s")
    retention = _number(settings, "offsets.retention.minutes")
    if retention is not None and retention < LEAST_RETENTION_MINUTES:
        yield warning(
            "offset retention",
            f"offsets of a group without members expire after {retention} min",
            "a pipeline that is down for longer cannot resume: set offsets.retention.minutes=10080 (a week)",
        )
    elif retention is not None:
        yield ok("offset retention", f"{retention / 1440:g} day(s); a pipeline may be down for that long")
    if settings.get("unclean.leader.election.enable") == "true":
        yield problem(
            "unclean elections",
            "unclean.leader.election.enable is true: acknowledged records can be lost",
            "set it to false; no guarantee holds on a log that forgets",
        )
    copies, in_sync = _number(settings, "default.replication.factor"), _number(settings, "min.insync.replicas")
    if copies is not None and in_sync is not None and copies > 1 and in_sync < 2:
        yield warning(
            "min.insync.replicas",
            f"{in_sync} with {copies} copies: an acknowledged record may exist once",
            "set min.insync.replicas=2",
        )


def _progress(cluster: Cluster) -> Iterator[Finding]:
    """The topics in which Kafka keeps every pipeline's progress and the outcome of its transactions."""
    if len(admin.brokers(cluster)) == 1:
        return  # one copy of everything: that was said
    for line in forgetful(cluster, inputs=(), outputs=LEDGER_TOPICS):
        found, _, advice = line.partition(". Next: ")
        yield warning("progress", found, advice)


def _clock(cluster: Cluster) -> Iterator[Finding]:
    asked = time.time()
    theirs_ms = admin.controller_time_ms(cluster)
    took_ms = (time.time() - asked) * 1000
    if theirs_ms is None and all(_is_here(broker.host) for broker in admin.brokers(cluster)):
        yield ok("clock", "the broker runs on this machine, by the same clock")
        return
    if theirs_ms is None:
        yield note("clock", "this cluster does not tell its time, so it was not compared")
        return
    skew_ms = theirs_ms - asked * 1000 - took_ms / 2
    found = f"the controller's clock differs by {abs(skew_ms):.0f} ms (± {took_ms / 2:.0f})"
    if abs(skew_ms) > SKEW_WARNING_MS + took_ms:
        yield warning("clock", found, "run NTP on both: starting by timestamp and retention go by the clock")
    else:
        yield ok("clock", found)


def _is_here(host: str) -> bool:
    """Loopback, or an address of this machine: only those can be listened on."""
    try:
        with socket.create_server((host, 0)):
            return True
    except OSError:
        return False


def _open_transactions(cluster: Cluster) -> Iterator[Finding]:
    stuck = hanging.find_hanging(cluster, older_than_ms=OPEN_FOR_LONG_MS)
    if stuck:
        first = stuck[0]
        yield problem(
            "hanging transactions",
            f"{len(stuck)}, first on {first.topic}-{first.partition} from offset {first.start_offset}: "
            "read_committed readers wait there for ever",
            f"atonce transactions abort --topic {first.topic} --partition {first.partition} "
            f"--start-offset {first.start_offset}",
        )
    else:
        yield ok("hanging transactions", "none")


def _readers(cluster: Cluster) -> Iterator[Finding]:
    """A reader's isolation level is not told by any broker. One sign of the wrong one can be seen: it went too far."""
    open_from: dict[tuple[str, int], int] = {}
    for each in hanging.open_on_partitions(cluster):
        tp = (each.topic, each.partition)
        open_from[tp] = min(open_from.get(tp, each.start_offset), each.start_offset)
    readers = set()
    for group in admin.groups(cluster):
        for lag in admin.group_lag(cluster, group.group):
            readers.add(group.group)
            limit = open_from.get((lag.topic, lag.partition))
            if limit is not None and lag.committed > limit:
                yield warning(
                    "readers",
                    f"group {group.group} has read {lag.topic}-{lag.partition} up to {lag.committed}, beyond the open "
                    f"transaction at {limit}: it reads uncommitted records",
                    f"set isolation.level=read_committed in the consumers of {group.group}",
                )
                return
    if readers:
        shown = ", ".join(sorted(readers)[:5])
        yield note(
            "readers",
            f"{len(readers)} group(s) read here: {shown}; brokers do not tell their isolation level",
            "readers of effectively-once output need isolation.level=read_committed (librdkafka's default, not Java's)",
        )


def _number(settings: dict[str, str], name: str) -> int | None:
    value = settings.get(name, "")
    return int(value) if value.lstrip("-").isdigit() else None

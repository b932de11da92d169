"""How one transaction can be written by many tasks on this cluster: asked of the cluster, never guessed.

protocol 2   transaction version 2 is finalized (Kafka 4.0 and later): brokers add partitions and raise the epoch
protocol 1   any other: an epoch per batch, see `client.epoch_per_batch`. The full promise where every broker verifies
             what it takes into a transaction (Kafka 3.6.1 and later, unless switched off)
refused      brokers that do not verify, or do not say so, unless the user allows it; and those below Kafka 2.5
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from kafka.protocol.producer import InitProducerIdRequest

from atonce.client.cluster import Cluster
from atonce.client.epoch_per_batch import EpochPerBatch
from atonce.client.offsets import TopicPartition
from atonce.client.operate import admin
from atonce.client.transaction import Transaction
from atonce.errors import AtOnceError, UsageError

SHARED_FROM = 2
"""`transaction.version` from which brokers let one transaction be written by several tasks (Kafka 4.0)."""
VERIFICATION = "transaction.partition.verification.enable"
_GOES_ON = 3
"""InitProducerId with id and epoch (KIP-360)."""
RESIDUE = (
    "brokers here do not verify transactions: a task or driver that writes again after all of its kind were given up, "
    "and before the next driver has claimed, leaves rows or offsets in a transaction that nobody ends; readers wait "
    "there until it is aborted (`atonce transactions`)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionProtocol:
    """What a cluster offers to a sink."""

    number: Literal[1, 2]
    level: int
    """The finalized `transaction.version`; 0 where there is none."""
    unverified: str = ""
    """Why late requests are not told apart by every broker; empty: they are."""

    @property
    def words(self) -> str:
        if self.number == SHARED_FROM:
            return f"transaction protocol 2, shared by all tasks (transaction.version {self.level})"
        kept = f"not verified: {self.unverified}" if self.unverified else "verified by every broker"
        return f"transaction protocol 1, an epoch per batch (transaction.version {self.level}, {kept})"

    def transactions(
        self, cluster: Cluster, name: str, outputs: Callable[[], Iterable[TopicPartition]], check: Callable[[], None]
    ) -> Callable[[int], Transaction]:
        """Makes a transaction with the time-out it is given. `name` is its transactional id and its group."""
        if self.number == SHARED_FROM:
            return lambda timeout_ms: Transaction(cluster, name, timeout_ms)
        return lambda timeout_ms: EpochPerBatch(cluster, name, timeout_ms, group=name, outputs=outputs, check=check)


def asked(cluster: Cluster) -> TransactionProtocol:
    """What this cluster offers now. Raises `UsageError` where it offers nothing."""
    if cluster.max_version(InitProducerIdRequest) < _GOES_ON:
        raise UsageError(
            f"{cluster.servers} (Kafka {cluster.broker_version}) cannot raise a producer's epoch on request (KIP-360). "
            "Next: use Kafka 2.5 or newer for a Kafka sink; any of these can be read from"
        )
    level = cluster.features().get("transaction.version", 0)
    if level >= SHARED_FROM:
        return TransactionProtocol(number=2, level=level)
    return TransactionProtocol(number=1, level=level, unverified=_unverified(cluster))


def required(cluster: Cluster, *, allow_unverified: bool) -> TransactionProtocol:
    """The same for a sink; `UsageError` where it could not keep its word."""
    found = asked(cluster)
    if found.unverified and not allow_unverified:
        raise UsageError(
            f"{cluster.servers} has transaction.version {found.level}, and not every broker refuses late requests: "
            f"{found.unverified}. Next: set {VERIFICATION}=true (Kafka 3.6.1 and later), raise the feature with "
            "`kafka-features.sh upgrade --feature transaction.version=2` (4.0 and later), or accept what is left with "
            "unverified_transactions: allow"
        )
    return found


def _unverified(cluster: Cluster) -> str:
    for broker in admin.brokers(cluster):
        try:
            said = admin.broker_settings(cluster, broker.id).get(VERIFICATION)
        except AtOnceError as error:
            return (
                f"broker {broker.id} does not tell {VERIFICATION} ({error}); allow DESCRIBE_CONFIGS on the cluster to "
                "this principal"
            )
        if said is None:
            return f"broker {broker.id} does not know {VERIFICATION} (it is older than Kafka 3.6, or no Apache Kafka)"
        if said != "true":
            return f"broker {broker.id} has {VERIFICATION}={said}"
    return ""

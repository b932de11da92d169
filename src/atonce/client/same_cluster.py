"""Whether two lists of servers are one cluster. A cluster has many names and addresses, and one id."""

from __future__ import annotations

from collections.abc import Mapping

from kafka.protocol.metadata import MetadataRequest

from atonce.client.cluster import DEFAULT_TIMEOUT_MS, Cluster
from atonce.client.retry import retry
from atonce.errors import UsageError


def cluster_id(cluster: Cluster) -> str:
    request = MetadataRequest[9](topics=[], allow_auto_topic_creation=False)
    found = retry(lambda: cluster.call(request).cluster_id, limit_ms=DEFAULT_TIMEOUT_MS)
    if not found:
        raise UsageError(
            f"the cluster at {cluster.servers} tells no cluster id, so it cannot be told from another one. "
            "Next: write the servers of source and sink in the same way if they are the same cluster."
        )
    return str(found)


def same_cluster(servers: str, config: Mapping[str, str], others: str, others_config: Mapping[str, str]) -> bool:
    """By their ids, unless they are written alike."""
    if servers == others:
        return True
    with Cluster(servers, config) as one, Cluster(others, others_config) as other:
        return cluster_id(one) == cluster_id(other)

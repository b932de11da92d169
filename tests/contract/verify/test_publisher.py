"""The auditor's own input stands in the log once, also when the answer to a Produce is lost."""

from __future__ import annotations

import uuid

from atonce.verify.audit.readers import whole_log
from atonce.verify.ground.publisher import Publisher
from atonce.verify.ground.workload import generated
from atonce.verify.wire.cluster import Cluster
from atonce.verify.wire.proxy import Proxy
from atonce.verify.wire.rules import Action, Rule


def test_input_whose_answer_was_lost_is_sent_again_and_stands_there_once(embedded: str) -> None:
    topic = f"input-{uuid.uuid4().hex[:8]}"
    workload = generated(seed=1, count=30, partitions=2, tail=5)
    with Proxy(embedded) as proxy:
        rule = proxy.add(Rule(apis=frozenset({"produce"}), action=Action.DROP_RESPONSE, nth=2))
        cluster = Cluster(proxy.servers)
        try:
            cluster.create_topic(topic, 2)
            publisher = Publisher(cluster)
            publisher.publish(topic, workload.head)
            publisher.publish(topic, workload.tail)
            rule.wait(5)
            values = sorted(record.value or b"" for record in whole_log(cluster, topic))
        finally:
            cluster.close()
    assert values == sorted(record.value for record in workload.all)

"""The auditor's own input stands in the log once, also when the answer to a Produce is lost."""

from __future__ import annotations

import time
import uuid
from contextlib import closing

from atonce.connectors.contract import Feature
from atonce.verify.audit.readers import CommittedReader, whole_log
from atonce.verify.ground.feeds import TopicFeed
from atonce.verify.ground.harness import Embedded, Held
from atonce.verify.ground.layout import laid_out
from atonce.verify.ground.publisher import Publisher
from atonce.verify.ground.workload import generated
from atonce.verify.wire.batches import Record
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
    assert values == sorted(record.value or b"" for record in workload.all)


def test_a_laid_out_input_stands_in_the_log_at_the_offsets_that_were_planned(embedded: str) -> None:
    """Codecs, transactions that were aborted or stay open, a partition that is added, a second topic."""
    topic = f"input-{uuid.uuid4().hex[:8]}"
    layout = laid_out(generated(3, 120, 2, 30, frozenset(Feature) - {Feature.GAPS}, at_ms=int(time.time() * 1000)))
    workload, ghosts = layout.workload, layout.ghosts
    with closing(Cluster(embedded)) as cluster:
        feed = TopicFeed(cluster, topic, layout, f"{topic}-second")
        feed.prepare(2)
        feed.give(workload.head)
        assert feed.ends() != cluster.offsets(topic), "no transaction was left open"
        feed.give(workload.tail)
        assert feed.ends() == cluster.offsets(topic)
        seen = {False: _committed(cluster, topic), True: _committed(cluster, f"{topic}-second")}
        for record in workload.all:
            stands = seen[record.beside].pop((record.partition, record.offset or 0))
            headers = tuple((name.encode(), value) for name, value in record.headers)
            assert (stands.key, stands.value, stands.headers, stands.timestamp_ms) == (
                record.key,
                record.value,
                headers,
                record.timestamp_ms,
            )
        assert seen == {False: {}, True: {}}, "something is read that is not in the workload"
        everything = [record for record in whole_log(cluster, topic) if not record.control]
        assert len(everything) == sum(not record.beside for record in workload.all) + ghosts
        feed.remove()


def test_another_log_under_the_same_name_has_all_of_the_rest_too(embedded: str) -> None:
    """Of the rest some records stood in a transaction that went with the topic."""
    topic = f"input-{uuid.uuid4().hex[:8]}"
    layout = laid_out(generated(3, 60, 2, 20, frozenset(Feature) - {Feature.GAPS}, at_ms=int(time.time() * 1000)))
    with closing(Cluster(embedded)) as cluster:
        feed = TopicFeed(cluster, topic, layout)
        feed.prepare(2)
        feed.give(layout.workload.head)
        cluster.delete_topic(topic)
        feed.prepare(2)
        feed.give(layout.workload.head[::-1])
        feed.give(layout.workload.tail)
        read = _committed(cluster, topic)
        feed.remove()
    assert len(read) == len(layout.workload.all)


def test_compaction_has_left_a_gap_before_the_first_record() -> None:
    features = frozenset(Feature) - {Feature.SECOND_TOPIC, Feature.NEW_TOPIC}
    layout = laid_out(generated(3, 120, 2, 30, features, at_ms=int(time.time() * 1000)))
    with Held(Embedded()) as broker, closing(Cluster(broker.servers)) as cluster:
        feed = TopicFeed(cluster, "in", layout)
        feed.prepare(2)
        feed.give(layout.workload.head)
        feed.give(layout.workload.tail)
        read = _committed(cluster, "in")
    assert min(offset for partition, offset in read if partition == 0) == layout.first_kept == 12
    places = {(record.partition, record.offset): record.value for record in layout.workload.all}
    assert {place: record.value for place, record in read.items()} == places


def _committed(cluster: Cluster, topic: str) -> dict[tuple[int, int], Record]:
    reader = CommittedReader(cluster, topic)
    while not reader.caught_up():
        reader.poll(wait_ms=50)
    return {(seen.record.partition, seen.record.offset): seen.record for seen in reader.seen}


def test_an_input_that_is_begun_anew_after_its_topic_was_removed_stands_there_once(embedded: str) -> None:
    topic = f"input-{uuid.uuid4().hex[:8]}"
    layout = laid_out(generated(3, 60, 2, 20, frozenset(Feature) - {Feature.GAPS}, at_ms=int(time.time() * 1000)))
    with closing(Cluster(embedded)) as cluster:
        feed = TopicFeed(cluster, topic, layout, f"{topic}-second")
        feed.prepare(2)
        feed.give(layout.workload.head)
        cluster.delete_topic(topic)
        feed.prepare(2)
        feed.give(layout.workload.head)
        feed.give(layout.workload.tail)
        read = [*_committed(cluster, topic).values(), *_committed(cluster, f"{topic}-second").values()]
        feed.remove()
    assert len(read) == len(layout.workload.all)

"""Clients that do not take their answers, or take their time to send a request: others are served as if nobody did."""

from __future__ import annotations

import contextlib
import socket
import struct
import time

import pytest

from atonce.broker.embedded import Broker
from atonce.records.record import build_batch
from tests.interop.broker.silent import (
    RECORD_BYTES,
    TOPIC,
    Memory,
    Silent,
    established,
    fetch,
    fill,
    is_closed,
    many,
    records,
    wait_until,
)
from tests.interop.broker.test_fuzz import GoodClient
from tests.interop.broker.wire import Wire

METADATA, PRODUCE, FETCH, API_VERSIONS = 3, 0, 1, 18


def test_three_hundred_clients_that_never_read_cost_little_and_others_get_all_they_ask_for() -> None:
    """Each asks for 200 MB."""
    with Broker() as broker:
        fill(broker.servers, 60)
        with Memory(broker.pid) as memory, GoodClient(broker.servers) as good, Wire(broker.servers) as reader:
            with Silent(broker.servers, 300):
                rounds = len(good.waits_s) + 20
                wait_until("the good client waits", lambda: len(good.waits_s) > rounds or good.problem, 60)
                for _ in range(5):
                    assert records(reader.ask(FETCH, 4, **fetch(50_000_000))) > RECORD_BYTES
            wait_until("it stays small", lambda: records(reader.ask(FETCH, 4, **fetch(50_000_000))) > 40_000_000)
            assert good.problem is None
            assert memory.grown_mb < 250


def test_fetches_wait_in_turn_when_the_room_is_gone_and_those_who_do_not_read_are_let_go() -> None:
    with Broker(settings={"queued.max.response.bytes": 4_194_304}) as broker, Wire(broker.servers) as known:
        fill(broker.servers, 12)
        with many(broker.servers, 80) as silent:
            for wire in silent:
                for _ in range(4):
                    wire.send(FETCH, 4, **fetch(10_000_000))
            wait_until("nobody is let go", lambda: established(broker.pid) <= 70)
            wait_until("nobody is told", lambda: sum(is_closed(wire.socket) for wire in silent) >= 10)
            assert records(known.ask(FETCH, 4, **fetch(10_000_000))) > RECORD_BYTES


def test_client_that_reads_nothing_for_too_long_is_disconnected_though_nobody_needs_its_room() -> None:
    with Broker(settings={"response.send.timeout.ms": 1000}) as broker, Wire(broker.servers) as known:
        fill(broker.servers, 20)
        with Wire(broker.servers) as silent:
            for _ in range(2):
                silent.send(FETCH, 4, **fetch(20_000_000))
            wait_until("it is still connected", lambda: established(broker.pid) <= 1)
        assert known.ask(API_VERSIONS, 0).error_code == 0


def test_client_that_reads_a_little_at_a_time_gets_all_of_it() -> None:
    """Slower than the broker writes, but it reads: nothing is cut, whatever others are sent meanwhile."""
    with Broker() as broker, Wire(broker.servers) as slow, Wire(broker.servers) as other:
        fill(broker.servers, 24)
        slow.send(FETCH, 4, **fetch(20_000_000))
        got = bytearray()
        while len(got) < 4 or len(got) < 4 + struct.unpack_from(">i", got)[0]:
            got += slow.socket.recv(100_000)
            if len(got) % 1_000_000 < 100_000:
                assert records(other.ask(FETCH, 4, **fetch(1_000_000))) >= RECORD_BYTES
        assert len(got) > 15_000_000
        assert bytes(got).count(b"x" * (RECORD_BYTES - 1000)) > 15


def test_client_that_has_said_its_last_word_is_still_answered() -> None:
    with Broker() as broker, Wire(broker.servers) as wire:
        fill(broker.servers, 24)
        asked = wire.send(FETCH, 4, **fetch(20_000_000))
        # The request is at the broker before the end is: a fetch that waits would be given up.
        head = wire.socket.recv(4, socket.MSG_WAITALL | socket.MSG_PEEK)
        wire.socket.shutdown(socket.SHUT_WR)
        assert struct.unpack(">i", head)[0] > 15_000_000
        received, answer = wire.receive(FETCH, 4)
        assert received == asked and records(answer) > 15_000_000
        assert wire.is_closed_by_the_peer()


def test_large_and_small_answers_of_one_connection_keep_their_order() -> None:
    batch = build_batch([(b"k", b"v")], timestamp_ms=int(time.time() * 1000))
    with Broker() as broker, Wire(broker.servers) as wire:
        fill(broker.servers, 8)
        wire.ask(METADATA, 9, topics=[{"name": "small"}], allow_auto_topic_creation=True)
        data = [{"name": "small", "partition_data": [{"index": 0, "records": batch}]}]
        asked: list[tuple[int, int, int]] = []
        for _ in range(20):
            asked.append((wire.send(PRODUCE, 9, acks=-1, timeout=1000, topic_data=data), PRODUCE, 9))
            asked.append((wire.send(FETCH, 4, **fetch(5_000_000)), FETCH, 4))
            asked.append((wire.send(API_VERSIONS, 0), API_VERSIONS, 0))
        for correlation, api_key, version in asked:
            received, answer = wire.receive(api_key, version)
            assert received == correlation
            assert api_key != FETCH or records(answer) > 4 * RECORD_BYTES


def test_answers_that_are_not_records_are_bounded_too() -> None:
    """Metadata of a thousand topics, asked for again and again by clients that read none of it."""
    topics = [{"name": f"a-topic-with-a-rather-long-name-{i:0100}"} for i in range(1000)]
    with Broker(settings={"num.partitions": 1, "max.partitions": 3000}) as broker, Wire(broker.servers) as known:
        known.ask(API_VERSIONS, 0)
        known.ask(METADATA, 9, topics=topics, allow_auto_topic_creation=True)
        known.ask(METADATA, 9, topics=None, allow_auto_topic_creation=False)
        with Memory(broker.pid) as memory, many(broker.servers, 60) as silent:
            for wire in silent:
                wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                wire.socket.sendall(
                    b"".join(
                        wire.frame(METADATA, 9, i, topics=None, allow_auto_topic_creation=False) for i in range(60)
                    )
                )
            for _ in range(20):
                assert known.ask(API_VERSIONS, 0).error_code == 0
            assert len(known.ask(METADATA, 9, topics=None, allow_auto_topic_creation=False).topics) >= 1000
            assert memory.grown_mb < 200


@pytest.mark.parametrize("goes_on", [False, True])
def test_requests_that_stop_half_way_or_never_end_keep_nobody_from_producing(goes_on: bool) -> None:
    """Together they hold more than the broker may hold; the slowest, or the largest, go when somebody waits."""
    limits = {"queued.max.request.bytes": 20_000_000, "request.receive.timeout.ms": 600_000}
    batch = build_batch([(None, b"x" * 900_000)], timestamp_ms=int(time.time() * 1000))
    data = [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}]
    with Broker(settings=limits) as broker, Wire(broker.servers) as producer:
        fill(broker.servers, 1)
        producer.ask(API_VERSIONS, 0)
        with many(broker.servers, 60) as halves:
            for wire in halves:
                wire.ask(API_VERSIONS, 0)
                wire.socket.setblocking(False)
                say(wire, struct.pack(">ihhih", 100_000_000, PRODUCE, 9, 1, -1))
            producer.socket.settimeout(60)
            for number in range(6):
                for wire in halves:
                    if goes_on or not number:
                        say(wire, b"\0" * 900_000)
                answer = producer.ask(PRODUCE, 9, acks=1, timeout=1000, topic_data=data)
                assert answer.responses[0].partition_responses[0].error_code == 0
            with Wire(broker.servers) as newcomer:
                assert newcomer.ask(API_VERSIONS, 0).error_code == 0


def say(wire: Wire, data: bytes) -> None:
    """As much of it as goes, if the broker still listens."""
    with contextlib.suppress(OSError):
        wire.socket.send(data)


def test_requests_behind_one_that_waits_are_left_where_they_are() -> None:
    """As Kafka does: nothing is read for them, so they cannot take the room of others."""
    limits = {"queued.max.request.bytes": 20_000_000, "request.receive.timeout.ms": 600_000}
    waiting = fetch(1000, partitions=1) | {"max_wait": 2**31 - 1, "min_bytes": 2**31 - 1}
    with Broker(settings=limits) as broker, Wire(broker.servers) as other:
        fill(broker.servers, 1)
        other.ask(API_VERSIONS, 0)
        with many(broker.servers, 60) as greedy, Memory(broker.pid) as memory:
            for wire in greedy:
                wire.ask(API_VERSIONS, 0)
                wire.send(FETCH, 4, **waiting)
                wire.socket.sendall(struct.pack(">ihhih", 100_000_000, PRODUCE, 9, 1, -1))
                wire.socket.setblocking(False)
            for _ in range(20):
                for wire in greedy:
                    say(wire, b"\0" * 100_000)
                assert other.ask(API_VERSIONS, 0).error_code == 0
            assert memory.grown_mb < 100


@pytest.mark.parametrize("what", ["half a request behind it", "requests behind it", "itself"])
def test_what_is_held_for_clients_that_wait_makes_way_when_others_need_the_room(what: str) -> None:
    """It was read before it was known that it has to wait; together it is more than the broker may hold."""
    waiting = fetch(1000, partitions=1) | {"max_wait": 2**31 - 1, "min_bytes": 2**31 - 1}
    behind = {
        "half a request behind it": struct.pack(">ihhih", 100_000_000, PRODUCE, 9, 1, -1) + b"\0" * 300_000,
        "requests behind it": 20 * (struct.pack(">ihhih", 15_000, API_VERSIONS, 0, 1, -1) + b"\0" * 14_990),
        "itself": b"",
    }[what]
    with Broker(settings={"queued.max.request.bytes": 10_000_000}) as broker, Wire(broker.servers) as other:
        fill(broker.servers, 1)
        asked = other.frame(FETCH, 4, 1, **waiting)
        if what == "itself":
            # Kafka ignores what is left of a request, and so do we.
            asked = struct.pack(">i", len(asked) - 4 + 300_000) + asked[4:] + b"\0" * 300_000
        with many(broker.servers, 45) as greedy:
            for wire in greedy:
                wire.ask(API_VERSIONS, 0)
                wire.socket.sendall(asked + behind)
            for _ in range(20):
                assert other.ask(API_VERSIONS, 0).error_code == 0
            assert sum(is_closed(wire.socket) for wire in greedy) < len(greedy)


@pytest.mark.soak
def test_a_thousand_clients_that_never_read_and_reconnect_when_they_are_let_go() -> None:
    """What a busy machine does to a wait is seen at a second broker, which nobody attacks."""
    with Broker(settings={"max.connections.per.ip": 4000}) as broker, Broker() as quiet:
        fill(broker.servers, 60)
        with (
            Memory(broker.pid) as memory,
            GoodClient(broker.servers) as good,
            GoodClient(quiet.servers) as control,
            Wire(broker.servers) as reader,
            Silent(broker.servers, 1000) as silent,
        ):
            longest_s = 0.0
            ends = time.monotonic() + 30
            while time.monotonic() < ends:
                began = time.monotonic()
                assert records(reader.ask(FETCH, 4, **fetch(1_000_000))) >= RECORD_BYTES
                longest_s = max(longest_s, time.monotonic() - began)
        print(f"{memory.grown_mb:.0f} MB; waits at most {max(good.waits_s):.2f} s, of a megabyte {longest_s:.2f} s,")
        print(f"at a quiet broker {max(control.waits_s):.2f} s; {silent.reopened} were let go and came again")
        assert good.problem is None
        assert memory.grown_mb < 300
        assert max(*good.waits_s, longest_s) < 1.0 + max(control.waits_s)

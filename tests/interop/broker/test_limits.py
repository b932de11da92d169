"""Garbage and greed: the connection is closed, and nothing else happens."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import psutil
import pytest

from atonce.broker.embedded import Broker
from atonce.broker.router import routes
from atonce.records.record import build_batch
from tests.interop.broker.wire import Wire

METADATA, PRODUCE, API_VERSIONS = 3, 0, 18


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    limits = {
        "connections.max.idle.ms": 1500,
        "request.receive.timeout.ms": 1000,
        "socket.request.max.bytes": 4_000_000,
        "control.request.max.bytes": 100_000,
        "first.request.max.bytes": 1000,
        "queued.max.request.bytes": 2_000_000,
    }
    with Broker(settings=limits) as made:
        yield made


def answers(broker: Broker) -> bool:
    with Wire(broker.servers) as wire:
        return wire.ask(API_VERSIONS, 3, client_software_name="t", client_software_version="1").error_code == 0


def closes(broker: Broker, data: bytes, *, greet: bool = True) -> bool:
    with Wire(broker.servers) as wire:
        if greet:
            wire.ask(API_VERSIONS, 0)
        wire.socket.settimeout(10)
        try:
            wire.socket.sendall(data)
        except (ConnectionResetError, BrokenPipeError):
            return True
        return wire.is_closed_by_the_peer()


def test_frame_above_the_limit_is_refused_before_it_is_read(broker: Broker) -> None:
    before = psutil.Process(broker.pid).memory_info().rss
    assert closes(broker, struct.pack(">i", 2**31 - 1) + b"\0" * 64)
    assert closes(broker, struct.pack(">ihh", 4_000_001, PRODUCE, 9) + b"\0" * 64)
    assert psutil.Process(broker.pid).memory_info().rss - before < 50_000_000
    assert answers(broker)


def test_negative_and_tiny_frames_are_refused(broker: Broker) -> None:
    for size in (-1, -(2**31), 0, 3):
        assert closes(broker, struct.pack(">i", size) + b"\0" * 16)
    assert answers(broker)


def test_only_produce_may_be_large(broker: Broker) -> None:
    assert closes(broker, struct.pack(">ihh", 200_000, METADATA, 9) + b"\0" * 64)


def test_first_request_of_a_connection_must_be_small(broker: Broker) -> None:
    assert closes(broker, struct.pack(">ihh", 1001, PRODUCE, 9) + b"\0" * 64, greet=False)


def test_hostile_counts_do_not_end_the_process(broker: Broker) -> None:
    """kio's native reader would abort on these: no request may reach it unchecked."""
    pid = broker.pid
    for route in routes().values():
        for version in {route.min_version, route.max_version}:
            for count in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07"):
                head = struct.pack(">hhih", route.api_key, version, 1, -1)
                for body in (count, b"\0\0" + count, count * 12):
                    frame = head + body + b"\0" * 24
                    with socket.create_connection(_where(broker), 10) as connection:
                        connection.sendall(struct.pack(">i", len(frame)) + frame)
    assert answers(broker) and broker.pid == pid


def _where(broker: Broker) -> tuple[str, int]:
    host, _, port = broker.servers.rpartition(":")
    return host, int(port)


def test_random_and_mutated_frames_leave_the_broker_up_and_small(broker: Broker) -> None:
    """Replay: the seed is in the failure's output."""
    seed = random.randrange(2**32)
    print(f"replay: seed {seed}")
    rng = random.Random(seed)
    process = psutil.Process(broker.pid)
    with Wire(broker.servers) as wire:
        good = [
            wire.frame(METADATA, 12, 1, topics=[{"name": "a"}], allow_auto_topic_creation=False),
            wire.frame(1, 12, 2, replica_id=-1, max_wait=10, min_bytes=1, max_bytes=1000, topics=[]),
            wire.frame(11, 5, 3, group_id="g", session_timeout=10000, rebalance_timeout=10, protocol_type="consumer"),
            wire.frame(PRODUCE, 9, 4, acks=1, timeout=10, topic_data=[{"name": "a", "partition_data": []}]),
            wire.frame(API_VERSIONS, 3, 5, client_software_name="x", client_software_version="1"),
            wire.frame(19, 5, 6, topics=[{"name": "f", "num_partitions": 1, "replication_factor": 1}], timeout=1),
            wire.frame(32, 4, 7, resources=[{"resource_type": 2, "resource_name": "a"}]),
        ]
    before = process.memory_info().rss
    for _ in range(800):
        kind = rng.randrange(3)
        if kind == 0:
            data = rng.randbytes(rng.randrange(1, 200))
        else:
            body = bytearray(rng.choice(good)[4:])
            for _ in range(rng.randrange(1, 4)):
                body[rng.randrange(len(body))] = rng.randrange(256)
            if kind == 2:
                body = body[: rng.randrange(1, len(body) + 1)]
            data = struct.pack(">i", len(body)) + bytes(body)
        try:
            with socket.create_connection(_where(broker), 10) as connection:
                connection.sendall(data)
        except ConnectionResetError:
            pass
    assert answers(broker)
    assert process.memory_info().rss - before < 60_000_000


def test_garbage_closes_its_own_connection_only(broker: Broker) -> None:
    with Wire(broker.servers) as wire:
        wire.ask(API_VERSIONS, 0)
        assert closes(broker, b"GET / HTTP/1.1\r\n\r\n")
        assert wire.ask(METADATA, 9, topics=[], allow_auto_topic_creation=False).brokers


def test_version_that_is_not_advertised_closes_the_connection(broker: Broker) -> None:
    assert closes(broker, struct.pack(">ihhih", 10, METADATA, 99, 1, -1))
    assert closes(broker, struct.pack(">ihhih", 10, 999, 0, 1, -1))


def test_unknown_version_of_api_versions_is_answered_in_version_0(broker: Broker) -> None:
    with Wire(broker.servers) as wire:
        wire.socket.sendall(struct.pack(">ihhih", 11, API_VERSIONS, 99, 5, -1) + b"\0")
        correlation, response = wire.receive(API_VERSIONS, 0)
        assert correlation == 5 and response.error_code.name == "unsupported_version"
        assert {one.api_key for one in response.api_keys} == set(routes())


def test_api_versions_advertises_exactly_the_handlers_and_the_features(broker: Broker) -> None:
    with Wire(broker.servers) as wire:
        found = wire.ask(API_VERSIONS, 4, client_software_name="t", client_software_version="1")
    assert {(one.api_key, one.min_version, one.max_version) for one in found.api_keys} == {
        (route.api_key, route.advertised_min_version, route.max_version) for route in routes().values()
    }
    levels = {one.name: one.max_version_level for one in found.finalized_features}
    assert (levels["transaction.version"], levels["group.version"]) == (2, 1)


def test_connections_per_address_are_limited_and_lock_nobody_out() -> None:
    """Those that were used least go, one for each newcomer; those in use stay."""
    with Broker(settings={"max.connections.per.ip": 40}) as broker, Wire(broker.servers) as working:
        working.ask(METADATA, 9, topics=[{"name": "t"}], allow_auto_topic_creation=True)
        held = [socket.create_connection(_where(broker), 10) for _ in range(39)]
        deadline = time.monotonic() + 20
        newcomers = 0
        while newcomers < 10:
            working.ask(API_VERSIONS, 0)
            assert time.monotonic() < deadline, "nobody is let in"
            with contextlib.suppress(OSError):
                newcomers += answers(broker)
        established = [one for one in psutil.Process(broker.pid).net_connections("tcp") if one.status == "ESTABLISHED"]
        assert len(established) <= 40
        working.ask(API_VERSIONS, 0)
        for one in held:
            one.close()


def test_idle_and_half_sent_connections_are_closed(broker: Broker) -> None:
    with Wire(broker.servers) as idle, Wire(broker.servers) as slow:
        idle.ask(API_VERSIONS, 0)
        slow.socket.sendall(b"\0\0\0")
        idle.socket.settimeout(10)
        slow.socket.settimeout(10)
        assert idle.is_closed_by_the_peer()
        assert slow.is_closed_by_the_peer()


def test_fetch_that_waits_is_given_up_when_its_client_hangs_up(broker: Broker) -> None:
    """However long it wanted to wait: nothing of it may stay behind."""

    def open_connections() -> int:
        return sum(one.status == psutil.CONN_ESTABLISHED for one in psutil.Process(broker.pid).net_connections("tcp"))

    with Wire(broker.servers) as wire:
        wire.ask(METADATA, 9, topics=[{"name": "waiting"}], allow_auto_topic_creation=True)
    wires = [Wire(broker.servers) for _ in range(10)]
    for wire in wires:
        wire.send(
            1,
            4,
            replica_id=-1,
            max_wait=2**31 - 1,
            min_bytes=1,
            max_bytes=1000,
            topics=[
                {"topic": "waiting", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]}
            ],
        )
    deadline = time.monotonic() + 10
    while open_connections() < 10 and time.monotonic() < deadline:
        pass
    assert open_connections() >= 10
    for wire in wires:
        wire.close()
    while open_connections() and time.monotonic() < deadline:
        pass
    assert open_connections() == 0


def test_held_bytes_are_bounded_and_everyone_is_served_in_the_end(broker: Broker) -> None:
    """Eight clients push 1.5 MB each against a limit of 2 MB in all."""
    with Wire(broker.servers) as wire:
        wire.ask(METADATA, 9, topics=[{"name": "big"}], allow_auto_topic_creation=True)
    wires = [Wire(broker.servers) for _ in range(8)]
    body = b"\0" * 1_500_000
    for wire in wires:
        wire.ask(API_VERSIONS, 0)
        wire.socket.settimeout(20)
    import threading

    def push(wire: Wire, into: list[int]) -> None:
        answer = wire.ask(
            PRODUCE,
            9,
            acks=1,
            timeout=1000,
            topic_data=[{"name": "big", "partition_data": [{"index": 0, "records": body}]}],
        )
        into.append(int(answer.responses[0].partition_responses[0].error_code))

    codes: list[int] = []
    threads = [threading.Thread(target=push, args=(wire, codes)) for wire in wires]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for wire in wires:
        wire.close()
    assert len(codes) == 8 and all(codes)  # answered, and refused: it was no record batch


def test_announced_bytes_that_never_come_keep_nobody_from_producing() -> None:
    """Memory is reserved for what has arrived: five times the limit is announced here."""
    with Broker(settings={"queued.max.request.bytes": 20_000_000}) as broker, Wire(broker.servers) as producer:
        producer.ask(METADATA, 9, topics=[{"name": "t"}], allow_auto_topic_creation=True)
        producer.socket.settimeout(30)
        batch = build_batch([(None, b"x" * 900_000)], timestamp_ms=int(time.time() * 1000))
        data = [{"name": "t", "partition_data": [{"index": 0, "records": batch}]}]
        producer.ask(PRODUCE, 9, acks=1, timeout=1000, topic_data=data)  # the first large one brings a compiler
        liars = [Wire(broker.servers) for _ in range(50)]
        for liar in liars:
            liar.ask(API_VERSIONS, 0)
            liar.socket.sendall(struct.pack(">ihhih", 100_000_000, PRODUCE, 9, 1, -1) + b"\0" * 20_000)
        before = psutil.Process(broker.pid).memory_info().rss
        producer.socket.settimeout(10)
        for _ in range(3):
            answer = producer.ask(PRODUCE, 9, acks=1, timeout=1000, topic_data=data)
            assert answer.responses[0].partition_responses[0].error_code == 0
        assert psutil.Process(broker.pid).memory_info().rss - before < 50_000_000
        for liar in liars:
            liar.close()


def test_requests_of_one_connection_are_answered_in_order(broker: Broker) -> None:
    with Wire(broker.servers) as wire:
        frames = b"".join(wire.frame(METADATA, 9, i, topics=[], allow_auto_topic_creation=False) for i in range(1, 101))
        wire.ask(API_VERSIONS, 0)
        wire.socket.sendall(frames)
        assert [wire.receive(METADATA, 9)[0] for _ in range(100)] == list(range(1, 101))


def test_requests_that_arrive_in_bits_are_not_mixed_with_those_of_others(broker: Broker) -> None:
    """One buffer serves all connections that hold no part of a request."""
    with Wire(broker.servers) as one, Wire(broker.servers) as other:
        names = {one: "of-one", other: "of-the-other"}
        for wire in (one, other):
            wire.ask(METADATA, 9, topics=[{"name": names[wire]}], allow_auto_topic_creation=True)
        asked = {
            wire: wire.frame(METADATA, 9, 7, topics=[{"name": names[wire]}], allow_auto_topic_creation=False)
            for wire in (one, other)
        }
        for cut in range(1, len(asked[one]), 7):
            one.socket.sendall(asked[one][:cut])
            # An answer to the other: what the first has sent so far was read before it, or is read after it.
            other.socket.sendall(asked[other] + asked[other][:cut])
            assert str(other.receive(METADATA, 9)[1].topics[0].name) == names[other]
            one.socket.sendall(asked[one][cut:])
            assert str(one.receive(METADATA, 9)[1].topics[0].name) == names[one]
            other.socket.sendall(asked[other][cut:])
            assert str(other.receive(METADATA, 9)[1].topics[0].name) == names[other]


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "atonce.cli.main", "broker", *words], capture_output=True, text=True, timeout=30
    )


def test_second_broker_on_the_same_data_is_refused(broker: Broker) -> None:
    done = _run("--data", str(broker.data), "--listen", "127.0.0.1:0")
    assert done.returncode == 2
    assert "a broker already runs on this data directory" in done.stderr and broker.servers in done.stderr
    assert done.stdout == "" and answers(broker)


def test_wrong_usage_is_refused_before_anything_starts(tmp_path: str) -> None:
    cases = {
        ("--set", "num.partition=3"): "Nearest: num.partitions",
        ("--listen", "0.0.0.0:0"): "--insecure",
        ("--listen", "127.0.0.1:0", "--metrics", "0.0.0.0:0"): "--metrics 0.0.0.0:0: anyone who reaches",
    }
    for words, message in cases.items():
        done = _run("--data", f"{tmp_path}/data", *words)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr


def test_metrics_count_requests_by_api(tmp_path: str) -> None:
    from atonce.local.child import Child
    from atonce.local.ports import free_port

    port = free_port()
    command = [sys.executable, "-m", "atonce.cli.main", "broker", "--data", f"{tmp_path}/data"]
    with Child([*command, "--listen", "127.0.0.1:0", "--metrics", f"127.0.0.1:{port}"]) as child:
        servers = child.wait_for_line("ready on ", 30).removeprefix("ready on ")
        with Wire(servers) as wire:
            wire.ask(METADATA, 9, topics=[{"name": "m"}], allow_auto_topic_creation=True)
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
        assert child.stop() == 0
    assert 'atonce_requests_total{api="metadata"} 1' in text
    assert "atonce_partitions 6" in text  # four of `m`, and one of each journal
    assert "atonce_open_transactions 0" in text

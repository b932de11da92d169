"""TLS: with a certificate of the server alone, with one of the client, with users; and what does not get through."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from atonce.broker.embedded import Broker, find_running
from atonce.local.certificates import Authority, Issued
from atonce.local.child import ChildFailed
from tests.interop.broker.wire import Wire
from tests.interop.secure.parts import API_VERSIONS, METADATA, PASSWORD, USER, SecureBroker, log_in


@dataclass(frozen=True)
class Files:
    folder: Path
    client: Issued

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def context(self, *, with_certificate: bool = False) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=self.path("ca.pem"))
        if with_certificate:
            made.load_cert_chain(self.path("client.pem"))
        return made


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority("test authority")
    server, client = authority.issue("server", ["localhost", "127.0.0.1"]), authority.issue("etl")
    (folder / "ca.pem").write_bytes(authority.certificate)
    (folder / "server.pem").write_bytes(server.key + server.certificate)
    (folder / "client.pem").write_bytes(client.key + client.certificate)
    stranger = Authority("another authority").issue("etl")
    (folder / "stranger.pem").write_bytes(stranger.key + stranger.certificate)
    return Files(folder, client)


@pytest.fixture(scope="module")
def broker(files: Files) -> Iterator[SecureBroker]:
    settings = {
        "ssl.keystore.location": files.path("server.pem"),
        "ssl.truststore.location": files.path("ca.pem"),
        "ssl.client.auth": "required",
        "authentication.timeout.ms": 1500,
        "max.unauthenticated.connections": 20,
    }
    with SecureBroker(("SSL", "SASL_SSL", "PLAINTEXT"), settings) as made:
        yield made


def _librdkafka(broker: SecureBroker, files: Files, protocol: str) -> dict[str, Any]:
    found = {
        "bootstrap.servers": broker.servers_of(protocol),
        "security.protocol": protocol,
        "ssl.ca.location": files.path("ca.pem"),
    }
    if protocol == "SSL":
        return {
            **found,
            "ssl.certificate.location": files.path("client.pem"),
            "ssl.key.location": files.path("client.pem"),
        }
    return {**found, "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": USER, "sasl.password": PASSWORD}


class TlsWire(Wire):
    def __init__(self, servers: str, context: ssl.SSLContext) -> None:
        super().__init__(servers)
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_records_go_in_and_out_also_large_ones(broker: SecureBroker, files: Files, protocol: str) -> None:
    topic, large = f"over-{protocol}", b"x" * 900_000
    config = _librdkafka(broker, files, protocol)
    admin = AdminClient(config)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
    producer = Producer(config)
    for _ in range(20):
        producer.produce(topic, large)
    assert producer.flush(30) == 0
    consumer = Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    read = 0
    while read < 20:
        message = consumer.poll(20)
        assert message is not None and message.error() is None and message.value() == large
        read += 1
    consumer.close()


def test_without_a_certificate_nobody_gets_into_ssl(broker: SecureBroker, files: Files) -> None:
    config = _librdkafka(broker, files, "SSL")
    del config["ssl.certificate.location"], config["ssl.key.location"]
    with pytest.raises(KafkaException):
        AdminClient(config).list_topics(timeout=1)
    context = files.context()
    context.load_cert_chain(files.path("stranger.pem"))
    with pytest.raises((ssl.SSLError, ConnectionError, struct.error, AssertionError)):
        TlsWire(broker.servers_of("SSL"), context).ask(METADATA, 12, topics=None)


def test_a_client_that_trusts_another_authority_does_not_come_in(broker: SecureBroker) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        TlsWire(broker.servers_of("SASL_SSL"), ssl.create_default_context())


def test_tls_alone_is_no_login(broker: SecureBroker, files: Files) -> None:
    wire = TlsWire(broker.servers_of("SASL_SSL"), files.context())
    assert wire.ask(API_VERSIONS, 0).api_keys
    wire.send(METADATA, 12, topics=None)
    assert wire.is_closed_by_the_peer()
    wire = TlsWire(broker.servers_of("SASL_SSL"), files.context())
    assert not log_in(wire).error_code
    assert wire.ask(METADATA, 12, topics=None).brokers


def test_many_requests_at_once_are_answered_in_order(broker: SecureBroker, files: Files) -> None:
    """More than a stranger may have waiting, sent before the broker has said anything."""
    wire = TlsWire(broker.servers_of("SSL"), files.context(with_certificate=True))
    sent = [wire.send(API_VERSIONS, 0) for _ in range(2000)]
    assert [wire.receive(API_VERSIONS, 0)[0] for _ in sent] == sent


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"])
def test_who_does_not_shake_hands_is_closed(broker: SecureBroker, said: bytes) -> None:
    host, port = broker.servers_of("SSL").split(":")
    with socket.create_connection((host, int(port)), 20) as stranger:
        stranger.sendall(said)
        stranger.settimeout(20)
        try:
            while stranger.recv(4096):
                pass
        except ConnectionResetError:
            pass


def test_a_crowd_that_does_not_shake_hands_locks_nobody_out(broker: SecureBroker, files: Files) -> None:
    host, port = broker.servers_of("SSL").split(":")
    crowd = [socket.create_connection((host, int(port)), 20) for _ in range(60)]
    wire = TlsWire(broker.servers_of("SSL"), files.context(with_certificate=True))
    assert wire.ask(METADATA, 12, topics=None).brokers
    for one in crowd:
        one.close()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "ssl.keystore.location"),
        ({"ssl.keystore.location": "/nowhere"}, "/nowhere"),
        ({"ssl.client.auth": "required"}, "ssl.truststore.location"),
        ({"ssl.keystore.type": "JKS"}, "PEM"),
    ],
)
def test_a_listener_without_what_it_needs_is_refused_at_the_start(
    files: Files, settings: dict[str, str], words: str
) -> None:
    keystore = {} if words == "ssl.keystore.location" else {"ssl.keystore.location": files.path("server.pem")}
    with pytest.raises(ChildFailed, match=words):
        Broker(listen=None, settings={"listeners": "SSL://127.0.0.1:0", **keystore, **settings}).start()


@pytest.mark.parametrize("asks", ["none", "required"])
def test_a_broker_whose_only_listener_is_encrypted_is_found_by_its_directory(files: Files, asks: str) -> None:
    settings = {
        "ssl.keystore.location": files.path("server.pem"),
        "ssl.client.auth": asks,
        "ssl.truststore.location": files.path("ca.pem"),
    }
    with SecureBroker(("SSL",), settings) as broker:
        assert find_running(broker.data) == broker.servers_of("SSL")


def test_who_looks_for_a_broker_by_its_directory_is_told_the_listener_that_asks_nothing(files: Files) -> None:
    with SecureBroker(("SSL", "PLAINTEXT"), {"ssl.keystore.location": files.path("server.pem")}) as broker:
        assert find_running(broker.data) == broker.servers_of("PLAINTEXT")
        assert broker.servers == broker.servers_of("SSL")

"""Logging in: which clients get in by which mechanism, what strangers may do, and how long."""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka.errors import KafkaError

from atonce.broker.messages import ErrorCode
from tests.interop.broker.wire import Wire
from tests.interop.secure.parts import (
    API_VERSIONS,
    METADATA,
    PASSWORD,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    USER,
    SecureBroker,
    kafka_python,
    log_in,
    send_raw,
)

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def broker() -> Iterator[SecureBroker]:
    settings = {"authentication.timeout.ms": 1500, "max.unauthenticated.connections": 20}
    with SecureBroker(("SASL_PLAINTEXT", "PLAINTEXT"), settings) as made:
        yield made


@pytest.fixture
def at(broker: SecureBroker) -> str:
    return broker.servers_of("SASL_PLAINTEXT")


def librdkafka(servers: str, mechanism: str, user: str = USER, password: str = PASSWORD) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }
    )


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_clients_log_in_with_every_mechanism(at: str, mechanism: str) -> None:
    name = f"made-by-{mechanism}"
    admin = librdkafka(at, mechanism)
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(20)
    with contextlib.closing(kafka_python(at, mechanism)) as client:
        assert name in client.list_topics()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_gets_nobody_in(at: str, mechanism: str) -> None:
    with pytest.raises(KafkaException):
        librdkafka(at, mechanism, password="wrong").list_topics(timeout=1)
    with pytest.raises(KafkaError):
        kafka_python(at, mechanism, password="wrong", bootstrap_timeout_ms=1000)


@pytest.mark.parametrize("token", [b"\0alice\0wrong", b"\0nobody\0wrong"])
def test_a_refusal_is_told_in_kafkas_words_and_closes(at: str, token: bytes) -> None:
    wire = Wire(at)
    refused = log_in(wire, token=token)
    assert refused.error_code is ErrorCode.sasl_authentication_failed
    assert refused.error_message == "Authentication failed: Invalid username or password"
    assert wire.is_closed_by_the_peer()


def test_a_stranger_of_scram_is_not_told_who_exists(at: str) -> None:
    """Both get a challenge, the same one each time, and both are refused at the end in the same words."""
    told = []
    for user in (USER, "nobody"):
        salts = set()
        for _ in range(2):
            wire = Wire(at)
            first = log_in(wire, "SCRAM-SHA-256", f"n,,n={user},r=abc".encode())
            nonce, salt, count = first.auth_bytes.decode().split(",")
            salts.add((salt, count))
            final = f"c=biws,{nonce},p={'A' * 43}=".encode()
            refused = wire.ask(SASL_AUTHENTICATE, 2, auth_bytes=final)
            told.append((refused.error_code, refused.error_message))
            assert wire.is_closed_by_the_peer()
        assert len(salts) == 1
    assert len(set(told)) == 1 and "invalid credentials with SASL mechanism SCRAM-SHA-256" in told[0][1]


def test_an_unknown_mechanism_is_answered_with_the_known_ones(at: str) -> None:
    wire = Wire(at)
    shaken = wire.ask(SASL_HANDSHAKE, 1, mechanism="GSSAPI")
    assert shaken.error_code is ErrorCode.unsupported_sasl_mechanism
    assert set(shaken.mechanisms) == set(MECHANISMS)
    assert wire.is_closed_by_the_peer()


@pytest.mark.parametrize("after_handshake", [False, True])
def test_a_stranger_gets_nothing_but_the_way_in(at: str, after_handshake: bool) -> None:
    wire = Wire(at)
    assert wire.ask(API_VERSIONS, 3, client_software_name="x", client_software_version="1").api_keys
    if after_handshake:
        wire.ask(SASL_HANDSHAKE, 1, mechanism="PLAIN")
    wire.send(METADATA, 12, topics=None)
    assert wire.is_closed_by_the_peer()


def test_a_strangers_requests_are_small(at: str) -> None:
    wire = Wire(at)
    wire.ask(SASL_HANDSHAKE, 1, mechanism="PLAIN")
    wire.socket.sendall(struct.pack(">ihhi", 1_000_000, SASL_AUTHENTICATE, 2, 7))
    assert wire.is_closed_by_the_peer()


def test_a_stranger_who_says_nothing_is_closed(at: str) -> None:
    wire = Wire(at)
    assert wire.is_closed_by_the_peer()


def test_a_crowd_of_strangers_locks_nobody_out(at: str) -> None:
    crowd = [Wire(at) for _ in range(60)]
    wire = Wire(at)
    assert not log_in(wire).error_code
    assert wire.ask(METADATA, 12, topics=None).brokers
    for one in crowd:
        one.socket.close()


def test_a_login_of_the_first_version_has_no_headers(at: str) -> None:
    wire = Wire(at)
    assert not wire.ask(SASL_HANDSHAKE, 0, mechanism="PLAIN").error_code
    send_raw(wire, f"\0{USER}\0{PASSWORD}".encode())
    assert wire.socket.recv(4, 0) == b"\0\0\0\0"
    assert wire.ask(METADATA, 12, topics=None).brokers
    wire = Wire(at)
    wire.ask(SASL_HANDSHAKE, 0, mechanism="PLAIN")
    send_raw(wire, b"\0a\0b")
    assert wire.is_closed_by_the_peer()


def test_a_login_where_none_is_wanted_is_an_illegal_state(broker: SecureBroker, at: str) -> None:
    entered = Wire(at)
    log_in(entered)
    for wire in (entered, Wire(broker.servers_of("PLAINTEXT"))):
        assert wire.ask(SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code is ErrorCode.illegal_sasl_state
        again = wire.ask(SASL_AUTHENTICATE, 2, auth_bytes=b"")
        assert again.error_code is ErrorCode.illegal_sasl_state
        assert wire.ask(METADATA, 12, topics=None).brokers


def test_users_are_made_and_removed_by_kafkas_own_request(broker: SecureBroker, at: str) -> None:
    admin = librdkafka(at, "PLAIN")
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    admin.alter_user_scram_credentials([UserScramCredentialUpsertion("bob", info, b"builder")])["bob"].result(20)
    described = admin.describe_user_scram_credentials(["bob", USER])
    assert [one.iterations for one in described["bob"].result(20).scram_credential_infos] == [4096]
    assert len(described[USER].result(20).scram_credential_infos) == 2
    assert librdkafka(at, "SCRAM-SHA-256", "bob", "builder").list_topics(timeout=20).brokers
    broker.kill()
    broker.start()
    assert librdkafka(at, "PLAIN", "bob", "builder").list_topics(timeout=20).brokers
    gone = UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_256)
    admin = librdkafka(at, "PLAIN")
    admin.alter_user_scram_credentials([gone])["bob"].result(20)
    with pytest.raises(KafkaException):
        librdkafka(at, "SCRAM-SHA-256", "bob", "builder").list_topics(timeout=1)


def test_users_are_made_by_a_command_while_the_broker_runs(broker: SecureBroker, at: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("from a file\n")

    def atonce(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "atonce.cli.main", "users", *words, "--data", str(broker.data)]
        environment = {**os.environ, "NEW_PASSWORD": "from the environment"}
        return subprocess.run(
            command, capture_output=True, text=True, timeout=60, env=environment, stdin=subprocess.DEVNULL
        )

    assert atonce("add", "carol", "--password-file", str(secret)).returncode == 0
    assert librdkafka(at, "SCRAM-SHA-512", "carol", "from a file").list_topics(timeout=20).brokers
    twice = atonce("add", "carol", "--password-file", str(secret))
    assert twice.returncode == 2 and "carol" in twice.stderr
    assert atonce("password", "carol", "--password-variable", "NEW_PASSWORD").returncode == 0
    assert librdkafka(at, "PLAIN", "carol", "from the environment").list_topics(timeout=20).brokers
    assert "carol" in atonce("list").stdout
    nobody_to_ask = atonce("password", "carol")
    assert nobody_to_ask.returncode == 2 and "--password-file" in nobody_to_ask.stderr
    assert atonce("remove", "carol", "--yes").returncode == 0
    assert "carol" not in atonce("list").stdout

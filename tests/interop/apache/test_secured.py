"""Pipelines on a cluster that asks who they are: SASL (PLAIN, SCRAM) and TLS, against Apache Kafka. No secret is shown.

The secrets come from the environment, as users are told to give them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from atonce.local.ports import free_ports
from atonce.local.servers.kafka import ApacheKafka

pytestmark = pytest.mark.soak

USER, PASSWORD, WRONG = "alice", "tr0ub4dor-and-3", "correct-horse-battery"
RECORDS = 30
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL", "SSL")


@dataclass(frozen=True)
class Secured:
    servers: dict[str, str]
    plain_servers: str
    folder: Path

    def config(self, protocol: str, mechanism: str) -> dict[str, str]:
        """Client settings by the names that both librdkafka and `atonce` take."""
        found = {"security.protocol": protocol}
        if protocol.startswith("SASL"):
            found |= {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": PASSWORD}
        if protocol.endswith("SSL"):
            found["ssl.ca.location"] = str(self.folder / "ca.pem")
        if protocol == "SSL":
            found["ssl.certificate.location"] = str(self.folder / "client.crt")
            found["ssl.key.location"] = str(self.folder / "client.key")
        return found


def _openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def _certificates(folder: Path) -> None:
    """A certificate authority of our own; a certificate for the server and one for a client."""
    _openssl(folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem",
             "-subj", "/CN=test authority", "-days", "2")  # fmt: skip
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    for name in ("server", "client"):
        _openssl(folder, "req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr",
                 "-subj", f"/CN={name}")  # fmt: skip
        _openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                 "-out", f"{name}.crt", "-days", "2", "-extfile", "names")  # fmt: skip
    (folder / "server.pem").write_text((folder / "server.key").read_text() + (folder / "server.crt").read_text())


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    _certificates(folder)
    plain = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.ssl.ssl.client.auth": "required",
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        settings[f"listener.name.{listener}.plain.sasl.jaas.config"] = plain
        for number in ("256", "512"):
            settings[f"listener.name.{listener}.scram-sha-{number}.sasl.jaas.config"] = scram
    ports = dict(zip(PROTOCOLS, free_ports(len(PROTOCOLS)), strict=True))
    with ApacheKafka(settings=settings, listeners=ports) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.servers})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            wanted = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            admin.alter_user_scram_credentials([wanted])[USER].result(30)
        yield Secured({name: f"127.0.0.1:{port}" for name, port in ports.items()}, kafka.servers, folder)


def _pipeline(secured: Secured, folder: Path, name: str, protocol: str, mechanism: str) -> Path:
    client = {f"kafka.{key}": value for key, value in secured.config(protocol, mechanism).items()}
    client = {key: "${KAFKA_PASSWORD}" if "password" in key else value for key, value in client.items()}
    lines = "".join(f'    {key}: "{value}"\n' for key, value in client.items())
    servers = secured.servers[protocol]
    text = f"name: {name}\nsource:\n  kafka:\n    topic: {name}\n    servers: {servers}\n{lines}"
    text += "transform: SELECT key, upper(CAST(value AS STRING)) AS value FROM input\n"
    text += f"sink:\n  kafka:\n    topic: {name}-out\n    servers: {servers}\n{lines}"
    (folder / "pipeline.yaml").write_text(text)
    return folder / "pipeline.yaml"


def _atonce(folder: Path, *words: str, password: str = PASSWORD) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "atonce.cli.main", *words],
        cwd=folder,
        env={**os.environ, "KAFKA_PASSWORD": password},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _is_nowhere(secret: str, folder: Path, *told: subprocess.CompletedProcess[str]) -> None:
    for done in told:
        assert secret not in done.stdout + done.stderr
    for path in folder.rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), f"{path} holds the secret"


def _values(servers: str, topic: str, partitions: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    found, ended = [], 0
    while ended < partitions:
        message = consumer.poll(20)
        assert message is not None
        if message.error():
            ended += 1
        else:
            found.append(message.value().decode())
    consumer.close()
    return found


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [
        ("SASL_SSL", "SCRAM-SHA-512"),
        ("SASL_PLAINTEXT", "PLAIN"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
        ("SASL_SSL", "PLAIN"),
        ("SSL", ""),
    ],
)
def test_pipeline_runs_end_to_end_and_shows_no_secret(
    secured: Secured, scratch: Path, protocol: str, mechanism: str
) -> None:
    name = f"secured-{protocol}-{mechanism}".lower()
    admin = AdminClient({"bootstrap.servers": secured.plain_servers})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
    # librdkafka is the witness that the listener asks for what we give.
    librdkafka: dict[str, Any] = {
        "bootstrap.servers": secured.servers[protocol],
        **secured.config(protocol, mechanism),
    }
    producer = Producer(librdkafka)
    for i in range(RECORDS):
        producer.produce(name, f"value {i}", key=str(i))
    assert producer.flush(30) == 0
    _pipeline(secured, scratch, name, protocol, mechanism)
    explained = _atonce(scratch, "explain", "pipeline.yaml")
    run = _atonce(scratch, "run", "pipeline.yaml", "--available-now")
    assert (run.returncode, explained.returncode) == (0, 0), run.stderr
    assert sorted(_values(secured.plain_servers, f"{name}-out", 2)) == sorted(f"VALUE {i}" for i in range(RECORDS))
    _is_nowhere(PASSWORD, scratch, run, explained)


def test_wrong_password_ends_with_one_clear_message_that_does_not_show_it(secured: Secured, scratch: Path) -> None:
    name = "secured-wrong"
    _pipeline(secured, scratch, name, "SASL_SSL", "SCRAM-SHA-512")
    run = _atonce(scratch, "run", "pipeline.yaml", "--available-now", password=WRONG)
    assert run.returncode == 2, run.stderr
    assert "credentials" in run.stderr and secured.servers["SASL_SSL"] in run.stderr
    _is_nowhere(WRONG, scratch, run)


def test_plans_of_plain_structured_streaming_show_no_secret(secured: Secured, spark: Any) -> None:
    admin = AdminClient({"bootstrap.servers": secured.plain_servers})
    admin.create_topics([NewTopic("secured-plan", 1, 1)])["secured-plan"].result(30)
    config = secured.config("SASL_SSL", "SCRAM-SHA-512")
    reader = spark.read.format("atonce").option("kafka.bootstrap.servers", secured.servers["SASL_SSL"])
    for key, value in config.items():
        reader = reader.option(f"kafka.{key}", value)
    df = reader.option("subscribe", "secured-plan").load()
    assert df.count() == 0
    stream = spark.readStream.format("atonce").option("kafka.bootstrap.servers", secured.servers["SASL_SSL"])
    jaas = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{USER}" password="{PASSWORD}";'
    config = {key: value for key, value in config.items() if not key.startswith("sasl.")} | {
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": jaas,
    }
    for key, value in config.items():
        stream = stream.option(f"kafka.{key}", value)
    for one in (df, stream.option("subscribe", "secured-plan").load()):
        plan = one._jdf.queryExecution().toString()
        assert "atonce" in plan.lower() and PASSWORD not in plan
    with pytest.raises(Exception, match="nothing_of_the_kind") as caught:
        stream.option("subscribe", "secured-plan").load().selectExpr("nothing_of_the_kind")
    assert "secured-plan" in str(caught.value) and PASSWORD not in str(caught.value)

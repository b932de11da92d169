"""librdkafka, kafka-python, Java's client and our own come in by every combination of protocol and mechanism."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer
from kafka.errors import KafkaError

from atonce.client.cluster import Cluster
from atonce.errors import UsageError
from atonce.local.certificates import Authority
from atonce.local.java import find_java
from atonce.local.servers.jars import classpath
from atonce.local.servers.pins import KAFKA
from tests.interop.secure.parts import PASSWORD, USER, SecureBroker

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
WAYS = [("SSL", ""), *((protocol, m) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for m in MECHANISMS)]
TOPIC = "matrix"


@dataclass(frozen=True)
class Place:
    broker: SecureBroker
    folder: Path

    def librdkafka(self, protocol: str, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
        """By the names that librdkafka and `atonce` take."""
        found = {"security.protocol": protocol}
        if protocol.endswith("SSL"):
            found["ssl.ca.location"] = str(self.folder / "ca.pem")
        if protocol == "SSL":
            found |= dict.fromkeys(("ssl.certificate.location", "ssl.key.location"), str(self.folder / "client.pem"))
        else:
            found |= {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": password}
        return found

    def java(self, protocol: str, mechanism: str, password: str = PASSWORD) -> str:
        """A file of settings."""
        found = {"bootstrap.servers": self.broker.servers_of(protocol), "security.protocol": protocol}
        if protocol.endswith("SSL"):
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.folder / "ca.pem")}
        if protocol == "SSL":
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.folder / "client.pem")}
        else:
            kind = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
            found["sasl.mechanism"] = mechanism
            found["sasl.jaas.config"] = (
                f'org.apache.kafka.common.security.{kind} required username="{USER}" password="{password}";'
            )
        path = self.folder / f"{protocol}-{mechanism}-{password == PASSWORD}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in found.items()))
        return str(path)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("matrix")
    authority = Authority("test authority")
    (folder / "ca.pem").write_bytes(authority.certificate)
    for name, hosts in (("server", ["localhost", "127.0.0.1"]), ("client", [])):
        issued = authority.issue(name, hosts)
        (folder / f"{name}.pem").write_bytes(issued.key + issued.certificate)
    settings = {
        "ssl.keystore.location": str(folder / "server.pem"),
        "ssl.truststore.location": str(folder / "ca.pem"),
        "ssl.client.auth": "required",
    }
    with SecureBroker(("SSL", "SASL_SSL", "SASL_PLAINTEXT"), settings) as broker:
        made = Place(broker, folder)
        at = {"bootstrap.servers": broker.servers_of("SSL"), **made.librdkafka("SSL", "")}
        admin = AdminClient(at)
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(20)
        yield made


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_python_clients_come_in(place: Place, protocol: str, mechanism: str) -> None:
    servers, config = place.broker.servers_of(protocol), place.librdkafka(protocol, mechanism)
    producer = Producer({"bootstrap.servers": servers, **config})
    producer.produce(TOPIC, b"librdkafka")
    assert producer.flush(20) == 0
    python = KafkaProducer(
        bootstrap_servers=servers,
        security_protocol=protocol,
        **({} if not protocol.endswith("SSL") else {"ssl_cafile": config["ssl.ca.location"]}),
        **(
            {"ssl_certfile": config["ssl.certificate.location"], "ssl_keyfile": config["ssl.key.location"]}
            if protocol == "SSL"
            else {"sasl_mechanism": mechanism, "sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
        ),
    )
    python.send(TOPIC, b"kafka-python").get(20)
    python.close()
    with Cluster(servers, config) as cluster:
        assert cluster.topic(TOPIC) is not None


def test_javas_client_comes_in(place: Place) -> None:
    files = [place.java(protocol, mechanism) for protocol, mechanism in WAYS]
    wrong = [place.java("SASL_SSL", mechanism, "wrong") for mechanism in MECHANISMS]
    source = Path(__file__).with_name("java") / "Enter.java"
    command = [find_java().command, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath(KAFKA)]
    done = subprocess.run(
        [*command, str(source), TOPIC, *files, *wrong], capture_output=True, text=True, timeout=200, check=False
    )
    expected = [f"{file} in" for file in files] + [f"{file} SaslAuthenticationException" for file in wrong]
    assert done.stdout.splitlines() == expected, done.stderr[-2000:]


def test_wrong_passwords_and_protocols_are_told(place: Place) -> None:
    with pytest.raises(UsageError, match="credentials"):
        Cluster(place.broker.servers_of("SASL_SSL"), place.librdkafka("SASL_SSL", "SCRAM-SHA-512", "wrong"))
    plain = place.librdkafka("SASL_PLAINTEXT", "PLAIN")
    with pytest.raises((KafkaException, KafkaError)):
        AdminClient({"bootstrap.servers": place.broker.servers_of("SASL_SSL"), **plain}).list_topics(timeout=1)


def test_our_client_comes_in_only_where_the_certificate_is_the_hosts(place: Place, tmp_path: Path) -> None:
    """A certificate of the right authority for another host, as somebody in the middle might have."""
    authority = Authority("another authority")
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    issued = authority.issue("elsewhere", ["broker.example.org"])
    (tmp_path / "server.pem").write_bytes(issued.key + issued.certificate)
    config = {"security.protocol": "SSL", "ssl.ca.location": str(tmp_path / "ca.pem")}
    with SecureBroker(("SSL",), {"ssl.keystore.location": str(tmp_path / "server.pem")}) as broker:
        with pytest.raises(UsageError, match="certificate"):
            Cluster(broker.servers_of("SSL"), config, connect_timeout_ms=3000)
        for word in ("", "none"):
            Cluster(broker.servers_of("SSL"), {**config, "ssl.endpoint.identification.algorithm": word}).close()

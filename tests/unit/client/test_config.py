"""Client properties by Kafka's names: understood, refused by name, and never shown when secret."""

from __future__ import annotations

import pytest

from atonce.client.config import Properties, connection_settings
from atonce.errors import UsageError


def test_java_and_librdkafka_names_mean_the_same() -> None:
    java = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": 'o.a.k.ScramLoginModule required username="me" password="a \\"quoted\\" word";',
        "ssl.truststore.location": "/ca.pem",
        "ssl.truststore.type": "PEM",
    }
    librdkafka = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": 'a "quoted" word',
        "ssl.ca.location": "/ca.pem",
    }
    assert connection_settings(java) == connection_settings(librdkafka)


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"security.protocl": "SSL"}, "Did you mean 'security.protocol'?"),
        ({"security.protocol": "TLS"}, "is not one of: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"security.protocol": "SASL_SSL"}, "needs sasl.mechanism"),
        ({"sasl.mechanism": "MAGIC"}, "is not one of: PLAIN"),
        ({"ssl.truststore.location": "/etc/store.jks"}, "convert it to PEM"),
        ({"ssl.keystore.type": "JKS"}, "give PEM files"),
        ({"request.timeout.ms": "soon"}, "is not a whole number"),
        ({"sasl.jaas.config": "hush hush"}, "not shown"),
    ],
)
def test_what_is_wrong_is_said_by_name(properties: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError) as raised:
        connection_settings(properties)
    assert words in str(raised.value)
    assert "hush" not in str(raised.value)


def test_hostname_checking_is_switched_as_in_java() -> None:
    assert connection_settings({"ssl.endpoint.identification.algorithm": ""})["ssl_check_hostname"] is False
    assert connection_settings({"ssl.endpoint.identification.algorithm": "https"})["ssl_check_hostname"] is True


def test_secrets_are_not_in_the_text() -> None:
    properties = Properties({"sasl.password": "hush", "ssl.key.password": "hush", "sasl.jaas.config": "hush", "a": "b"})
    for text in (repr(properties), str(properties), f"{properties}", f"{properties!r}"):
        assert "hush" not in text and "a=b" in text

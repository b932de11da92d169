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


@pytest.mark.parametrize(
    ("word", "checked"), [("", False), (" ", False), ("none", False), ("https", True), ("HTTPS", True), (None, True)]
)
def test_host_names_are_checked_but_for_the_words_of_kafka_and_librdkafka(word: str | None, checked: bool) -> None:
    given = {} if word is None else {"ssl.endpoint.identification.algorithm": word}
    assert connection_settings(given).get("ssl_check_hostname", True) is checked


@pytest.mark.parametrize("word", ["None", "false", "http", "htps", "disabled"])
def test_a_word_that_nobody_knows_does_not_switch_the_check_off(word: str) -> None:
    with pytest.raises(UsageError, match="identification"):
        connection_settings({"ssl.endpoint.identification.algorithm": word})


def test_secrets_are_not_in_the_text() -> None:
    properties = Properties({"sasl.password": "hush", "ssl.key.password": "hush", "sasl.jaas.config": "hush", "a": "b"})
    for text in (repr(properties), str(properties), f"{properties}", f"{properties!r}"):
        assert "hush" not in text and "a=b" in text

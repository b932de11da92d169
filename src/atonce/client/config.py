"""Kafka's client properties, by Kafka's own names, as the connection layer wants them.

Secrets stay out of every text: `Properties` prints the names and hides the values that must not be seen.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any

from atonce.client import oauth, profiles
from atonce.errors import UsageError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER", "AWS_MSK_IAM")
SECRET = re.compile(r"password|jaas|secret|token(?!\.endpoint)", re.IGNORECASE)


def _protocol(value: str) -> str:
    if value.upper() not in PROTOCOLS:
        raise UsageError(f"security.protocol={value!r} is not one of: {', '.join(PROTOCOLS)}")
    return value.upper()


def _mechanism(value: str) -> str:
    if value.upper() not in MECHANISMS:
        raise UsageError(f"sasl.mechanism={value!r} is not one of: {', '.join(MECHANISMS)}")
    return value.upper()


def _checks_host_name(value: str) -> bool:
    """Off only for the very words that mean it: nothing (Java's clients) and `none` (librdkafka)."""
    if value.lower() == "https":
        return True
    if value in ("", "none"):
        return False
    raise UsageError(
        f"ssl.endpoint.identification.algorithm={value!r} is neither https, which checks that the certificate is the "
        "host's, nor empty or none, which does not"
    )


def _whole(name: str) -> Callable[[str], int]:
    def read(value: str) -> int:
        try:
            return int(value)
        except ValueError:
            raise UsageError(f"{name}={value!r} is not a whole number") from None

    return read


# Kafka's name (Java's or librdkafka's) → the connection layer's name, and how the value is read.
KNOWN: dict[str, tuple[str, Callable[[str], Any]]] = {
    "security.protocol": ("security_protocol", _protocol),
    "sasl.mechanism": ("sasl_mechanism", _mechanism),
    "sasl.mechanisms": ("sasl_mechanism", _mechanism),
    "sasl.username": ("sasl_plain_username", str),
    "sasl.password": ("sasl_plain_password", str),
    "sasl.kerberos.service.name": ("sasl_kerberos_service_name", str),
    "ssl.ca.location": ("ssl_cafile", str),
    "ssl.truststore.location": ("ssl_cafile", str),
    "ssl.certificate.location": ("ssl_certfile", str),
    "ssl.keystore.location": ("ssl_certfile", str),
    "ssl.key.location": ("ssl_keyfile", str),
    "ssl.key.password": ("ssl_password", str),
    "ssl.crl.location": ("ssl_crlfile", str),
    "client.id": ("client_id", str),
    "request.timeout.ms": ("request_timeout_ms", _whole("request.timeout.ms")),
    "reconnect.backoff.ms": ("reconnect_backoff_ms", _whole("reconnect.backoff.ms")),
    "reconnect.backoff.max.ms": ("reconnect_backoff_max_ms", _whole("reconnect.backoff.max.ms")),
    "connections.max.idle.ms": ("connections_max_idle_ms", _whole("connections.max.idle.ms")),
    "socket.connection.setup.timeout.ms": (
        "socket_connection_setup_timeout_ms",
        _whole("socket.connection.setup.timeout.ms"),
    ),
    "client.dns.lookup": ("client_dns_lookup", str),
}
SPECIAL = (
    profiles.PROPERTY,
    "sasl.jaas.config",
    "ssl.endpoint.identification.algorithm",
    "ssl.truststore.type",
    "ssl.keystore.type",
    *oauth.NAMES,
)


class Properties(dict[str, str]):
    """Client properties whose text never shows a secret."""

    def __repr__(self) -> str:
        shown = ((name, "***" if SECRET.search(name) else value) for name, value in sorted(self.items()))
        return "{" + ", ".join(f"{name}={value}" for name, value in shown) + "}"

    __str__ = __repr__


def connection_settings(properties: Mapping[str, str]) -> dict[str, Any]:
    """The connection layer's settings. A property that means nothing to us is refused by name."""
    settings: dict[str, Any] = {}
    login: dict[str, str] = {}
    for name, value in properties.items():
        if name in KNOWN:
            target, read = KNOWN[name]
            settings[target] = read(str(value))
        elif name == "sasl.jaas.config":
            if _is_oauth(properties):
                login = _oauth_jaas(str(value)) | login
            else:
                settings.update(_user_and_password(str(value)))
        elif name in oauth.NAMES:
            login[name] = str(value)
        elif name == profiles.PROPERTY:
            continue  # of limits, not of connections
        elif name == "ssl.endpoint.identification.algorithm":
            settings["ssl_check_hostname"] = _checks_host_name(str(value).strip())
        elif name in ("ssl.truststore.type", "ssl.keystore.type"):
            if str(value).upper() != "PEM":
                raise UsageError(f"{name}={value} cannot be read here: give PEM files (openssl pkcs12 converts them)")
        else:
            near = difflib.get_close_matches(name, [*KNOWN, *SPECIAL], 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            known = ", ".join(sorted([*KNOWN, *SPECIAL]))
            raise UsageError(f"client property {name!r} is not known.{hint} Known: {known}")
    _check_store(settings.get("ssl_cafile"), "ssl.truststore.location")
    _check_store(settings.get("ssl_certfile"), "ssl.keystore.location")
    if str(settings.get("security_protocol", "")).startswith("SASL") and "sasl_mechanism" not in settings:
        raise UsageError(
            f"security.protocol={settings['security_protocol']} needs sasl.mechanism ({', '.join(MECHANISMS)})"
        )
    if settings.get("sasl_mechanism") == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = oauth.tokens_of(oauth.read_login(login))
    elif login:
        raise UsageError(f"{min(login)} means something with sasl.mechanism=OAUTHBEARER only")
    return settings


def _is_oauth(properties: Mapping[str, str]) -> bool:
    return str(properties.get("sasl.mechanism", properties.get("sasl.mechanisms", ""))).upper() == "OAUTHBEARER"


def _check_store(path: str | None, name: str) -> None:
    if path and path.lower().endswith((".jks", ".p12", ".pfx")):
        raise UsageError(
            f"{name}={path} is a Java key store, which cannot be read here. Next: convert it to PEM "
            "(keytool -importkeystore …, openssl pkcs12 -in store.p12 -out store.pem) and name that file."
        )


def _jaas(text: str) -> dict[str, str]:
    """The pairs of a JAAS line: `…LoginModule required username="u" password="p";`."""
    pairs: dict[str, str] = {}
    for name, quoted, bare in re.findall(r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))', text):
        pairs[name] = bare or re.sub(r"\\(.)", r"\1", quoted)
    return pairs


def _user_and_password(text: str) -> dict[str, str]:
    pairs = _jaas(text)
    if "username" not in pairs or "password" not in pairs:
        raise UsageError(
            'sasl.jaas.config has no username="…" and password="…" (its text may hold a secret: not shown)'
        )
    return {"sasl_plain_username": pairs["username"], "sasl_plain_password": pairs["password"]}


def _oauth_jaas(text: str) -> dict[str, str]:
    pairs = _jaas(text)
    found = {ours: pairs[theirs] for theirs, ours in oauth.JAAS.items() if theirs in pairs}
    more = [(name.removeprefix(oauth.JAAS_EXTENSION), value) for name, value in pairs.items() if name not in oauth.JAAS]
    if more:
        found["sasl.oauthbearer.extensions"] = ",".join(f"{name}={value}" for name, value in more)
    return found

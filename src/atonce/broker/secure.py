"""`atonce broker --secure`: a certificate, a user and the settings for both, made once and kept in the data directory.

Everybody logs in, over TLS. The user `admin` may do everything; others are made by `atonce users add` and may do what
ACLs allow them.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from atonce.broker.address import LOCK, parse_address, show_address
from atonce.broker.users import Users
from atonce.errors import UsageError
from atonce.local.certificates import keep_server_certificate
from atonce.local.private import make_private_directory, write_private

FOLDER = "secure"
ADMIN = "admin"
DEFAULT_LISTEN = "0.0.0.0:9093"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_EVERYWHERE = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class Secured:
    settings: dict[str, str]
    folder: Path

    def write_client_settings(self, servers: str) -> list[str]:
        """For the clients' side, to be printed; and the same as a file for Java's clients, with the password in it."""
        password, trusted = self.folder / f"{ADMIN}.password", self.folder / "ca.pem"
        same = {
            "bootstrap.servers": servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
        }
        if password.exists():
            login = f'username="{ADMIN}" password="{password.read_text().strip()}"'
            java = {
                **same,
                "sasl.jaas.config": f"org.apache.kafka.common.security.scram.ScramLoginModule required {login};",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(trusted),
            }
            write_private(self.folder / "client.properties", _lines(java).encode())
        shown = {
            **same,
            "sasl.username": ADMIN,
            "sasl.password": f"${{file:{password}}}",
            "ssl.ca.location": str(trusted),
        }
        return _lines(shown).splitlines()


def _lines(values: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in values.items())


def secure(data: Path, listen: str | None, given: Mapping[str, str]) -> Secured:
    """The settings of a secured broker at `listen`; those in `given` go before ours."""
    if "listeners" in given:
        raise UsageError("--secure and --set listeners=… were both given: with --secure, say --listen HOST:PORT")
    host, port = parse_address(listen or DEFAULT_LISTEN)
    folder = data.absolute() / FOLDER
    try:
        make_private_directory(data, LOCK)
        make_private_directory(folder, "ca.pem")
        keystore, _ = keep_server_certificate(folder, _names(host, given.get("advertised.listeners")))
        _keep_admin(data, folder)
    except OSError as error:
        raise UsageError(f"{folder}: certificate and user cannot be kept there: {error.strerror}") from error
    settings = {
        "listeners": f"SASL_SSL://{show_address(host, port)}",
        "ssl.keystore.location": str(keystore),
        "authorizer.class.name": AUTHORIZER,
        "super.users": f"User:{ADMIN}",
    }
    return Secured({**settings, **given}, folder)


def reachable_name(listen: str | None) -> str:
    """What other machines call this one, as far as we can know."""
    host, _ = parse_address(listen or DEFAULT_LISTEN)
    return socket.getfqdn() if host in _EVERYWHERE else host


def _names(host: str, advertised: str | None) -> list[str]:
    """Everything that a client may have called us by."""
    names = [] if host in _EVERYWHERE else [host]
    for word in (advertised or "").split(","):
        if "://" in word:
            names.append(parse_address(word.strip().partition("://")[2])[0])
    names += [socket.getfqdn(), socket.gethostname(), "localhost", "127.0.0.1", "::1"]
    if host in _EVERYWHERE:
        for addresses in psutil.net_if_addrs().values():
            families = (socket.AF_INET, socket.AF_INET6)
            names += [one.address.partition("%")[0] for one in addresses if one.family in families]
    return [name for name in dict.fromkeys(names) if name]


def _keep_admin(data: Path, folder: Path) -> None:
    """A first user with a password that nobody chose; whoever is there already stays as he is."""
    users = Users(data)
    if ADMIN in users.all():
        return
    password = secrets.token_urlsafe(24)
    write_private(folder / f"{ADMIN}.password", f"{password}{os.linesep}".encode())
    users.set_password(ADMIN, password)

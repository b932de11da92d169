"""TLS for a listener: the certificate that we show, the certificates that we ask for, and the handshake.

The event loop's own TLS wraps the connection once the handshake is done, so plain listeners know nothing of it. Whoever
is still shaking hands is counted among the strangers, and has as long as they have.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from atonce.broker.config import BadSetting
from atonce.broker.peer import ANONYMOUS
from atonce.broker.settings import Settings

if TYPE_CHECKING:
    from atonce.broker.connection import Connection

_log = logging.getLogger(__name__)

_ACCEPT_AGAIN_S = 0.5

_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
# What Java calls the parts of a name (RFC 2253); others are shown by the name that OpenSSL has for them.
_PARTS = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}


def tls_context(settings: Settings, *, asks_for_a_user: bool) -> ssl.SSLContext:
    """As the settings say. Where users log in with SASL, no certificate is asked for: as in Kafka."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = sorted(_VERSIONS[name] for name in settings.text("ssl.enabled.protocols").split(","))
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    keystore = settings.value("ssl.keystore.location")
    if keystore is None:
        raise BadSetting(
            "ssl.keystore.location: unset, and a listener with TLS needs it: a PEM file with key and certificate"
        )
    password = settings.value("ssl.key.password")
    try:
        # A function, for without one OpenSSL would ask for the password on the terminal.
        context.load_cert_chain(str(keystore), password=lambda: str(password or ""))
    except (OSError, ValueError) as error:
        raise BadSetting(
            f"ssl.keystore.location={keystore}: not a PEM file with key and certificate: {error}"
        ) from None
    verify = "none" if asks_for_a_user else settings.text("ssl.client.auth")
    if verify != "none":
        truststore = settings.value("ssl.truststore.location")
        if truststore is None:
            raise BadSetting(f"ssl.client.auth={verify} needs ssl.truststore.location: whose certificates are accepted")
        try:
            context.load_verify_locations(str(truststore))
        except (OSError, ValueError) as error:
            raise BadSetting(f"ssl.truststore.location={truststore}: no PEM file with certificates: {error}") from None
        context.verify_mode = _VERIFY[verify]
    return context


def distinguished_name(certificate: dict[str, Any]) -> str:
    """As Java writes it, which is what Kafka's ACLs name: the last part first."""
    parts = []
    for group in reversed(certificate.get("subject", ())):
        parts.append("+".join(f"{_PARTS.get(name, name)}={_escaped(value)}" for name, value in group))
    return ",".join(parts)


def _escaped(value: str) -> str:
    out = "".join("\\" + letter if letter in ',+"\\<>;' else letter for letter in value)
    if out[:1] in ("#", " "):
        out = "\\" + out
    return out[:-1] + "\\ " if out.endswith(" ") and len(out) > 1 else out


def principal(transport: Any) -> str:
    """Whom the certificate of the other side names; anonymous without one."""
    certificate = transport.get_extra_info("peercert")
    return f"User:{distinguished_name(certificate)}" if certificate else ANONYMOUS


class TlsListener:
    """Accepts by itself: the loop's own server would tell us of nobody before his handshake is done."""

    def __init__(
        self, sockets: list[socket.socket], make: Callable[[], Connection], context: ssl.SSLContext, handshake_s: float
    ) -> None:
        self.sockets = sockets
        self._make = make
        self._context = context
        self._handshake_s = handshake_s
        loop = asyncio.get_running_loop()
        self._accepting = [loop.create_task(self._accept(one)) for one in sockets]
        self._greetings: set[TlsGreeting] = set()

    def close(self) -> None:
        for task in self._accepting:
            task.cancel()
        for greeting in list(self._greetings):
            greeting.abort()
        for one in self.sockets:
            one.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError as error:  # no descriptors left, or he hung up
                _log.warning("cannot accept a connection: %s", error)
                await asyncio.sleep(_ACCEPT_AGAIN_S)
                continue
            connection = self._make()
            greeting = TlsGreeting(accepted, connection)
            if connection.arrive(greeting):
                self._greetings.add(greeting)
                greeting.task = loop.create_task(self._shake_hands(greeting))

    async def _shake_hands(self, greeting: TlsGreeting) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: greeting.connection,
                greeting.accepted,
                ssl=self._context,
                ssl_handshake_timeout=self._handshake_s,
            )
        except asyncio.CancelledError:
            greeting.connection.connection_lost(None)
        except (OSError, TimeoutError) as error:
            _log.info("no TLS handshake with %s: %s", greeting.connection.address, error)
            greeting.connection.connection_lost(None)
        finally:
            self._greetings.discard(greeting)


class TlsGreeting:
    """Stands for the transport of a connection until its handshake is done."""

    def __init__(self, accepted: socket.socket, connection: Connection) -> None:
        self.accepted = accepted
        self.connection = connection
        self.task: asyncio.Task[None] | None = None

    def get_extra_info(self, name: str) -> Any:
        try:
            return self.accepted.getpeername() if name == "peername" else self.accepted.getsockname()
        except OSError:
            return None

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        if self.task is not None:
            self.task.cancel()
        else:
            self.accepted.close()

    close = abort


def listening_sockets(host: str | None, port: int, backlog: int) -> list[socket.socket]:
    """One for each address that the host has; None listens everywhere."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    made: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            one = socket.socket(family, kind, protocol)
            made.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.setblocking(False)
            one.bind(address)
            one.listen(backlog)
    except BaseException:
        for one in made:
            one.close()
        raise
    return made

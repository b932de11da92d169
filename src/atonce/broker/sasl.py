"""Who a connection belongs to: SASL with PLAIN and SCRAM, by the words and in the order of Kafka's own server.

A stranger may ask for ApiVersions, name a mechanism (SaslHandshake) and then only prove who he is. Whatever else he
sends ends the connection. A refusal is answered after a moment, in the same words whether or not the user exists.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from struct import Struct

from atonce.broker.messages import ErrorCode, MalformedRequest
from atonce.broker.peer import Peer
from atonce.broker.scram import BY_NAME, ScramExchange, ScramRefused, read_client_first
from atonce.broker.users import Users
from atonce.errors import AtOnceError

PLAIN = "PLAIN"
MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", PLAIN)
API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
_SIZE = Struct(">i")


class LoginRefused(AtOnceError):
    """Not proven; the text is what the client is told."""


class Sasl:
    """What all logins of a broker share."""

    def __init__(self, users: Users, mechanisms: Sequence[str], failed_delay_s: float) -> None:
        self.users = users
        self.mechanisms = tuple(mechanisms)
        self.failed_delay_s = failed_delay_s
        # A password costs milliseconds of a core. Two at a time: a flood of strangers takes no more than that.
        self.pool = ThreadPoolExecutor(2, "login")

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)


class Login:
    """One connection's way in."""

    def __init__(self, sasl: Sasl, peer: Peer) -> None:
        self._sasl = sasl
        self._peer = peer
        self._mechanism: str | None = None
        self._exchange: ScramExchange | None = None
        self._user = ""
        self.takes_raw_tokens = False  # SaslHandshake version 0: the tokens follow without Kafka's headers

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return self._sasl.mechanisms

    def check_allowed(self, api_key: int) -> None:
        allowed = (API_VERSIONS, SASL_HANDSHAKE) if self._mechanism is None else (SASL_AUTHENTICATE,)
        if api_key not in allowed:
            raise MalformedRequest(f"API {api_key} from somebody who has not logged in")

    async def choose(self, mechanism: str, *, raw: bool) -> ErrorCode:
        if mechanism not in self._sasl.mechanisms:
            await self._turn_away()
            return ErrorCode.unsupported_sasl_mechanism
        self._mechanism = mechanism
        self.takes_raw_tokens = raw
        return ErrorCode.none

    async def answer(self, token: bytes) -> bytes:
        """The next token for the client. The peer has entered when its login is None afterwards."""
        try:
            return await self._plain(token) if self._mechanism == PLAIN else self._scram(token)
        except LoginRefused:
            await self._turn_away()
            raise
        except ScramRefused:
            await self._turn_away()
            raise LoginRefused(
                "Authentication failed during authentication due to invalid credentials with SASL mechanism "
                f"{self._mechanism}"
            ) from None

    async def answer_raw(self, token: bytes) -> list[bytes]:
        try:
            out = await self.answer(token)
        except LoginRefused:
            return []
        return [_SIZE.pack(len(out)), out]

    async def _plain(self, token: bytes) -> bytes:
        try:
            asked_for, user, password = token.decode().split("\0")
        except ValueError:
            raise LoginRefused("Invalid SASL/PLAIN response: expected 3 tokens") from None
        for what, value in (("username", user), ("password", password)):
            if not value:
                raise LoginRefused(f"Authentication failed: {what} not specified")
        loop = asyncio.get_running_loop()
        if not await loop.run_in_executor(self._sasl.pool, self._sasl.users.has_password, user, password):
            raise LoginRefused("Authentication failed: Invalid username or password")
        if asked_for and asked_for != user:
            raise LoginRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self._peer.enter(user)
        return b""

    def _scram(self, token: bytes) -> bytes:
        if self._exchange is None:
            first = read_client_first(token)
            self._user = first.user
            mechanism = BY_NAME[str(self._mechanism)]
            self._exchange = ScramExchange(first, self._sasl.users.find(first.user, mechanism))
            return self._exchange.challenge
        proof = self._exchange.finish(token)
        self._peer.enter(self._user)
        return proof

    async def _turn_away(self) -> None:
        self._peer.turned_away = True
        await asyncio.sleep(self._sasl.failed_delay_s)

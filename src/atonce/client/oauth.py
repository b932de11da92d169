"""Tokens for OAUTHBEARER: from an OIDC endpoint by client credentials, or from a command that prints one.

A command serves every cloud whose login is a program of its own: MSK's IAM signer, Entra ID, a company's script. One
token serves all connections of a process until four fifths of its life are over; while a new one cannot be had, the old
one is used as long as it lives.
"""

from __future__ import annotations

import base64
import binascii
import json
import shlex
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from atonce.client.errors import AccessDenied
from atonce.errors import UnreachableError, UsageError

PREFIX = "sasl.oauthbearer."
NAMES = (
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.token.command",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.extensions",
    "https.ca.location",
)
# The names of JAAS' login module → ours.
JAAS = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
JAAS_EXTENSION = "extension_"

FETCH_TIMEOUT_S = 30.0
REFRESH_AT = 0.8  # of a token's life, as Java's client does
UNKNOWN_LIFE_S = 60.0  # of a token that does not say how long it lives
MAX_ANSWER_BYTES = 1 << 20
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Login:
    """Where tokens come from. Its text shows no secret."""

    endpoint: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    command: str = field(default="", repr=False)
    extensions: tuple[tuple[str, str], ...] = ()
    ca_file: str = ""

    def __str__(self) -> str:
        return f"the token endpoint {self.endpoint}" if self.endpoint else f"the token command {self._program()}"

    def _program(self) -> str:
        return shlex.split(self.command)[0]


def read_login(properties: Mapping[str, str]) -> Login:
    """The login that these properties describe (JAAS' names already replaced by ours)."""
    given = {name.removeprefix(PREFIX): str(value) for name, value in properties.items()}
    method = given.get("method", "oidc")
    if method.lower() not in ("oidc", "default"):
        raise UsageError(f"sasl.oauthbearer.method={method!r} is neither oidc nor default")
    login = Login(
        endpoint=given.get("token.endpoint.url", ""),
        client_id=given.get("client.credentials.client.id", given.get("client.id", "")),
        client_secret=given.get("client.credentials.client.secret", given.get("client.secret", "")),
        scope=given.get("scope", ""),
        command=given.get("token.command", ""),
        extensions=_extensions(given.get("extensions", "")),
        ca_file=given.get("https.ca.location", ""),
    )
    if bool(login.endpoint) == bool(login.command):
        raise UsageError(
            "sasl.mechanism=OAUTHBEARER needs either sasl.oauthbearer.token.endpoint.url, with client.id and "
            "client.secret, or sasl.oauthbearer.token.command, a program that prints a token: "
            f"{'both are' if login.endpoint else 'neither is'} given"
        )
    if login.endpoint:
        _check_endpoint(login)
    else:
        _words_of(login.command)
    return login


def _check_endpoint(login: Login) -> None:
    url = urllib.parse.urlsplit(login.endpoint)
    if url.scheme not in ("http", "https") or not url.hostname or url.username or url.password:
        raise UsageError("sasl.oauthbearer.token.endpoint.url is no address like https://login.example.org/token")
    if url.scheme == "http" and url.hostname not in _LOOPBACK:
        raise UsageError(
            f"sasl.oauthbearer.token.endpoint.url={login.endpoint} sends the client's secret unencrypted: use https"
        )
    if not login.client_id or not login.client_secret:
        raise UsageError(
            "sasl.oauthbearer.token.endpoint.url needs sasl.oauthbearer.client.id and sasl.oauthbearer.client.secret"
        )


def _words_of(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"sasl.oauthbearer.token.command cannot be split into words: {error}") from None
    if not words:
        raise UsageError("sasl.oauthbearer.token.command is empty")
    return words


def _extensions(text: str) -> tuple[tuple[str, str], ...]:
    found = []
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = pair.partition("=")
        if not equals or not name.isalpha() or name.lower() == "auth":
            raise UsageError(f"sasl.oauthbearer.extensions: {pair!r} is not name=value with a name of letters only")
        found.append((name, value))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Token:
    text: str = field(repr=False)
    life_s: float


class Tokens:
    """A token that is good now, asked for again before it ends. Thread-safe."""

    def __init__(self, login: Login, clock: Callable[[], float] = time.monotonic) -> None:
        self.login = login
        self._clock = clock
        self._lock = threading.Lock()
        self._token = ""
        self._refresh_at = self._ends_at = 0.0

    def token(self) -> str:
        with self._lock:
            now = self._clock()
            if now >= self._refresh_at:
                try:
                    self._keep(fetch(self.login))
                except (AccessDenied, UnreachableError):
                    if now >= self._ends_at:
                        raise
                    self._refresh_at = now + 1.0
            return self._token

    def _keep(self, token: Token) -> None:
        now = self._clock()
        self._token = token.text
        self._refresh_at, self._ends_at = now + REFRESH_AT * token.life_s, now + token.life_s


@lru_cache(maxsize=64)
def tokens_of(login: Login) -> Tokens:
    """One for all connections of this process that log in alike."""
    return Tokens(login)


def fetch(login: Login) -> Token:
    return _from_endpoint(login) if login.endpoint else _from_command(login)


def _from_endpoint(login: Login) -> Token:
    # Each is form-encoded before Basic joins them (RFC 6749, 2.3.1), so a secret may hold any character.
    pair = ":".join(urllib.parse.quote_plus(part) for part in (login.client_id, login.client_secret))
    form = {"grant_type": "client_credentials"} | ({"scope": login.scope} if login.scope else {})
    request = urllib.request.Request(
        login.endpoint,
        data=urllib.parse.urlencode(form).encode(),
        headers={
            "Authorization": "Basic " + base64.b64encode(pair.encode()).decode(),
            "Accept": "application/json",
        },
    )
    opener = urllib.request.build_opener(_NoRedirect(), urllib.request.HTTPSHandler(context=_context(login)))
    try:
        with opener.open(request, timeout=FETCH_TIMEOUT_S) as answer:
            body = answer.read(MAX_ANSWER_BYTES)
    except urllib.error.HTTPError as error:
        said = _error_code(error.read(MAX_ANSWER_BYTES))
        words = f"{login} answered {error.code}{said}"
        if error.code in (429,) or error.code >= 500:
            raise UnreachableError(f"{words}. Next: ask it again later, or its owner.") from None
        raise AccessDenied(
            f"{words} to client {login.client_id!r}. Next: check sasl.oauthbearer.client.id, client.secret and scope."
        ) from None
    except OSError as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise UnreachableError(
            f"{login} cannot be reached: {reason}. Next: check the address and the network."
        ) from None
    return _read_token(body.decode("utf-8", "replace"), login)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the secret to an address that nobody named."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _context(login: Login) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=login.ca_file or None)
    except OSError as error:
        raise UsageError(f"https.ca.location={login.ca_file} cannot be read: {error}") from None


def _error_code(body: bytes) -> str:
    """OAuth's word for what is wrong (`invalid_client`); the rest of a body is a stranger's text."""
    try:
        word = json.loads(body).get("error")
    except (ValueError, AttributeError):
        return ""
    return f" ({word[:80]})" if isinstance(word, str) and word.replace("_", "").isalnum() else ""


def _from_command(login: Login) -> Token:
    words = _words_of(login.command)
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=FETCH_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise UnreachableError(f"{login} did not end within {FETCH_TIMEOUT_S:g} s") from None
    except OSError as error:
        raise AccessDenied(f"{login} cannot be run here: {error.strerror}. Next: check its name and path.") from None
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        last = f": {said[-1][:300]}" if said else ""
        raise AccessDenied(f"{login} ended with exit code {done.returncode}{last}")
    return _read_token(done.stdout.decode("utf-8", "replace"), login)


def _read_token(text: str, login: Login) -> Token:
    """A JSON object with the token, and how long it lives; or the bare token. The Azure CLI writes `accessToken`."""
    text = text.strip()
    said: dict[str, Any] = {}
    if text.startswith("{"):
        try:
            said = json.loads(text)
        except ValueError:
            raise AccessDenied(f"{login} gave text that begins like JSON and is none (not shown)") from None
        found = next((said[name] for name in ("access_token", "accessToken", "token") if name in said), None)
        text = found if isinstance(found, str) else ""
    if not text or len(text) > MAX_ANSWER_BYTES or not text.isascii() or any(c.isspace() or c < " " for c in text):
        raise AccessDenied(
            f"{login} gave no token (not shown): expected one word, or JSON with access_token and expires_in"
        )
    return Token(text, _life_s(text, said))


def _life_s(text: str, said: Mapping[str, Any]) -> float:
    """By `expires_in`, or by a point in time: MSK's signer says `expires_at_ms`, a JSON web token has `exp`."""
    now = time.time()
    for name, scale, since in (("expires_in", 1, 0.0), ("expires_at_ms", 1000, now), ("expires_on", 1, now)):
        try:
            return max(1.0, float(said[name]) / scale - since)
        except (KeyError, TypeError, ValueError):
            continue
    return max(1.0, _expiry(text, now) - now)


def _expiry(text: str, now: float) -> float:
    parts = text.split(".")
    if len(parts) == 3:
        try:
            claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
            return float(claims["exp"])
        except (binascii.Error, ValueError, KeyError, TypeError):
            pass
    return now + UNKNOWN_LIFE_S

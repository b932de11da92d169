"""SCRAM (RFC 5802) from the server's side: what is kept of a password, and the exchange that proves it.

A password cannot be read back from a `Credential`, and one stolen from disk does not log anybody in: the client must
know a key of which only the hash is kept. Names and passwords are taken as UTF-8 without SASLprep, as Kafka does.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from dataclasses import dataclass
from enum import Enum

MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16384
_SALT_BYTES = 24
_NONCE_BYTES = 24
_GS2 = re.compile(r"([ny]),(?:a=([^,]*))?,(.*)", re.DOTALL)
_FIRST = re.compile(r"n=([^,]+),r=([\x21-\x2b\x2d-\x7e]+)(?:,.*)?", re.DOTALL)
_FINAL = re.compile(r"(c=([^,]+),r=([\x21-\x2b\x2d-\x7e]+)(?:,[^,]*)*?),p=([^,]+)", re.DOTALL)


class ScramMechanism(Enum):
    """Values are Kafka's numbers of them."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        return self.name.replace("SHA_", "SCRAM-SHA-")

    @property
    def digest(self) -> str:
        return self.name.replace("_", "").lower()


BY_NAME = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}


class ScramRefused(Exception):
    """The exchange failed. The text is for our log: a client is told the same whatever was wrong."""


@dataclass(frozen=True, slots=True, repr=False)
class Credential:
    mechanism: ScramMechanism
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    @classmethod
    def from_salted(cls, mechanism: ScramMechanism, salt: bytes, iterations: int, salted: bytes) -> Credential:
        client_key = hmac.digest(salted, b"Client Key", mechanism.digest)
        stored_key = hashlib.new(mechanism.digest, client_key).digest()
        return cls(mechanism, salt, iterations, stored_key, hmac.digest(salted, b"Server Key", mechanism.digest))

    @classmethod
    def from_password(
        cls, mechanism: ScramMechanism, password: str, salt: bytes = b"", iterations: int = MAX_ITERATIONS
    ) -> Credential:
        """Slow on purpose: milliseconds of a whole core, without the interpreter's lock."""
        salt = salt or os.urandom(_SALT_BYTES)
        salted = hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)
        return cls.from_salted(mechanism, salt, iterations, salted)

    def has_password(self, password: str) -> bool:
        again = Credential.from_password(self.mechanism, password, self.salt, self.iterations)
        return hmac.compare_digest(again.stored_key, self.stored_key)


def nobody(mechanism: ScramMechanism, name: str, secret: bytes) -> Credential:
    """A credential that nothing fits, the same each time for the same name: strangers cannot ask who exists."""
    salt = hmac.digest(secret, name.encode(), "sha256")[:_SALT_BYTES]
    size = hashlib.new(mechanism.digest).digest_size
    return Credential(mechanism, salt, MAX_ITERATIONS, os.urandom(size), os.urandom(size))


@dataclass(frozen=True, slots=True)
class ClientFirst:
    gs2_header: str
    bare: str
    user: str
    nonce: str


def read_client_first(token: bytes) -> ClientFirst:
    text = _text(token)
    head = _GS2.fullmatch(text)
    if head is None:
        raise ScramRefused("not a first message, or one that asks for channel binding")
    bare = head.group(3)
    found = _FIRST.fullmatch(bare)
    if found is None:
        raise ScramRefused("a first message without name and nonce")
    user = _name(found.group(1))
    if head.group(2) and _name(head.group(2)) != user:
        raise ScramRefused("another authorization id than the user's name")
    return ClientFirst(text[: len(text) - len(bare)], bare, user, found.group(2))


class ScramExchange:
    """After the client's first message: `challenge` goes out, `finish` judges what comes back."""

    def __init__(self, first: ClientFirst, credential: Credential, nonce: str | None = None) -> None:
        self._first = first
        self._credential = credential
        self._nonce = first.nonce + (nonce or base64.b64encode(os.urandom(_NONCE_BYTES)).decode())
        self.challenge = ",".join(
            (f"r={self._nonce}", f"s={_base64(credential.salt)}", f"i={credential.iterations}")
        ).encode()

    def finish(self, token: bytes) -> bytes:
        """The server's proof, or ScramRefused."""
        found = _FINAL.fullmatch(_text(token))
        if found is None:
            raise ScramRefused("a last message without proof")
        without_proof, binding, nonce, proof_text = found.groups()
        if _bytes(binding) != self._first.gs2_header.encode() or not hmac.compare_digest(nonce, self._nonce):
            raise ScramRefused("a last message that does not belong to the first")
        mechanism = self._credential.mechanism
        signed = b",".join((self._first.bare.encode(), self.challenge, without_proof.encode()))
        signature = hmac.digest(self._credential.stored_key, signed, mechanism.digest)
        proof = _bytes(proof_text)
        if len(proof) != len(signature):
            raise ScramRefused("a proof of the wrong length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(mechanism.digest, client_key).digest(), self._credential.stored_key):
            raise ScramRefused("a wrong password")
        return b"v=" + _base64(hmac.digest(self._credential.server_key, signed, mechanism.digest)).encode()


def _text(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise ScramRefused("not UTF-8") from None


def _name(text: str) -> str:
    if re.search("=(?!2C|3D)", text):
        raise ScramRefused("a name with an unescaped '='")
    return text.replace("=2C", ",").replace("=3D", "=")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramRefused("not base64") from None

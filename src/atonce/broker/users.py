"""The users of a broker, in `users.json` of its data directory.

The file is the truth: `atonce users` and a running broker may both change it, under one lock, and the broker looks at
it again whenever somebody logs in. It holds no password, only what SCRAM needs to check one.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from atonce.broker.scram import BY_NAME, Credential, ScramMechanism, nobody
from atonce.errors import CorruptLogError
from atonce.local.private import changing, write_private

FILE = "users.json"
_FORMAT = 1

Credentials = dict[str, dict[ScramMechanism, Credential]]


class Users:
    """Credentials by name and mechanism."""

    def __init__(self, data: Path) -> None:
        self._path = data / FILE
        self._seen: tuple[int, int, int] | None = None
        self._known: Credentials = {}
        self._secret = os.urandom(32)

    def all(self) -> Credentials:
        """As the file is now."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            self._seen, self._known = None, {}
            return self._known
        mark = (found.st_ino, found.st_mtime_ns, found.st_size)
        if mark != self._seen:
            self._known = _read(self._path)
            self._seen = mark
        return self._known

    def find(self, name: str, mechanism: ScramMechanism) -> Credential:
        """The user's credential, or one that no password fits."""
        return self.all().get(name, {}).get(mechanism) or nobody(mechanism, name, self._secret)

    def has_password(self, name: str, password: str) -> bool:
        """Takes as long for a name that does not exist. Not for the event loop."""
        known = self.all().get(name, {})
        mechanism = next((m for m in reversed(ScramMechanism) if m in known), ScramMechanism.SHA_512)
        credential = known.get(mechanism)
        fits = (credential or nobody(mechanism, name, self._secret)).has_password(password)
        return fits and credential is not None

    def change(self, change: Callable[[Credentials], None]) -> None:
        """Apply `change` to what is on disk, and have it there when this returns."""
        with changing(self._path):
            fresh = {name: dict(held) for name, held in self.all().items()}
            change(fresh)
            write_private(self._path, _written(fresh))

    def set_password(self, name: str, password: str) -> None:
        made = [Credential.from_password(mechanism, password) for mechanism in ScramMechanism]
        self.change(lambda users: users.update({name: {one.mechanism: one for one in made}}))

    def remove(self, name: str) -> None:
        self.change(lambda users: users.__delitem__(name))


def put(users: Credentials, name: str, credentials: Iterable[Credential]) -> None:
    users.setdefault(name, {}).update({one.mechanism: one for one in credentials})


def drop(users: Credentials, name: str, mechanism: ScramMechanism) -> None:
    del users[name][mechanism]
    if not users[name]:
        del users[name]


def _read(path: Path) -> Credentials:
    try:
        content = json.loads(path.read_text())
        if content["format"] != _FORMAT:
            raise ValueError(f"format {content['format']}, expected {_FORMAT}")
        return {
            name: {BY_NAME[mechanism]: _credential(BY_NAME[mechanism], one) for mechanism, one in held.items()}
            for name, held in content["users"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptLogError(f"{path} is not a list of users ({error!r}). Put it back from a copy.") from error


def _credential(mechanism: ScramMechanism, one: dict[str, Any]) -> Credential:
    salt, stored_key, server_key = (base64.b64decode(one[key]) for key in ("salt", "stored_key", "server_key"))
    return Credential(mechanism, salt, int(one["iterations"]), stored_key, server_key)


def _written(users: Credentials) -> bytes:
    def text(data: bytes) -> str:
        return base64.b64encode(data).decode()

    listed = {
        name: {
            mechanism.sasl_name: {
                "salt": text(one.salt),
                "iterations": one.iterations,
                "stored_key": text(one.stored_key),
                "server_key": text(one.server_key),
            }
            for mechanism, one in held.items()
        }
        for name, held in sorted(users.items())
    }
    return json.dumps({"format": _FORMAT, "users": listed}, indent=1).encode() + b"\n"

"""Secrets are named, never written out: `${NAME}` is a variable of the environment, `${file:/run/secrets/x}` a file.

A command line is shown to everybody on the machine, and kept in the shell's history; files and variables are not.
"""

from __future__ import annotations

import getpass
import os
import re
import sys
from pathlib import Path

from atonce.errors import UsageError

_REFERENCE = re.compile(r"\$\{(file:[^}]+|\w+)\}")
_LARGEST_BYTES = 64 * 1024


def has_reference(text: str) -> bool:
    return _REFERENCE.search(text) is not None


def resolved(text: str) -> str:
    """With every reference replaced. What is put in is not looked at again."""
    return _REFERENCE.sub(lambda found: _value(found.group(1)), text)


def from_command_line(option: str, text: str, *, secret: bool) -> str:
    """With every reference replaced; a secret that stands there itself is refused, for others have seen it already."""
    if secret and not has_reference(text):
        raise UsageError(
            f"{option} holds a secret, and everybody on this machine can read a command line: put it into a variable "
            "or a file, and write '${NAME}' or '${file:/path}' in its place"
        )
    return resolved(text)


def has_password(url: str) -> bool:
    """Whether a database's address, as a URL or as libpq's `key=value`, has a password in it."""
    return bool(re.search(r"://[^/@]*:[^/@]*@", url) or re.search(r"\bpassword=", url))


def _value(reference: str) -> str:
    if reference.startswith("file:"):
        return secret_file(Path(reference.removeprefix("file:")))
    if reference not in os.environ:
        raise UsageError(f"the environment has no variable {reference!r} for ${{{reference}}}")
    return os.environ[reference]


def secret_file(path: Path) -> str:
    """Its text, without the newline that editors put at the end."""
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_BYTES + 1)
        if len(content) > _LARGEST_BYTES:
            raise UsageError(f"the secret file {path} has more than {_LARGEST_BYTES} bytes; expected one secret")
        return content.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise UsageError(f"the secret file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"the secret file {path} is not UTF-8 text") from None


def ask_password(what: str, *, file: Path | None, variable: str | None) -> str:
    """A new password: from a file, from the environment, or typed twice."""
    if file is not None and variable is not None:
        raise UsageError("a password file and a password variable were both given; keep one of them")
    if file is not None:
        password = secret_file(file)
    elif variable is not None:
        password = resolved(f"${{{variable}}}")
    elif sys.stdin.isatty():
        password = getpass.getpass(f"password of {what}: ")
        if getpass.getpass("again: ") != password:
            raise UsageError("the two passwords differ; nothing was changed")
    else:
        raise UsageError(
            f"nobody can be asked here for the password of {what}: give --password-file or --password-variable"
        )
    if not password or "\0" in password:
        raise UsageError(f"the password of {what} is empty, or has a null character; nothing was changed")
    return password

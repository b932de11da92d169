"""The secret of a Spark cluster that we started (`spark.authenticate`): nobody else on the machine may run code in it.

It lies in the cluster's own scratch folder, for this user's eyes only, and is found by the master's address. Drivers
give it to their JVM in the environment: what stands in a session's settings is shown on the JVM's command line.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from atonce.local.private import make_private_directory, write_private
from atonce.local.servers.jars import cache_root

# Spark's own name for it: a worker gives it to its executors in the same way.
VARIABLE = "_SPARK_AUTH_SECRET"
PROPERTIES = "authenticate.properties"
_NAME = "spark.authenticate.secret"


def make_secret(master: str, folder: Path) -> str:
    """A new secret for this cluster, kept in its folder; `find_secret` knows it from now on."""
    secret = secrets.token_hex(32)
    write_private(folder / PROPERTIES, f"spark.authenticate=true\n{_NAME}={secret}\n".encode())
    pointer = _pointer(master)
    make_private_directory(pointer.parent)
    pointer.unlink(missing_ok=True)
    pointer.symlink_to(folder / PROPERTIES)
    return secret


def find_secret(master: str) -> str | None:
    """Of a cluster of ours that is still there; None for any other."""
    if not master.startswith("spark://"):
        return None
    pointer = _pointer(master)
    try:
        if pointer.stat().st_uid != os.geteuid():
            return None
        lines = pointer.read_text().splitlines()
    except OSError:
        with contextlib.suppress(OSError):
            pointer.unlink(missing_ok=True)  # of a cluster that was killed
        return None
    return next((line.partition("=")[2] for line in lines if line.startswith(f"{_NAME}=")), None)


def forget_secret(master: str) -> None:
    with contextlib.suppress(OSError):
        _pointer(master).unlink(missing_ok=True)


@contextlib.contextmanager
def given_to_the_jvm(secret: str | None) -> Iterator[None]:
    """A JVM that is started meanwhile finds it in its environment."""
    if secret is None:
        yield
        return
    os.environ[VARIABLE] = secret
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)


def _pointer(master: str) -> Path:
    return cache_root() / "clusters" / master.removeprefix("spark://").replace("/", "_")

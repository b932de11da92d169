"""Fetches pinned jars through the Ivy that comes inside PySpark, into a cache of this user, and checks every byte.

No build tool is needed and nothing is installed: PySpark's wheel carries Ivy's jar, and Ivy knows the public registry.
Behind a mirror, `ATONCE_IVY_SETTINGS` names an Ivy settings file (as `spark.jars.ivySettings` does for Spark).
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from atonce.errors import AtOnceError, UsageError
from atonce.local.java import Java, find_java
from atonce.local.servers.pins import Bundle, Pin

FETCH_TIMEOUT_S = 600


class JarsMissing(AtOnceError):
    """Jars could not be fetched; the registry's answer is in the message."""


class JarDamaged(AtOnceError):
    """A jar's bytes are not the ones we pinned."""


def cache_root() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "atonce"


def jars(*bundles: Bundle) -> list[Path]:
    """Every jar of the bundles, checked; those that are not in the cache are fetched first."""
    return [path for bundle in bundles for path in _bundle(bundle)]


def classpath(*bundles: Bundle) -> str:
    return os.pathsep.join(str(path) for path in jars(*bundles))


def _bundle(bundle: Bundle) -> list[Path]:
    folder = cache_root() / "jars" / bundle.name
    if not _complete(folder, bundle):
        with _alone(folder):
            # Whoever waited for the lock finds the work done.
            if not _complete(folder, bundle):
                _fetch(folder, bundle)
    return [folder / pin.file for pin in bundle.pins]


def _complete(folder: Path, bundle: Bundle) -> bool:
    return all(_intact(folder / pin.file, pin) for pin in bundle.pins)


def _intact(path: Path, pin: Pin) -> bool:
    try:
        with path.open("rb") as jar:
            return hashlib.file_digest(jar, "sha256").hexdigest() == pin.sha256
    except OSError:
        return False


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(folder: Path, bundle: Bundle) -> None:
    """Into a folder beside, renamed only when every jar was checked: a crash leaves nothing that looks complete."""
    draft = folder.with_suffix(".draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        retrieve([(pin.organisation, pin.name, pin.revision, pin.classifier) for pin in bundle.pins], draft)
        for pin in bundle.pins:
            path = draft / pin.file
            if not path.exists():
                raise JarsMissing(f"the registry answered without {pin.organisation}:{pin.name}:{pin.revision}")
            if not _intact(path, pin):
                raise JarDamaged(
                    f"{pin.file} is not the file we pinned (SHA-256 {pin.sha256}); it was thrown away. "
                    "Try again; if it stays so, the registry or a mirror on the way serves something else."
                )
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def retrieve(modules: Sequence[tuple[str, ...]], into: Path) -> None:
    """Lets Ivy put the jars of (organisation, name, revision[, classifier]) into a folder as NAME-REVISION.jar."""
    java = find_java()
    description = into / "ivy.xml"
    description.write_text(_ivy_file(modules))
    command = [
        *_ivy(java),
        "-cache",
        str(cache_root() / "ivy"),
        "-ivy",
        str(description),
        "-types",
        "jar",
        "bundle",
        "-retrieve",
        f"{into}/[artifact]-[revision](-[classifier]).[ext]",
    ]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as error:
        raise JarsMissing(
            f"fetching jars took longer than {FETCH_TIMEOUT_S} s and was given up. Is the network there? "
            "What was fetched is kept: trying again resumes there."
        ) from error
    finally:
        description.unlink(missing_ok=True)
    if answer.returncode != 0 or "unresolved dependency" in answer.stdout or "[FAILED" in answer.stdout:
        raise JarsMissing(
            f"jars could not be fetched: the registry of Java packages did not serve {', '.join(_unserved(answer))}. "
            "Check the network; behind a mirror, set ATONCE_IVY_SETTINGS to an Ivy settings file that names it."
        )


def _ivy(java: Java) -> list[str]:
    package = importlib.util.find_spec("pyspark")
    homes = [Path(str(package.origin)).parent] if package and package.origin else []
    if os.environ.get("SPARK_HOME"):  # of a platform that brings its own
        homes.append(Path(os.environ["SPARK_HOME"]))
    found = [jar for home in homes for jar in sorted(home.glob("jars/ivy-*.jar"), reverse=True)]
    if not found:
        raise UsageError(
            "jars are fetched by the Ivy inside PySpark, and there is none. Next: pip install 'atonce[spark]'"
        )
    command = [java.command, "-Xmx256m", "-cp", str(found[0]), "org.apache.ivy.Main"]
    settings = os.environ.get("ATONCE_IVY_SETTINGS")
    return [*command, "-settings", settings] if settings else command


def _ivy_file(modules: Sequence[tuple[str, ...]], transitive: bool = False) -> str:
    target = "default" if transitive else "master"
    wanted = []
    for organisation, name, revision, *classifier in modules:
        only = "".join(
            f'<artifact name="{name}" type="jar" ext="jar" m:classifier="{each}"/>' for each in classifier if each
        )
        wanted.append(
            f'<dependency org="{organisation}" name="{name}" rev="{revision}" '
            f'transitive="{str(transitive).lower()}" conf="default->{target}">{only}</dependency>'
        )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="atonce" module="wanted"/><configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(wanted)}</dependencies></ivy-module>"
    )


def _unserved(answer: subprocess.CompletedProcess[str]) -> list[str]:
    """Ivy names a module it could not get as ORGANISATION#NAME;REVISION, somewhere in a banner."""
    words = answer.stdout + answer.stderr
    marked = re.findall(r"([\w.-]+#[\w.-]+;[\w.-]+)(?:: not found|!\S* ?\(?.*FAILED)", words)
    marked += re.findall(r"FAILED[^\n]*?([\w.-]+#[\w.-]+;[\w.-]+)", words)
    return sorted(set(marked))[:5] or [words.strip()[-300:]]

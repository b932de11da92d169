"""Jars are fetched once, checked always, and never half."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from atonce.errors import UsageError
from atonce.local.servers import jars as module
from atonce.local.servers.jars import JarDamaged, JarsMissing, cache_root, jars, retrieve
from atonce.local.servers.pins import (
    FLINK,
    KAFKA,
    KAFKA_VERSION,
    SPARK_CONNECTOR,
    STREAMS,
    TIERED,
    TOOLS,
    Bundle,
    Pin,
    kafka,
    kafka_versions,
)

CONTENT = b"a jar"
PIN = Pin("org.example", "thing", "1.0", hashlib.sha256(CONTENT).hexdigest())
BUNDLE = Bundle("thing-1.0", (PIN,))


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "atonce"


def serving(monkeypatch: pytest.MonkeyPatch, content: bytes) -> list[Path]:
    """A registry that serves these bytes; returns the list of folders it was asked to fill."""
    asked: list[Path] = []

    def put(modules: list[tuple[str, ...]], into: Path, *, transitive: bool = False) -> None:
        asked.append(into)
        for _, name, revision, _ in modules:
            (into / f"{name}-{revision}.jar").write_bytes(content)

    monkeypatch.setattr(module, "retrieve", put)
    return asked


def test_a_jar_is_fetched_once_and_then_taken_from_the_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = serving(monkeypatch, CONTENT)
    assert jars(BUNDLE) == jars(BUNDLE) == [cache / "jars" / "thing-1.0" / "thing-1.0.jar"]
    assert len(asked) == 1


def test_a_jar_with_other_bytes_is_refused_and_not_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serving(monkeypatch, b"something else")
    with pytest.raises(JarDamaged, match=r"thing-1\.0\.jar is not the file we pinned"):
        jars(BUNDLE)
    assert not list((cache / "jars").glob("**/*.jar"))


def test_a_cached_jar_that_was_damaged_is_fetched_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = serving(monkeypatch, CONTENT)
    (path,) = jars(BUNDLE)
    path.write_bytes(b"rot")
    jars(BUNDLE)
    assert path.read_bytes() == CONTENT and len(asked) == 2


def test_unreachable_registry_gives_one_clear_message(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ivy itself, pointed at a folder that holds nothing."""
    settings = tmp_path / "settings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="none"/><resolvers><filesystem name="none" m2compatible="true">'
        f'<artifact pattern="{tmp_path}/empty/[artifact]-[revision].[ext]"/></filesystem></resolvers></ivysettings>'
    )
    monkeypatch.setenv("ATONCE_IVY_SETTINGS", str(settings))
    into = tmp_path / "into"
    into.mkdir()
    with pytest.raises(JarsMissing, match=r"did not serve .*org\.example.*ATONCE_IVY_SETTINGS"):
        retrieve([("org.example", "thing", "1.0")], into)


def test_cache_is_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache_root() == Path("/home/somebody/.cache/atonce")


def test_every_pin_is_complete() -> None:
    older = [kafka(version) for version in kafka_versions()]
    for bundle in (KAFKA, TOOLS, STREAMS, SPARK_CONNECTOR, TIERED, FLINK, *older):
        assert len({pin.file for pin in bundle.pins}) == len(bundle.pins)
        for pin in bundle.pins:
            assert len(pin.sha256) == 64 and pin.organisation and pin.revision


def test_a_kafka_is_found_by_its_version_or_by_its_line() -> None:
    assert [version.rpartition(".")[0] for version in kafka_versions()] == [
        "3.7",
        "3.8",
        "3.9",
        "4.0",
        "4.1",
        "4.2",
        "4.3",
    ]
    assert kafka("3.9") == kafka("3.9.2") and kafka("3.9.2").name == "kafka-3.9.2"
    assert kafka(KAFKA_VERSION) == KAFKA
    with pytest.raises(UsageError, match=r"Apache Kafka '2\.8' is not one of: 3\.7\.2, .*4\.3\.1"):
        kafka("2.8")

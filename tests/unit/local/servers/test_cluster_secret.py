"""The secret of a cluster of ours is found by its address, by this user, while the cluster is there."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from atonce.local.servers.cluster_secret import VARIABLE, find_secret, forget_secret, given_to_the_jvm, make_secret

MASTER = "spark://127.0.0.1:7077"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_it_is_found_by_the_masters_address(tmp_path: Path) -> None:
    assert find_secret(MASTER) is None and find_secret("local[2]") is None
    secret = make_secret(MASTER, tmp_path)
    assert find_secret(MASTER) == secret and find_secret("spark://127.0.0.1:7078") is None
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in tmp_path.glob("*.properties"))
    forget_secret(MASTER)
    assert find_secret(MASTER) is None


def test_that_of_a_cluster_that_was_killed_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    make_secret(MASTER, folder)
    shutil.rmtree(folder)
    assert find_secret(MASTER) is None


def test_a_jvm_gets_it_in_its_environment_and_nobody_after_it() -> None:
    with given_to_the_jvm("hush"):
        assert os.environ[VARIABLE] == "hush"
    assert VARIABLE not in os.environ

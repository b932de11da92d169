"""franz-go's own tests of consume, transform, produce against our broker: groups and transactions as a Go client uses
them, with members that leave, join and rebalance all the time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from atonce.broker.embedded import Broker

MODULE = "github.com/twmb/franz-go@v1.22.2"

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(shutil.which("go") is None, reason="there is no Go on this machine"),
]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the module: Go's own cache is read-only."""
    work = tmp_path_factory.mktemp("franz-go")
    subprocess.run(["go", "mod", "init", "x"], cwd=work, check=True, capture_output=True)
    fetched = subprocess.run(["go", "mod", "download", MODULE], cwd=work, capture_output=True, text=True)
    if fetched.returncode != 0:
        pytest.skip(f"{MODULE} cannot be fetched: {fetched.stderr[-200:]}")
    cache = subprocess.run(["go", "env", "GOMODCACHE"], cwd=work, check=True, capture_output=True, text=True)
    copy = work / "module"
    shutil.copytree(Path(cache.stdout.strip()) / MODULE, copy, copy_function=shutil.copyfile)
    for path in [copy, *copy.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return copy


@pytest.mark.parametrize("test", ["TestTxnEtl", "TestGroupETL"])
def test_consume_transform_produce_of_franz_go(source: Path, test: str) -> None:
    with Broker() as broker:
        settings = {"KGO_SEEDS": broker.servers, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "50000"}
        done = subprocess.run(
            ["go", "test", "-run", f"^{test}$", "-count=1", "-timeout", "20m", "./pkg/kgo"],
            cwd=source,
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
        )
    failed = [line for line in done.stdout.splitlines() if "FAIL" in line or "unexpected" in line]
    assert done.returncode == 0, failed or done.stderr[-2000:]

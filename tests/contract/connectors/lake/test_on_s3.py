"""An Iceberg table on a real S3 server: fenced, cleaned and merged as on a disk."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from atonce.local.child import Child
from atonce.local.ports import free_port

ROOT = Path(__file__).resolve().parents[4]
SCRIPT = Path(__file__).with_name("s3_driver.py")
START_S = 60.0


@pytest.fixture
def s3(scratch: Path) -> Iterator[dict[str, str]]:
    """The environment that reaches it; the bucket `lake` is there."""
    program = subprocess.run([ROOT / "scripts/versitygw"], check=True, capture_output=True, text=True).stdout.strip()
    (scratch / "s3" / "lake").mkdir(parents=True)
    port = free_port()
    account = {"ROOT_ACCESS_KEY": "atonce", "ROOT_SECRET_KEY": "atonce-secret"}
    words = [program, "--quiet", "--port", f"127.0.0.1:{port}", "posix", str(scratch / "s3")]
    with Child(words, env={**os.environ, **account}, log=scratch / "s3.log"):
        deadline = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert time.monotonic() < deadline, f"the S3 server was not ready within {START_S:g} s"
            time.sleep(0.05)
        yield {
            "AWS_ACCESS_KEY_ID": account["ROOT_ACCESS_KEY"],
            "AWS_SECRET_ACCESS_KEY": account["ROOT_SECRET_KEY"],
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_REGION": "us-east-1",
        }


@pytest.mark.soak
def test_a_table_on_s3_is_fenced_cleaned_and_merged(
    s3: dict[str, str], scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{scratch}/catalog.db", "warehouse": "s3://lake/warehouse"}
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), json.dumps(catalog)],
        cwd=ROOT,
        env={**os.environ, **s3, "PYTHONPATH": f"{ROOT}/src:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.returncode == 0 and "delivered" in ended.stdout, ended.stdout + ended.stderr[-3000:]
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    from atonce.connectors.lake.iceberg.catalog import found

    table = found(catalog, "shop.orders")
    assert table is not None and table.location().startswith("s3://lake/")
    rows = table.scan().to_arrow().to_pylist()
    assert sorted((row["id"], row["body"]) for row in rows) == [
        *((n, "x") for n in range(10)),
        *((n, "newer") for n in range(10, 20)),
    ]

"""Checkpoints on S3 and HDFS: drivers killed at their steps, and two at once. `make soak ONLY=s3`, `ONLY=hdfs`."""

from __future__ import annotations

import collections
import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic
from tests.contract.pipeline.parts import consume, produce
from tests.contract.spark.stores import STORES, Store

pytestmark = pytest.mark.soak
DRIVER, OURS = Path(__file__).with_name("remote_driver.py"), "atonce-reads"
RECORDS, KEYS = 480, 10
STEPS = ("planned", "output-done", "committing", "committed", "delivered")
MODES = {"stateless": None, "stateful": "update"}


@pytest.fixture(scope="module", params=list(STORES))
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with STORES[request.param](tmp_path_factory.mktemp(request.param)) as found:
        yield found


class Drivers:
    def __init__(self, store: Store, servers: str, mode: str | None) -> None:
        self.topic = f"in-{uuid.uuid4().hex[:8]}"
        self._words: dict[str, Any] = {
            "topic": self.topic, "servers": servers, "mode": mode, "conf": store.conf, "step": None, "batch": None,
            "act": None, "checkpoint": f"{store.address}/{self.topic}",
        }  # fmt: skip
        self._servers, self._mode = servers, mode
        with Cluster(servers) as cluster:
            create_topic(cluster, self.topic, partitions=3)
            create_topic(cluster, f"{self.topic}-out", partitions=2)
        produce(servers, self.topic, range(RECORDS))

    def start(self, **words: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(DRIVER), json.dumps({**self._words, **words})],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(DRIVER.parents[3])},
        )  # fmt: skip

    def run(self, code: int, **words: Any) -> str:
        driver = self.start(**words)
        said, errors = driver.communicate(timeout=300)
        assert driver.returncode == code, f"{said[-800:]}\n{errors[-2000:]}"
        return said

    def check(self) -> None:
        """Each record once; of counts, that each key's rise without a gap or a repeat to what they must be."""
        found = consume(self._servers, f"{self.topic}-out")
        if self._mode is None:
            assert collections.Counter(value for _, value in found) == {f"value {n}": 1 for n in range(RECORDS)}
            return
        counts: dict[str, list[int]] = collections.defaultdict(list)
        for key, value in found:
            counts[str(key)].append(int(value or 0))
        assert {key: max(each) for key, each in counts.items()} == {str(n): RECORDS // KEYS for n in range(KEYS)}
        assert all(sorted(set(each)) == sorted(each) for each in counts.values())


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_driver_killed_at_each_step_goes_on_exactly(store: Store, embedded: str, mode: str | None) -> None:
    drivers = Drivers(store, embedded, mode)
    for batch, step in enumerate(STEPS):
        drivers.run(-9, act="kill", step=step, batch=batch + 1)
    drivers.run(0)
    drivers.check()


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_second_driver_goes_on_and_the_first_one_that_wakes_spoils_nothing(
    store: Store, embedded: str, mode: str | None
) -> None:
    """The first is held between its batch's delivery and `commits/1`; awake, it would write that and `offsets/2`."""
    drivers = Drivers(store, embedded, mode)
    first = drivers.start(act="hold", step="delivered", batch=1)
    assert first.stdout is not None
    assert any(line == "HELD\n" for line in first.stdout)
    drivers.run(-9, act="kill", step="planned", batch=4)
    said, errors = first.communicate("\n", timeout=300)
    assert first.returncode not in (0, -9), said
    assert "ENDED" in said, errors[-2000:]
    drivers.run(0)
    drivers.check()


def test_of_the_requests_to_s3_at_most_four_a_batch_are_ours(embedded: str, tmp_path: Path) -> None:
    with STORES["s3"](tmp_path) as store:
        said = Drivers(store, embedded, None).run(0, apart=True)
        lines = store.log.read_text().splitlines()
    batches = len(re.findall(r"^delivered ", said, re.MULTILINE))
    ours = [line for line in lines if OURS in line]
    reads = [line for line in ours if re.search(r" s3_\w+ \S*offsets/\d+ ", line)]
    print(f"\n{batches} batches: {len(lines)} requests, {len(ours)} ours, {len(reads)} of them for plans")
    assert batches >= 8 and reads
    assert len(reads) <= 4 * batches

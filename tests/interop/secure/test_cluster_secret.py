"""Nodes of a cluster of ours prove to each other that they know its secret; who does not is no part of it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from atonce.local.servers.spark_cluster import SparkCluster


class WithStranger(SparkCluster):
    """Its last worker has another secret."""

    def _launch(self, name: str, main: str, arguments: list[str]) -> Any:
        known = self._secret
        if name == "worker-1":
            self._secret = "0" * 64
        try:
            return super()._launch(name, main, arguments)
        finally:
            self._secret = known


@pytest.mark.timeout(240)
def test_a_node_with_a_wrong_secret_is_refused_and_the_others_go_on() -> None:
    with WithStranger(workers=1) as cluster:
        cluster.start_worker(1)
        said = cluster.folder / "worker-1.log"
        deadline = time.monotonic() + 120
        while "Failed to connect to master" not in said.read_text(errors="replace"):
            assert time.monotonic() < deadline, said.read_text(errors="replace")[-2000:]
            assert cluster._state() is not None
        words = said.read_text(errors="replace")
        assert "AuthenticationException" in words or "SaslException" in words or "authentication" in words, words[
            -3000:
        ]
        assert "Successfully registered" not in words
        # One that knows it still comes in, and the stranger is not counted with it.
        cluster.start_worker(2)
        cluster.wait_for_workers(2)
        assert "Successfully registered" not in said.read_text(errors="replace")

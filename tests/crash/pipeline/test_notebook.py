"""A pipeline in a notebook, with a real Jupyter kernel: progress in place, stopped by interrupt, started again."""

from __future__ import annotations

import importlib
import queue
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic
from tests.contract.pipeline.parts import consume, produce

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]
PACKAGES = Path(__file__).parents[2] / "requirements-soak.txt"
CELL = """
import atonce
pipeline = (
    atonce.Pipeline("{name}", checkpoint="{folder}/checkpoint", master="local[1]")
    .read(atonce.Kafka("{name}", servers="{servers}"))
    .transform("SELECT key, CAST(value AS STRING) AS value FROM input")
    .write(atonce.Kafka("{name}-out", servers="{servers}"))
)
started = pipeline.start()
"""


@pytest.fixture(scope="module")
def jupyter() -> Iterator[Path]:
    """Where Jupyter's kernel and client are; from the package index where they are not installed."""
    with tempfile.TemporaryDirectory(prefix="atonce-jupyter-") as folder:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
        subprocess.run([*command, "--target", folder, "-r", str(PACKAGES)], check=True, timeout=300)
        sys.path.append(folder)
        try:
            yield Path(folder)
        finally:
            sys.path.remove(folder)


class Kernel:
    """A kernel of its own process, spoken to as a notebook does."""

    def __init__(self, packages: Path, folder: Path) -> None:
        client: Any = importlib.import_module("jupyter_client")
        spec: Any = importlib.import_module("jupyter_client.kernelspec")
        self.manager = client.KernelManager()
        self.manager._kernel_spec = spec.KernelSpec(
            argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            env={"PYTHONPATH": f"{Path(__file__).parents[3] / 'src'}:{packages}"},
        )
        self.manager.start_kernel(cwd=str(folder))
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=120)

    def begin(self, code: str) -> str:
        return str(self.client.execute(code))

    def messages(self, cell: str, within_s: float = 180.0) -> Iterator[dict[str, Any]]:
        """What the kernel publishes for a cell until it is done with it."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            try:
                message = self.client.get_iopub_msg(timeout=1)
            except queue.Empty:
                continue
            if message["parent_header"].get("msg_id") != cell:
                continue
            yield message
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return
        raise AssertionError("the cell did not end in time")

    def run(self, code: str) -> list[dict[str, Any]]:
        told = list(self.messages(self.begin(code)))
        assert not [each for each in told if each["msg_type"] == "error"], told
        return told


def text(message: dict[str, Any]) -> str:
    return str(message["content"].get("data", {}).get("text/plain", ""))


def test_progress_is_shown_in_place_and_an_interrupt_stops_a_pipeline_that_can_be_started_again(
    embedded: str, scratch: Path, jupyter: Path
) -> None:
    name = f"notebook-{uuid.uuid4().hex[:8]}"
    with Cluster(embedded) as cluster:
        create_topic(cluster, name, partitions=1)
    produce(embedded, name, range(10), partitions=1)
    kernel = Kernel(jupyter, scratch)
    try:
        kernel.run(CELL.format(name=name, folder=scratch, servers=embedded))
        waiting, shown, interrupted = kernel.begin("started.wait()"), [], False
        for message in kernel.messages(waiting):
            assert message["msg_type"] != "error", message
            if message["msg_type"] in ("display_data", "update_display_data"):
                shown.append((message["content"]["transient"]["display_id"], text(message)))
                if "10 rows" in text(message) and not interrupted:
                    interrupted = True
                    kernel.manager.interrupt_kernel()
        assert interrupted and len({place for place, _ in shown}) == 1, shown
        assert "stopped" in shown[-1][1], shown
        kernel.run("assert started.status == 'stopped' and started.exception() is None")
        produce(embedded, name, range(10, 15), partitions=1)
        kernel.run("pipeline.run(available_now=True)")
        assert len(consume(embedded, f"{name}-out")) == 15
    finally:
        kernel.client.stop_channels()
        kernel.manager.shutdown_kernel(now=True)

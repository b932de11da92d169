"""`atonce run --traces`: a collector gets a span for each batch, with its steps inside, before the command ends."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from atonce.cli.run import register
from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic
from tests.contract.pipeline.parts import produce
from tests.unit.delivery.collector import collecting, spans

pytest.importorskip("opentelemetry.sdk")


@pytest.mark.usefixtures("spark")
def test_command_sends_the_span_of_each_batch_with_its_steps(embedded: str, scratch: Path) -> None:
    topic = "traced"
    with Cluster(embedded) as cluster:
        create_topic(cluster, topic, partitions=3)
    produce(embedded, topic, range(5))
    file = scratch / "traced.yaml"
    file.write_text(
        f"name: {topic}\nsource: {{kafka: {{topic: {topic}, servers: '{embedded}'}}}}\n"
        "transform: SELECT CAST(value AS STRING) AS value FROM input\n"
        f"checkpoint: {scratch / 'checkpoint'}\nsink: {{sqlite: {{path: {scratch / 'out.db'}, table: out}}}}\n"
    )
    app = typer.Typer(pretty_exceptions_enable=False)
    register(app)
    app.callback()(lambda: None)
    with collecting() as (address, got):
        done = CliRunner().invoke(app, ["run", str(file), "--available-now", "--traces", address])
        assert done.exit_code == 0, done.output
        sent = [span for _, body in list(got.queue) for span in spans(body)]
    (batch,) = [span for span in sent if span.name == f"batch {topic}"]
    steps = [span.name for span in sent if span.parent_span_id == batch.span_id]
    assert steps == ["plan", "output", "progress", "commit"]
    assert {each.key: each.value.int_value for each in batch.attributes}["atonce.rows"] == 5

"""`atonce clean` shows what it removes, removes what can no longer be committed, and leaves everything else."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import typer
from deltalake import DeltaTable
from typer.testing import CliRunner

import atonce
from atonce.cli.clean import register
from atonce.errors import UsageError
from tests.contract.connectors.sql.database import identity

PIPELINE = """
name: orders
source: {{kafka: {{topic: orders}}}}
sink: {{{sink}}}
"""


def cleaned(folder: Path, sink: str, *words: str) -> str:
    app = typer.Typer()
    register(app)
    app.callback()(lambda: None)
    file = folder / "orders.yaml"
    file.write_text(PIPELINE.format(sink=sink))
    ended = CliRunner().invoke(app, ["clean", str(file), *words])
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    return ended.output


def test_files_of_an_older_epoch_go_after_a_yes_and_those_of_the_present_one_stay(tmp_path: Path) -> None:
    table = tmp_path / "table"
    DeltaTable.create(str(table), pa.schema([("id", pa.int64())]))
    atonce.Delta(table).open(identity("orders"), None).claim()
    atonce.Delta(table).open(identity("orders"), None).claim()
    old, live = table / "orders-1-1-0123456789ab-0-0-0.parquet", table / "orders-2-1-0123456789ab-0-0-0.parquet"
    theirs = table / "other-1-1-0123456789ab-0-0-0.parquet"
    for file in (old, live, theirs):
        file.write_bytes(b"PAR1")
    sink = f"delta: {{path: {table}}}"
    with pytest.raises(UsageError, match="add --yes"):
        cleaned(tmp_path, sink)
    assert old.exists()
    told = cleaned(tmp_path, sink, "--yes")
    assert str(old) in told and "1 files, 4 bytes" in told
    assert not old.exists() and live.exists() and theirs.exists()
    assert "nothing to clean" in cleaned(tmp_path, sink)


def test_a_sink_that_leaves_no_files_has_nothing_to_clean(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="leaves no files behind"):
        cleaned(tmp_path, "sqlite: {path: out.db, table: orders}")

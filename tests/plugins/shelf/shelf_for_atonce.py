"""Lines of a file as a source, a folder with one file per batch as a sink. Of AtOnce it knows the contract alone."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import Row
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from atonce.connectors.contract import (
    Batch,
    Feed,
    Ground,
    Identity,
    InputRecord,
    Positions,
    Progress,
    SinkTraits,
    SourceTraits,
    from_text,
    to_text,
)

LINES = "lines"


@dataclass(frozen=True)
class Lines:
    """The source: every line of a file that only grows."""

    path: str
    per_batch: int = 1000

    def traits(self) -> SourceTraits:
        return SourceTraits(
            name=f"lines of {self.path}",
            replayable=True,
            ordered=True,
            why="a line keeps its number",
            needs=("the file only grows",),
        )

    def describe(self) -> str:
        return f"lines of {self.path}"

    def check(self) -> None:
        Path(self.path).touch()

    def first_positions(self) -> Positions:
        return {LINES: 0}

    def source_ids(self) -> dict[str, str]:
        return {}

    def load(self, spark: Any, start: Positions | None, options: dict[str, str]) -> Any:
        spark.dataSource.register(LinesFormat)
        first = (start or {LINES: 0})[LINES]
        reader = spark.readStream.format("shelf-lines").option("path", self.path).option("first", first)
        return reader.option("perBatch", self.per_batch).load()

    def positions(self, offsets_json: str) -> Positions:
        return {LINES: int(json.loads(offsets_json)[LINES])}

    # For `atonce verify`

    def scratch_source(self, ground: Ground) -> Lines:
        return replace(self, path=str(ground.folder / "lines.txt"), per_batch=ground.records_per_batch)

    def feed(self, ground: Ground) -> Feed:
        return LinesFeed(Path(self.scratch_source(ground).path))

    def static(self, spark: Any, schema: Any, records: Sequence[InputRecord]) -> Any:
        rows = [Row(number=at, line=record.text) for at, record in enumerate(records)]
        return spark.createDataFrame(rows, schema)


class LinesFeed(Feed):
    def __init__(self, path: Path) -> None:
        self._path = path

    def prepare(self, partitions: int) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.touch()

    def give(self, records: Sequence[InputRecord]) -> None:
        with self._path.open("a") as file:
            file.writelines(f"{record.text}\n" for record in records)


class LinesFormat(DataSource):
    @classmethod
    def name(cls) -> str:
        return "shelf-lines"

    def schema(self) -> str:
        return "number bigint, line string"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return LinesReader(dict(self.options))


class LinesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: dict[str, str]) -> None:
        self._path, self._first = Path(options["path"]), int(options["first"])
        self._per_batch = int(options.get("perBatch", options.get("perbatch", "1000")))
        self._target: int | None = None

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._per_batch)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._end()

    def initialOffset(self) -> dict[str, int]:
        return {LINES: self._first}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        end = self._end() if self._target is None else self._target
        return {LINES: min(end, int(start[LINES]) + self._per_batch)}

    def _end(self) -> int:
        return self._path.read_text().count("\n")

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((int(start[LINES]), int(end[LINES])))]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, str]]:
        first, end = partition.value
        yield from enumerate(self._path.read_text().splitlines()[first:end], first)


@dataclass(frozen=True)
class Shelf:
    """The sink: one file per batch, named by where it begins: a batch written again replaces it."""

    path: str

    def traits(self) -> SinkTraits:
        return SinkTraits(
            name=f"shelf {self.path}",
            atomic=False,
            idempotent=True,
            fenced=False,
            ledger=f"ledger.json in {self.path}",
            why="a batch written again replaces its own file",
            needs=("one instance at a time",),
        )

    def describe(self) -> str:
        return f"shelf {self.path}"

    def check(self) -> None:
        Path(self.path).mkdir(parents=True, exist_ok=True)

    def open(self, identity: Identity, spark: Any) -> OpenShelf:
        return OpenShelf(Path(self.path))

    # For `atonce verify`

    def on_scratch(self, folder: Path) -> Shelf:
        return Shelf(str(folder))

    def written(self) -> list[dict[str, Any]]:
        files = sorted(Path(self.path).glob("batch-*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


class OpenShelf:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def claim(self) -> Progress | None:
        ledger = self._folder / "ledger.json"
        return from_text(ledger.read_text()) if ledger.exists() else None

    def output(self, batch: Batch) -> int:
        rows = [json.dumps(row.asDict(), default=str) for row in batch.df.collect()]
        # By where it begins, not by its number: with a fresh checkpoint numbers begin again, positions do not.
        begins = (batch.plan.start or {LINES: 0})[LINES]
        self._replace(f"batch-{begins:09}.jsonl", "".join(f"{row}\n" for row in rows))
        return len(rows)

    def progress(self, progress: Progress) -> None:
        self._replace("ledger.json", to_text(progress))

    def progress_on_timer(self, progress: Progress) -> None:
        self.progress(progress)

    def output_and_progress(self, batch: Batch, progress: Progress) -> int:
        written = self.output(batch)
        self.progress(batch.complete(progress))
        return written

    def settle(self) -> None: ...

    def close(self) -> None: ...

    def _replace(self, name: str, text: str) -> None:
        draft = self._folder / f".{name}"
        with draft.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self._folder / name)

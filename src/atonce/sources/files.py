"""Files: a directory of JSON lines, CSV, text or Parquet as Spark reads it; replayable, with opaque positions.

Which files a batch holds stands in Spark's checkpoint alone, so progress is query id and batch id. A file that was half
published when the process died is published from its start again; under effectively-once its first half was never
visible (S6b).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from atonce.errors import UsageError
from atonce.guarantee import SourceTraits
from atonce.ledger.progress import Positions

FORMATS = ("json", "csv", "text", "parquet")


@dataclass(frozen=True, slots=True)
class Files:
    """A directory (or a glob) of files.

    path     a directory or a glob, on any file system that Spark reads
    format   "json" (one object per line), "csv", "text" or "parquet"
    schema   the rows' schema as DDL, such as "id bigint, name string". Without it JSON lines stay as they are, one
             string column `value`, ready to be published; CSV and Parquet are looked at once, at the start
    options  options of Spark's file source and of the format, such as {"header": "true", "maxFilesPerTrigger": "10"}
    """

    path: str | Path
    format: str = "json"
    schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not str(self.path):
            raise UsageError("Files needs a path")
        if self.format not in FORMATS:
            raise UsageError(f"format {self.format!r} is not one of: {', '.join(FORMATS)}")
        if self.format == "text" and self.schema is not None:
            raise UsageError('format "text" has one column, value; it takes no schema')

    def traits(self) -> SourceTraits:
        return SourceTraits(
            name=f"{self.format} files in {self.path}",
            replayable=True,
            ordered=False,
            why="a file can be read again, but which files were read stands in Spark's checkpoint only",
            needs=(
                "files appear whole (write elsewhere, then rename) and are not changed or removed until delivered",
                "the checkpoint is kept: without it the pipeline cannot be resumed",
            ),
        )

    def describe(self) -> str:
        return f"{self.format} files in {self.path}"

    def check(self) -> None:
        place = urlparse(str(self.path))
        if place.scheme in ("", "file") and not any(sign in str(self.path) for sign in "*?[{"):
            folder = Path(place.path or str(self.path))
            if not folder.is_dir():
                raise UsageError(f"{folder} is not a directory. Next: create it, or correct path.")

    def first_positions(self) -> Positions | None:
        return None

    def source_ids(self) -> dict[str, str]:
        return {}

    def load(self, spark: Any, start: Positions | None, options: dict[str, str]) -> Any:
        lines = self.format == "json" and self.schema is None
        name = "text" if lines else self.format
        given = {**self.options, **options}
        reader = spark.readStream.format(name).options(**given)
        if name != "text":
            reader = reader.schema(self.schema if self.schema is not None else self._look(spark, given))
        return reader.load(str(self.path))

    def positions(self, offsets_json: str) -> Positions | None:
        return None

    def _look(self, spark: Any, options: dict[str, str]) -> Any:
        """The schema of the files that are there: Spark wants it before it reads the first one."""
        try:
            return spark.read.format(self.format).options(**options).load(str(self.path)).schema
        except Exception as error:
            raise UsageError(
                f"the schema of the {self.format} files in {self.path} cannot be told: "
                f'{str(error).splitlines()[0][:200]}. Next: give schema="column type, …".'
            ) from None

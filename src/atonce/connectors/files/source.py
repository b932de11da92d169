"""Files: a directory of JSON lines, CSV, text or Parquet as Spark reads it; replayable, with opaque positions.

Which files a batch holds stands in Spark's checkpoint alone, so progress is query id and batch id. A file that was half
published when the process died is published from its start again; under effectively-once its first half was never
visible (S6b).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlparse

from atonce.connectors.files.names import EVERY_AGE, is_glob, refuse_blind_options
from atonce.delivery.abilities import InputWatch, Surroundings
from atonce.delivery.progress import Positions
from atonce.errors import UsageError
from atonce.guarantee import SourceTraits

if TYPE_CHECKING:
    from atonce.connectors.contract import Feed, Ground, InputRecord

FORMATS = ("json", "csv", "text", "parquet")
CLEANINGS = ("archive", "delete")


@dataclass(frozen=True, slots=True)
class Files:
    """A directory (or a glob) of files.

    path     a directory or a glob, on any file system that Spark reads
    format   "json" (one object per line), "csv", "text" or "parquet"
    schema   the rows' schema as DDL, such as "id bigint, name string". Without it JSON lines stay as they are, one
             string column `value`, ready to be published; CSV and Parquet are looked at once, at the start
    options  options of Spark's file source and of the format, such as {"header": "true", "maxFilesPerTrigger": "10"}.
             Files of every age are read, so maxFileAge is refused, and so is fileNameOnly
    clean_source  "archive": Spark moves files that are delivered into `archive_dir`, each with its whole path;
             "delete": it removes them. The directory, and every listing of it, then stays small
    archive_dir   for "archive": a directory on the same file system, outside `path`
    """

    path: str | Path
    format: str = "json"
    schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    clean_source: str | None = None
    archive_dir: str | Path | None = None

    def __post_init__(self) -> None:
        if not str(self.path):
            raise UsageError("Files needs a path")
        if self.format not in FORMATS:
            raise UsageError(f"format {self.format!r} is not one of: {', '.join(FORMATS)}")
        if self.format == "text" and self.schema is not None:
            raise UsageError('format "text" has one column, value; it takes no schema')
        refuse_blind_options(self.options)
        if self.clean_source is not None and self.clean_source not in CLEANINGS:
            raise UsageError(f"clean_source {self.clean_source!r} is not one of: {', '.join(CLEANINGS)}")
        if (self.clean_source == "archive") != (self.archive_dir is not None):
            raise UsageError('clean_source "archive" and archive_dir go together: one says that, the other says where')

    def traits(self) -> SourceTraits:
        return SourceTraits(
            name=f"{self.format} files in {self.path}",
            replayable=True,
            ordered=False,
            why="a file can be read again, but which files were read stands in Spark's checkpoint only",
            needs=(
                "files appear whole (write elsewhere, then rename), and a name is used once: one that changes after it "
                "was read stops the pipeline at the levels that promise no loss",
                "the checkpoint is kept: without it the pipeline cannot be resumed",
            ),
        )

    def describe(self) -> str:
        return f"{self.format} files in {self.path}"

    def check(self) -> None:
        place = urlparse(str(self.path))
        if place.scheme in ("", "file") and not is_glob(str(self.path)):
            folder = Path(place.path or str(self.path))
            if not folder.is_dir():
                raise UsageError(f"{folder} is not a directory. Next: create it, or correct path.")
            archive = urlparse(str(self.archive_dir or ""))
            if archive.path and archive.scheme in ("", "file"):
                inside, outside = Path(archive.path).absolute(), folder.absolute()
                if inside == outside or outside in inside.parents or inside in outside.parents:
                    raise UsageError(
                        f"archive_dir {self.archive_dir} and path {self.path} lie within each other. Next: name one "
                        "outside, on the same file system."
                    )

    def first_positions(self) -> Positions | None:
        return None

    def source_ids(self) -> dict[str, str]:
        return {}

    def load(self, spark: Any, start: Positions | None, options: dict[str, str]) -> Any:
        name = self._spark_format()
        given = {**self.options, **options, "maxFileAge": EVERY_AGE}
        if self.clean_source is not None:
            given["cleanSource"] = self.clean_source
        if self.archive_dir is not None:
            given["sourceArchiveDir"] = str(self.archive_dir)
        reader = spark.readStream.format(name).options(**given)
        if name != "text":
            reader = reader.schema(self.schema if self.schema is not None else self._look(spark, given))
        return reader.load(str(self.path))

    def positions(self, offsets_json: str) -> Positions | None:
        return None

    def watch(self, around: Surroundings) -> InputWatch:
        from atonce.connectors.files.watch import FileWatch

        return FileWatch(path=str(self.path), options=self.options, around=around)

    def _spark_format(self) -> str:
        return "text" if self.format == "json" and self.schema is None else self.format

    def _look(self, spark: Any, options: dict[str, str]) -> Any:
        """The schema of the files that are there: Spark wants it before it reads the first one."""
        try:
            return spark.read.format(self.format).options(**options).load(str(self.path)).schema
        except Exception as error:
            raise UsageError(
                f"the schema of the {self.format} files in {self.path} cannot be told: "
                f'{str(error).splitlines()[0][:200]}. Next: give schema="column type, …".'
            ) from None

    # Under `atonce verify`

    def scratch_source(self, ground: Ground) -> Self:
        from atonce.connectors.files.verified import FILES_PER_BATCH

        return replace(
            self,
            path=str(ground.folder / "in"),
            options={**self.options, "maxFilesPerTrigger": str(FILES_PER_BATCH)},
            archive_dir=None if self.archive_dir is None else str(ground.folder / "archive"),
        )

    def feed(self, ground: Ground) -> Feed:
        from atonce.connectors.files.verified import FILES_PER_BATCH, FilesFeed

        return FilesFeed(ground.folder / "in", max(1, ground.records_per_batch // FILES_PER_BATCH))

    def static(self, spark: Any, schema: Any, records: Sequence[InputRecord]) -> Any:
        from atonce.connectors.files.verified import copied

        # Files that are delivered may have been cleaned away.
        path = str(self.path) if self.clean_source is None else copied(records, f"{self.path}.copy")
        return spark.read.format(self._spark_format()).options(**self.options).schema(schema).load(path)

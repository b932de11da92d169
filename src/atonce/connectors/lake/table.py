"""What a table format gives to the driver: a snapshot to compare with, and a commit that fails if anybody moved it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from atonce.connectors.lake.parquet import ParquetTask, WrittenFile


class Snapshot(Protocol):
    """The table at one version. What is asked of it and what is committed on it are of that version."""

    @property
    def id(self) -> str:
        """Of the table: one that is dropped and made again has another."""

    @property
    def number(self) -> int | None:
        """The last one that was committed for this pipeline."""

    @property
    def rules(self) -> str:
        """Everything that files were written by: columns, partitions, features."""

    def task(self, schema: Any) -> ParquetTask:
        """For rows of this schema (Spark's). `UsageError` if they, or the table, cannot be had."""

    def commit(self, number: int | None, files: Sequence[WrittenFile]) -> None:
        """Files and number at once, on disk when this returns. Fails if this pipeline's number has moved since.

        Whatever it raises: it may be in. None: files alone.
        """


class LakeTable(Protocol):
    def snapshot(self) -> Snapshot | None:
        """The newest; None where there is no table yet. `RetriableError` if it cannot be read now."""

    def create(self, schema: Any, number: int) -> None:
        """With the columns of this schema and the pipeline's number, unless somebody else was faster."""

    def accepts(self, schema: Any) -> None:
        """`UsageError` if a table could not be made of this schema."""

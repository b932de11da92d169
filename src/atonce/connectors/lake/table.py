"""What a table format gives to the driver: a snapshot to compare with, and a commit that fails if anybody moved it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from atonce.connectors.lake.parquet import ParquetTask, WrittenFile
from atonce.connectors.lake.plans import Entry
from atonce.delivery.letters import Kept, Letter


class Snapshot(Protocol):
    """The table at one version. What is asked of it and what is committed on it are of that version."""

    @property
    def id(self) -> str:
        """Of the table: one that is dropped and made again has another."""

    @property
    def entry(self) -> Entry | None:
        """The last one that was committed for this pipeline."""

    @property
    def rules(self) -> str:
        """Everything that files were written by: columns, partitions, features."""

    def task(self, schema: Any, *, evolving: bool = False) -> ParquetTask:
        """For rows of this schema (Spark's). `UsageError` if they, or the table, cannot be had.

        `evolving`: columns that will be added first are none.
        """

    def evolve(self, schema: Any) -> bool:
        """Add the columns that rows of this schema bring and the table lacks, where that is asked for; whether any.

        A commit of its own on this snapshot, before that of the batch.
        """

    def commit(self, entry: Entry | None, files: Sequence[WrittenFile]) -> None:
        """Files and entry at once, on disk when this returns. Fails if this pipeline's entry has moved since.

        Whatever it raises: it may be in. None: files alone.
        """


class LakeTable(Protocol):
    def snapshot(self) -> Snapshot | None:
        """The newest; None where there is no table yet. `RetriableError` if it cannot be read now."""

    def begin(self) -> bool:
        """Whether a missing table can be made, and is, before anybody knows its columns."""

    def create(self, schema: Any, number: int) -> None:
        """With the columns of this schema and the pipeline's number, unless somebody else was faster."""

    def accepts(self, schema: Any) -> None:
        """`UsageError` if a table could not be made of this schema."""

    def tidy(self, delivery: int) -> None:
        """What is to be done for readers between two batches, where that is asked for."""

    def describe(self) -> str: ...


class Entries(Protocol):
    """Where entries stand before they are committed, if the table's log cannot hold them whole."""

    def put(self, entry: Entry) -> bool:
        """False: its number is taken. On disk when this returns."""

    def newest(self) -> Entry | None: ...

    def numbers(self) -> list[int]: ...

    def prune(self, standing: int) -> None:
        """Those long before the one that counts may go."""

    def describe(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PutBy:
    """The commit of the output that letters are put aside for."""

    owner: str
    """The pipeline, or its replay: each counts its commits."""
    number: int
    """Of the commit: a newer driver's are larger."""
    instance: str
    sequence: int
    """Of the progress in it: so it is known again in the ledger."""


class LetterShelf(Protocol):
    """A table of dead letters beside the output. What returns is on disk.

    Until the commit that it was put aside for is confirmed, a letter is none: that one may never be made, or be of a
    driver that was replaced.
    """

    def add(self, letters: Sequence[Letter], pipeline: str, batch_id: int, by: PutBy) -> None:
        """Those that do not wait there already."""

    def confirm(self, pipeline: str, instance: str, sequence: int) -> None:
        """The commit with this progress is in the output."""

    def drop(self, pipeline: str, owner: str, below: int) -> None:
        """What is not confirmed of commits with lower numbers never will be."""

    def settle(self, kept: Sequence[Kept], pipeline: str, owner: str = "", below: int = 0) -> None:
        """What became of letters that are there; except those that `owner` put aside in a commit from `below` on."""

    def kept(self, pipeline: str) -> list[Kept]:
        """Those that are confirmed."""

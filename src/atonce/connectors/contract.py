"""The contract of a connector: what a source and a sink must have, and what they may have besides.

A connector of your own imports from here alone. `Source`, `Sink` and `OpenSink` are what a delivery needs; abilities
besides are those of `atonce.delivery.abilities`. What `atonce verify` asks for is defined here:

    VerifiedSource      the source on scratch, how input gets into it, and the same input as a plain Spark batch
    VerifiedSink        the sink on scratch, and how what it wrote is read back
    FolderSink          the same for a sink whose whole world is one directory
    NeedsServer         a server that verify makes ready beforehand, with a fresh corner for every run
    SampledSource       a real topic that `--sample` may read
    AuditsTables        of a sink's class: tables by address, for programs that are not pipelines

Each is a type of its own, and a part that has its methods has the ability. Whoever reads output back must not share
the code that wrote it, or both may be wrong together. A part whose input or output is a Kafka topic says which, as a
`Topic`: verify has a Kafka client of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

from atonce.delivery.abilities import (
    Accepts,
    Accounts,
    ArrowFunction,
    Beside,
    Cautious,
    ChecksClaim,
    Doubtful,
    FileKeys,
    Fuses,
    GivesSink,
    GivesSource,
    GoesElsewhere,
    InputWatch,
    KeepsLastRow,
    KnownByBorders,
    KnowsItsEnds,
    KnowsWhomItReplaced,
    LedgerApart,
    LoadsRange,
    MadeByAsking,
    Mirror,
    MirrorsProgress,
    NoticesCuts,
    OnServers,
    Partitioned,
    Peeks,
    ReadsRange,
    Refuses,
    RunsFunctions,
    Saying,
    SharesOutput,
    StartsAnywhere,
    Surroundings,
    TakesColumns,
    TellsLag,
    TellsWhatWasRead,
    Unwatched,
    Watched,
)
from atonce.delivery.contract import Batch, Identity, OpenSink, Sink, Source
from atonce.delivery.events import Aborted, Committed, Committing, Event, OutputDone, ProgressDone, Retrying
from atonce.delivery.format import from_text, to_text
from atonce.delivery.progress import Plan, Positions, Progress
from atonce.errors import AtOnceError
from atonce.guarantee import Guarantee, SinkTraits, SourceTraits

__all__ = [
    "Aborted",
    "Accepts",
    "Accounts",
    "ArrowFunction",
    "AuditsTables",
    "Batch",
    "Beside",
    "Cautious",
    "ChecksClaim",
    "Committed",
    "Committing",
    "CutsCommits",
    "Doubtful",
    "EmptiedTable",
    "Event",
    "Feature",
    "Feed",
    "FileKeys",
    "FolderSink",
    "Fuses",
    "GivesOldestLast",
    "GivesSink",
    "GivesSource",
    "GoesElsewhere",
    "Ground",
    "Guarantee",
    "HasScratchCopy",
    "Identity",
    "InputRecord",
    "InputWatch",
    "KeepsLastRow",
    "KnownByBorders",
    "KnowsItsEnds",
    "KnowsWhomItReplaced",
    "LedgerApart",
    "LoadsRange",
    "MadeAgain",
    "MadeByAsking",
    "Mirror",
    "MirrorsProgress",
    "NeedsServer",
    "NotFired",
    "NoticesCuts",
    "OnServers",
    "OpenSink",
    "OutputDone",
    "Partitioned",
    "Peeks",
    "Plan",
    "Positions",
    "Progress",
    "ProgressDone",
    "ReadsRange",
    "Refuses",
    "Restorable",
    "Retrying",
    "RunsFunctions",
    "SampledSource",
    "Saying",
    "ScratchServer",
    "ServerKind",
    "SharesOutput",
    "Sink",
    "SinkTraits",
    "Source",
    "SourceTraits",
    "StartsAnywhere",
    "StoppableServer",
    "Strike",
    "Surroundings",
    "TakesColumns",
    "TellsLag",
    "TellsWhatWasRead",
    "Topic",
    "TouchesFiles",
    "Unwatched",
    "VerifiedSink",
    "VerifiedSource",
    "Watched",
    "Written",
    "from_text",
    "to_text",
]


class NotFired(AtOnceError):
    """A fault was set up and its moment never came: the run says nothing about it."""


# What verify prepares ------------------------------------------------------------------------------------------------


class Feature(StrEnum):
    """What makes input hard to take. Every run is fed all of them that its way in can carry; what a subject cannot take
    is left out by name, and the certificate says so. The value is said to people."""

    NULL_KEY = "null keys"
    EMPTY_KEY = "empty keys"
    HEADERS = "headers (repeated names, null values)"
    NON_ASCII = "text beyond ASCII"
    LARGE = "a large record"
    EMPTY_VALUE = "empty values"
    NULL_VALUE = "null values (tombstones)"
    INVALID_UTF8 = "bytes that are no UTF-8"
    CODECS = "record batches of all codecs"
    ABORTED = "aborted transactions"
    OPEN = "open transactions"
    NEW_PARTITION = "a partition added midway"
    SECOND_TOPIC = "a second topic"
    NEW_TOPIC = "a second topic that appears midway"
    GAPS = "offsets that compaction removed"


@dataclass(frozen=True, slots=True)
class InputRecord:
    """One record of the input that verify makes, and the partition it goes to where there are partitions.

    A way in that takes no more than text is given no more than text: see `Feed.takes`.
    """

    number: int
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    offset: int | None = None
    """Where it stands in its partition, where that is known beforehand."""
    beside: bool = False
    """It goes to the second topic."""

    @property
    def text(self) -> str:
        """The value of a record that is not null, for ways in that take text."""
        return (self.value or b"").decode()


@dataclass(frozen=True, slots=True)
class Topic:
    """A Kafka topic, which verify fills and reads with a client of its own."""

    name: str
    servers: str | None = None
    """None: those of the run."""
    beside: tuple[str, ...] = ()
    """Further topics that a sink makes or a source reads, which go with this one at the end of the run."""
    found_later: bool = False
    """A source finds the topics beside this one by itself, also when they appear while it runs."""
    partitioner: str = ""
    """murmur2 or crc32: how a sink gives a record its partition by its key; empty: not known."""
    sets_aside: bool = False
    """A sink puts rows that it cannot deliver elsewhere."""


class StoppableServer(Protocol):
    """A server that verify started itself, and may kill."""

    @property
    def running(self) -> bool: ...

    def kill(self) -> None: ...

    def restart(self) -> None:
        """On the same data, at the same address."""


class ScratchServer(Protocol):
    """The user's server, or one of verify's own. Nothing outside the run's fresh corner of it is written to."""

    @property
    def url(self) -> str:
        """The corner of the present run, as the pipeline reaches it; verify's proxy may stand between."""

    @property
    def server(self) -> StoppableServer | None:
        """None: it is the user's, and never stopped."""

    def fresh(self, run: str) -> None:
        """An empty corner for the next run; the former one goes."""

    def close(self) -> None:
        """Nothing of verify is left on it."""


ServerKind = Callable[[str | None], ScratchServer]
"""Opens one: at the user's address (`--database`), or started for verify when that is None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What one run of verify stands on. Names, folder and the server's corner are fresh for every run."""

    input: str
    """A name for the input: a topic that verify makes, where input comes from one."""
    output: str
    folder: Path
    servers: str
    """Kafka, through verify's proxy."""
    records_per_batch: int
    timer_s: float
    """How often progress is recorded at level none."""
    server: ScratchServer | None = None
    """The one this part asked for (`NeedsServer`)."""


# What a source may have ----------------------------------------------------------------------------------------------


class Feed(Protocol):
    """How the input of one run gets in. Trouble with a server is an `AtOnceError` or an `OSError`."""

    files: bool = False
    """It comes as files, each of which can be published half."""
    takes: frozenset[Feature] = frozenset()
    """What it can carry besides text in ASCII under text keys."""

    def prepare(self, partitions: int) -> None:
        """Make the place for it."""

    def give(self, records: Sequence[InputRecord]) -> None:
        """More of it, in this order; all of it is there when this returns."""

    def ends(self) -> dict[int, int]:
        """Where it ends now, partition → offset; empty where that cannot be said in offsets."""
        return {}

    def remove(self) -> None:
        """The run is over."""
        return


@runtime_checkable
class GivesOldestLast(Protocol):
    """A feed whose records can become visible in another order than they are numbered in."""

    def give_oldest_last(self, records: Sequence[InputRecord]) -> Callable[[], None]:
        """The first record gets the smallest number and becomes visible after all others: when the result is called."""


@runtime_checkable
class MadeAgain(Protocol):
    """A feed whose table can be made again under the same name."""

    def make_again(self, records: Sequence[InputRecord]) -> None:
        """Another one with these records; the former, its rows and its numbers are gone."""


@runtime_checkable
class TouchesFiles(Protocol):
    """A feed of files that can be changed, and can be old."""

    def rewrite(self, records: Sequence[InputRecord]) -> str:
        """The first file gets these records as well, in place; its name."""

    def give_aged(self, records: Sequence[InputRecord]) -> None:
        """In a file that was last changed long ago."""

    def give_hidden(self, records: Sequence[InputRecord]) -> None:
        """In a file whose name Spark does not read: one that is still being written, by convention."""


@runtime_checkable
class VerifiedSource(Protocol):
    """A source that can be put on scratch and fed."""

    def scratch_source(self, ground: Ground) -> Self:
        """The same source reading from scratch, from its beginning, in batches of `ground.records_per_batch`."""

    def feed(self, ground: Ground) -> Feed | Topic: ...

    def static(self, spark: Any, schema: Any, records: Sequence[InputRecord]) -> Any:
        """What the source gives for these records, with the columns of `schema`, as a DataFrame that is no stream.

        It is the measure of a run without faults, so it must not go through the source. Asked of the source on
        scratch, in the pipeline's process; what cannot be known of a row is null.
        """


@runtime_checkable
class SampledSource(Protocol):
    def real_input(self) -> Topic | None:
        """The real topic, for `--sample`; it is only read."""


# What a sink may have ------------------------------------------------------------------------------------------------


class Written(Protocol):
    """What a run wrote, as readers of it see it. Trouble with a server is an `AtOnceError` or an `OSError`."""

    title: str
    merges: bool = False
    """Rows are merged by key, so that there may be fewer than the transform gives."""
    one_writer: bool = False
    """Whoever writes has all of it locked: nobody can take over from a writer that stands still."""
    sets_aside: bool = False
    """Rows that the sink cannot deliver are put elsewhere."""

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """Every row that a reader sees now, as one reader sees them at one moment; none where there is no table yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Which rows of those that the transform gives become one row, and which of them stays."""

    key: tuple[str, ...]
    order_by: tuple[str, ...] = ()
    """The row with the greatest of these stays; none: the one that came last."""
    delete: str | None = None
    """Where this column of the row that stays is true, there is none."""
    first: bool = False
    """The one that came first stays instead."""


@runtime_checkable
class MergesRows(Protocol):
    """Output that says how it merges, so that what stays of every key can be compared."""

    def merge(self) -> Merge | None:
        """None: rows stay as they come."""


@runtime_checkable
class Restorable(Protocol):
    """Output whose store can be copied and put back."""

    def copy(self) -> Callable[[], None]:
        """Keeps all of the store, the ledger too; calling the result puts it all back."""


@runtime_checkable
class VerifiedSink(Protocol):
    """A sink that can be put on scratch and whose output can be read back."""

    def scratch_sink(self, ground: Ground) -> Self:
        """The same sink writing to scratch, its timer at `ground.timer_s`."""

    def read_back(self, ground: Ground) -> Written | Topic: ...


@runtime_checkable
class FolderSink(Protocol):
    """A sink that writes into one directory, rows and ledger alike."""

    def describe(self) -> str: ...

    def on_scratch(self, folder: Path) -> Self:
        """The same sink on a directory of verify's own."""

    def written(self) -> Iterable[Mapping[str, Any]]:
        """Every row that a reader sees now."""


# Servers, and what can be done to them -------------------------------------------------------------------------------


@runtime_checkable
class NeedsServer(Protocol):
    """A source or sink that is verified on a server made ready beforehand."""

    def scratch_server(self) -> ServerKind | None:
        """Two parts with the same answer share one server. None: this one needs none."""


class Strike(Protocol):
    """A fault that is set up and waits for its moment; it strikes once."""

    fired_at: float | None
    struck: str
    """What it struck, in words."""

    def wait(self, timeout_s: float) -> None:
        """`NotFired` if it has not struck by then."""

    def release(self) -> None:
        """What it holds may go on."""


@runtime_checkable
class CutsCommits(Protocol):
    """A scratch server that sees every commit on its way, and can cut the connection right there."""

    def cut_at_commit(self, *, nth: int, after: bool) -> Strike:
        """`after`: the commit is done and its answer is lost; else it never arrives."""


# Tables of programs that are not pipelines (`atonce verify --app … --output-table`) -----------------------------------


class EmptiedTable(Written, Protocol):
    """A table of the user's that a program writes to, and that verify empties before every run, if it may."""

    name: str

    def empty(self) -> None: ...


@runtime_checkable
class HasScratchCopy(Protocol):
    """A table that a program can be sent to a copy of, with its shape and without its rows."""

    def scratch_copy(self) -> tuple[ScratchServer, Written]:
        """The server with the copy in its corner, and the copy."""


@runtime_checkable
class AuditsTables(Protocol):
    """Of the class of a sink: tables of this kind of database, by their address."""

    address: str
    """How an address begins, such as `sqlite:///`."""

    def table_at(self, url: str, name: str) -> EmptiedTable | None:
        """None: the address is none of this kind."""

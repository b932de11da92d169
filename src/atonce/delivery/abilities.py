"""What a source or a sink can do besides the contract. An engine asks with `isinstance`; nothing is found by a string.

Every ability is one Protocol with one or two members, so that a type checker sees a misspelt one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, Self, runtime_checkable

from atonce.delivery.contract import Sink, Source
from atonce.delivery.engine import Checkpoint
from atonce.delivery.progress import Plan, Positions, Progress
from atonce.guarantee import Guarantee
from atonce.plugins import Use

ArrowFunction = Callable[[Iterator[Any]], Iterator[Any]]
"""Arrow record batches → Arrow record batches, in a task."""

# Of what a user writes


@runtime_checkable
class GivesSource(Protocol):
    """A value with two uses, such as topics: this one is reading."""

    def as_source(self) -> Source: ...


@runtime_checkable
class GivesSink(Protocol):
    """The other one is writing."""

    def as_sink(self) -> Sink: ...


@runtime_checkable
class OnServers(Protocol):
    """Lives on servers that a run may name, or start, when the user names none."""

    @property
    def servers(self) -> str | None: ...

    def at(self, servers: str) -> Self:
        """The same on servers that are now known; unchanged where it names its own."""

    def anywhere(self) -> Self:
        """Without servers: what it is, wherever it stands."""

    def local(self, say: Callable[[str], None]) -> AbstractContextManager[str]:
        """Servers of this machine for whoever names none."""


@runtime_checkable
class FileKeys(Protocol):
    """Of the class: how a pipeline file may name its fields."""

    def keys_elsewhere(self, use: Use) -> tuple[str, ...]:
        """Fields that mean something in the other use only."""

    def home_of(self, key: str, use: Use) -> tuple[str, str] | None:
        """(field that holds a mapping, name in it) for a key that is no field itself."""


@runtime_checkable
class MadeByAsking(Protocol):
    """To ask it may make it: a file of a database."""

    def exists(self) -> bool: ...


@runtime_checkable
class Cautious(Protocol):
    """Can be asked for what may be forgotten or cannot be checked."""

    def cautions(self, level: Guarantee) -> list[str]:
        """One line each; said at every start. `UsageError` where a setting breaks what the level promises."""


@runtime_checkable
class Doubtful(Protocol):
    """Knows more to ask, of no concern to a start: how its operator keeps it."""

    def doubts(self) -> list[str]:
        """One line each, for `explain --ask`."""


@runtime_checkable
class Saying(Protocol):
    """Does something one way or another, by what its servers are."""

    def says(self) -> list[str]:
        """Which way, one line each, for `explain --ask`."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """A file that no reader sees, and that nothing can make visible any more."""

    name: str
    path: str
    """With where it is, for people."""
    size: int


@runtime_checkable
class LeavesOrphans(Protocol):
    """Attempts that die leave files behind."""

    def orphans(self, pipeline: str) -> list[Orphan]:
        """Those of attempts that cannot be committed any more; never one of an attempt that may live."""

    def remove_orphans(self, orphans: Sequence[Orphan]) -> None: ...


@runtime_checkable
class KeepsLastRow(Protocol):
    """Of the rows of a key the last one stays."""

    def keys_by_order(self) -> tuple[str, ...]:
        """The key, where only the order of rows tells which is the last; empty: a column tells, or there is no key."""


@runtime_checkable
class DeletesByKey(Protocol):
    """Can delete the row of a key."""

    def deleting(self, column: str) -> tuple[Self, str]:
        """The same, where a boolean column of the rows says which delete; and that column, which it may have named
        itself. `UsageError` where rows have no key."""


class Beside(Enum):
    """When two pipelines that write one output leave what one of them would."""

    ABSORBED = "absorbed"  # always: a row that comes twice, or late, changes nothing
    BELOW = "below"  # when they share no input: the open sink compares, in every commit (`Identity.below`)
    TO_WHERE_IT_STANDS = "to-where-it-stands"  # when the second one goes as far as the first has come
    NO = "no"


@runtime_checkable
class SharesOutput(Protocol):
    """Knows what a second pipeline into the same output would do to it."""

    def beside(self) -> tuple[Beside, str]:
        """And why, in words that go behind a colon."""


@runtime_checkable
class GoesElsewhere(Protocol):
    def into(self, name: str) -> Self:
        """The same with another table or topic."""


@runtime_checkable
class KnowsItsPlace(Protocol):
    def place(self) -> str:
        """Where its rows go, alike for all ways to write it: `orders` and `public.orders` may be one table."""


# Of a source


@runtime_checkable
class RunsFunctions(Protocol):
    """Its tasks can run a function on record batches, right behind the decoder: rows then never visit the JVM."""

    def arrow_schema(self) -> Any:
        """What the source gives by itself (Spark's StructType)."""

    def running(self, function: ArrowFunction, schema: str) -> dict[str, str]:
        """Options for `load` so that `function` runs there; `schema` (DDL) is what it gives."""


@runtime_checkable
class LoadsRange(Protocol):
    """Can read a few records again, to find the one that cannot be delivered."""

    def load_range(self, spark: Any, partition: str, start: int, end: int, options: dict[str, str]) -> Any: ...


@runtime_checkable
class StartsAnywhere(Protocol):
    """Can be told where to begin: earliest, latest."""

    def starting(self, at: str) -> Source: ...


@runtime_checkable
class StartsAtTime(Protocol):
    def starting_at(self, ms: int) -> Source:
        """At the first input that is not older, in milliseconds since 1970."""


@runtime_checkable
class Partitioned(Protocol):
    def partition_count(self) -> int: ...


@runtime_checkable
class KnowsItsEnds(Protocol):
    """Its positions are those of the engine's own connector, and can be compared with the log."""

    def ends(self) -> Mapping[str, tuple[int, int]]:
        """Of every partition that is read now: its first position, and the end of its log, committed or not."""


@runtime_checkable
class ReadsRange(Protocol):
    def between(self, start: Positions, until: Positions) -> Source:
        """The same from there up to here, and nothing of partitions that `until` does not name."""


@runtime_checkable
class NoticesCuts(Protocol):
    """Its log can be cut and written anew under the same positions."""

    def refuse_cut(self, positions: Positions, epochs: Positions) -> None:
        """`DataLossError` if the log no longer holds what was read of it."""


@runtime_checkable
class MayGoBack(Protocol):
    """Its log may be cut, and it can be told to go on from the new end."""

    @property
    def goes_back(self) -> bool:
        """Told so: a batch of it may end before it begins."""


@runtime_checkable
class KnownByBorders(Protocol):
    """Its log may be emptied and filled anew under the same id: it is known again by what stands before a position."""

    def borders(self, positions: Positions | None) -> dict[str, str]:
        """Table → what stands right before its position now."""

    def bordered(self, borders: Mapping[str, str]) -> dict[str, str]:
        """Options for `load`: what the ledger holds of them."""


class Mirror(Protocol):
    """Shows progress to whoever looks for it beside the input; never read back."""

    def __call__(self, progress: Progress) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class MirrorsProgress(Protocol):
    def mirror(self, name: str, sink: Sink) -> Mirror | None:
        """None where the ledger itself stands there."""


class Accounts(Protocol):
    """What a batch read, as its tasks tell it. One per run, in the driver."""

    def options(self, source_ids: Mapping[str, str]) -> dict[str, str]:
        """For `Source.load`: where to tell, and which logs the positions belong to."""

    def reading(self, spark: Any, recorded: Progress) -> AbstractContextManager[None]:
        """Around all attempts at one batch."""

    def completed(self, plan: Plan, progress: Progress) -> Progress:
        """With what only reading told."""

    def summary(self, plan: Plan) -> dict[str, int] | None:
        """How many positions the batch took, and why each gave a record or none; None unless all are told of."""

    def aside(self, plan: Plan) -> list[dict[str, Any]]:
        """Records of the batch that a step inside the source's tasks could not read: where they are, and why."""

    def close(self) -> None: ...


@runtime_checkable
class TellsWhatWasRead(Protocol):
    def accounts(self, spark: Any) -> Accounts: ...


@runtime_checkable
class TellsLag(Protocol):
    def lag(self) -> AbstractContextManager[Callable[[Positions], int]]:
        """A function that asks how many records wait behind these positions."""


class InputWatch(Protocol):
    """Looks at a pipeline's input while it runs, beside the source itself: is it all read, is it still the same?

    Called in the driver. Each may raise: `RefusedError` stops the pipeline, `RetriableError` starts it again.
    """

    def before(self, batch_id: int, query_id: str) -> None:
        """This batch is planned and about to be delivered."""

    def skipped(self, batch_id: int) -> None:
        """This batch had been delivered before."""

    def look(self, *, now: bool = False) -> None:
        """Called often, also when there is no input; does something every few seconds, or `now`."""

    def meaning(self, error: BaseException) -> BaseException:
        """What an error of the query means, where the input is to blame; else the same error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a watch of the input may use."""

    level: Guarantee
    checkpoint: Checkpoint
    spark: Any
    tell: Callable[[str, int], None]
    """(one line for people, how many things it is about)"""


@runtime_checkable
class Watched(Protocol):
    """Does not notice by itself what is passed over, so that it is watched from outside."""

    def watch(self, around: Surroundings) -> InputWatch: ...


class Unwatched:
    """For sources that notice everything themselves."""

    def before(self, batch_id: int, query_id: str) -> None:
        return None

    def skipped(self, batch_id: int) -> None:
        return None

    def look(self, *, now: bool = False) -> None:
        return None

    def meaning(self, error: BaseException) -> BaseException:
        return error


# Of a sink


@runtime_checkable
class TakesColumns(Protocol):
    """Its part of a delivery can run in the source's tasks."""

    @property
    def fuses(self) -> bool: ...


@runtime_checkable
class PutsAside(Protocol):
    """Knows what to do with records that never became rows (`Batch.aside`): it keeps them, or stops and names one."""

    @property
    def puts_aside(self) -> bool:
        """Whether they are kept as dead letters, and rows that cannot be delivered too."""

    def where_aside(self) -> str:
        """Where dead letters are kept, and in which commit; for people."""


# Of an open sink


@runtime_checkable
class Accepts(Protocol):
    def accepts(self, schema: Any) -> None:
        """Refuse columns before anything starts."""


@runtime_checkable
class Fuses(Protocol):
    def fused(self, transform: Any, schema: str) -> tuple[ArrowFunction, str] | None:
        """A function for the source's tasks that does as much of delivering `transform`'s rows as it can, and the
        schema of what it gives; or None."""


@runtime_checkable
class Refuses(Protocol):
    def refuses(self, df: Any, encoded: bool) -> bool:
        """Whether a row of these cannot be delivered, so that it can be searched for. Writes nothing that stays."""


@runtime_checkable
class ChecksClaim(Protocol):
    def check_claim(self) -> None:
        """For times without input: `ReplacedError` if a newer instance holds the pipeline, `LedgerMismatch` if the
        ledger does not stand where this instance left it."""


@runtime_checkable
class Peeks(Protocol):
    def peek(self) -> Progress | None:
        """What the ledger holds for this pipeline, without a claim: nobody is fenced, nothing is made."""


@runtime_checkable
class KnowsWhomItReplaced(Protocol):
    """An open sink whose store may go back to before the claim."""

    @property
    def replaced(self) -> tuple[str, int] | None: ...


@runtime_checkable
class LedgerApart(Protocol):
    """Output and ledger are committed together, but stored apart: one can be older than the other."""

    @property
    def ledger_apart(self) -> bool: ...


def may_go_back(source: Any) -> bool:
    """Whether a batch of this source may end before it begins."""
    return isinstance(source, MayGoBack) and source.goes_back


def as_source(given: Any) -> Source:
    made: Source = given.as_source() if isinstance(given, GivesSource) else given
    return made


def as_sink(given: Any) -> Sink:
    made: Sink = given.as_sink() if isinstance(given, GivesSink) else given
    return made


def borders_of(source: Source, positions: Positions | None) -> dict[str, str]:
    return source.borders(positions) if isinstance(source, KnownByBorders) else {}

"""What a delivery needs of the engine that cuts the input into batches and computes them. Spark is one (`spark/`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from atonce.delivery.progress import Plan, Positions
from atonce.errors import RefusedError

if TYPE_CHECKING:
    from atonce.delivery.contract import OpenSink


class EngineGone(RefusedError):
    """The engine has ended under a running pipeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What of a pipeline runs where, and why there."""

    why: str
    options: Mapping[str, str] = field(default_factory=dict)
    """For the source: what runs inside its tasks, right behind the decoder."""
    encoded: bool = False
    """The whole transform and the sink's own function are part of it: what the source gives are no longer rows."""


class Planner(Protocol):
    """Decides what runs where, and applies what the user wrote."""

    def placed(self, session: Any, sink: OpenSink, on_columns: bool) -> Placement:
        """`on_columns`: the transform may run on columns in the source's tasks."""

    def gives(self, session: Any) -> Any:
        """The schema of what the transform gives, of a stream that is never started; raises as `build` does."""

    def build(self, df: Any) -> Any:
        """The transform over what the source gives; `UsageError` for what is refused before anything starts."""


class Checkpoint(Protocol):
    """The engine's write-ahead log of what was planned."""

    @property
    def path(self) -> str: ...

    def planned(self) -> int | None:
        """The newest batch that was planned."""

    def committed(self) -> int | None:
        """The newest batch that the engine thinks was delivered."""

    def query_id(self) -> str | None: ...

    def names_no_query(self) -> bool:
        """It is there, and what it says of its query cannot be read."""

    def refuse_torn(self) -> None:
        """`LedgerMismatch` when a file of it cannot be read, as a power cut leaves it."""

    def has_state(self) -> bool: ...

    def plan(self, query_id: str, batch_id: int, stateful: bool) -> Plan: ...

    def end(self, batch_id: int) -> Positions | None:
        """The end of batch N, or None when any of its sources has offsets that cannot be compared."""

    def first(self) -> Positions | None:
        """Where batch 0 began."""

    def reading(self, *, drain: bool) -> Mapping[str, str]:
        """Options for the source: what the engine itself will not tell it of where batches begin and the input ends."""

    def begin(self, first: Positions | None) -> None:
        """Remember where batch 0 begins, before it is planned."""

    def set_aside(self) -> str | None:
        """Make room for a fresh checkpoint; the old one is kept. Returns where, None if there was none."""


class Query(Protocol):
    """A running query."""

    def is_active(self) -> bool:
        """Raises `EngineGone` when nobody answers any more."""

    def wait(self, seconds: float) -> None: ...

    def stop(self) -> None: ...

    def failure(self) -> BaseException | None: ...

    def close(self) -> None:
        """After it has ended: lets go of what it holds in this process."""

    @property
    def native(self) -> Any:
        """The engine's own object, for users of `Pipeline.start`."""


class Engine(Protocol):
    @property
    def session(self) -> Any:
        """What `Source.load` and `Sink.open` are given."""

    def checkpoint(self, path: str, parse: Callable[[str], Positions | None]) -> Checkpoint: ...

    def start(
        self,
        df: Any,
        *,
        name: str,
        checkpoint: str,
        mode: str | None,
        trigger: Mapping[str, Any],
        deliver: Callable[[Any, int], None],
    ) -> Query: ...

    def stateful(self, df: Any) -> bool: ...

    def query_id(self, df: Any) -> str:
        """Of the query that hands over this batch."""

    def session_of(self, df: Any) -> Any:
        """The session whose thread computes this batch."""

    def compute(self, df: Any) -> None:
        """Into nothing: its state advances all the same."""

    def meaning(self, error: BaseException) -> BaseException:
        """The error to act on: one of ours that a task raised, passing trouble, or the same."""

    def brief(self, error: BaseException) -> BaseException:
        """The same, short enough to be raised inside the engine."""

    def words(self, error: BaseException) -> str:
        """One line for people, without stack traces."""

    def theirs(self, error: BaseException) -> bool:
        """Raised by the engine, so that the user's own code may be behind it."""

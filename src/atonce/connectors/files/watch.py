"""What Spark's file source passes over, found out and said: rewritten and vanished files, names that it never reads.

Spark reads a path once and never looks at it again. So we keep how each file stood when its batch read it, and compare
that with the directory: before each batch, every few seconds, at the start and at the end. At the levels that promise
no loss a file that has changed since stops the pipeline.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from atonce.connectors.files.listing import Found, Listing, State, as_printed, listing_of, statuses
from atonce.connectors.files.names import option, why_passed_over
from atonce.connectors.files.record import FileRecord
from atonce.delivery.abilities import Surroundings
from atonce.errors import DataLossError, RetriableError, UsageError
from atonce.guarantee import Guarantee
from atonce.spark.checkpoint.plans import Checkpoint

NO_LOSS = (Guarantee.AT_LEAST_ONCE, Guarantee.EFFECTIVELY_ONCE)
LINES = 5
"""So many files are named at a time; of the rest only the number is told."""
_LOOK_EVERY_S = 5.0
_SHARE = 20
"""A look takes at most one part in so many of the time, whatever the size of the directory."""
_IGNORING = ("ignoreMissingFiles", "ignoreCorruptFiles")
_UNREADABLE = re.compile(
    r"\[FAILED_READ_FILE\.(?P<kind>\w+)\] Encountered error while reading file (?P<path>.*?)\. (?P<why>[^.\n]*)"
)


def refuse_ignored_files(options: Mapping[str, str], spark: Any, level: Guarantee) -> None:
    """Settings under which Spark leaves out files or lines that it cannot read and goes on."""
    for name in _IGNORING:
        setting = f"spark.sql.files.{name}"
        given = option(options, name)
        value = given if given is not None else str(spark.conf.get(setting, "false"))
        if value.lower() == "true" and level in NO_LOSS:
            raise UsageError(
                f"{name if given is not None else setting}=true is refused at {level.value}: a file that vanishes or "
                "cannot be read would be passed over, and nothing would say so. Next: set it to false."
            )
    mode = option(options, "mode") or ""
    if mode.upper() == "DROPMALFORMED" and level in NO_LOSS:
        raise UsageError(
            f"mode={mode} is refused at {level.value}: lines that do not fit the schema would be passed over, and "
            "nothing would say so. Next: leave it out, and they come as rows of NULL, or say FAILFAST."
        )


class FileWatch:
    """`InputWatch` for one directory of files. Thread-safe: batches and looks come from two threads."""

    def __init__(
        self,
        *,
        path: str,
        options: Mapping[str, str],
        around: Surroundings,
    ) -> None:
        spark, level = around.spark, around.level
        refuse_ignored_files(options, spark, level)
        self._path = path
        self._strict = level in NO_LOSS
        self._checkpoint = Checkpoint(around.checkpoint.path, spark, lambda _: None)
        self._tell = around.tell
        self._lock = threading.Lock()
        recursive = (option(options, "recursiveFileLookup") or "false").lower() == "true"
        self._listing: Listing = listing_of(path, recursive, spark)
        self._read_by: Callable[[str], dict[str, State]] = lambda query_id: files_of_batch(spark, query_id)
        self._seen: dict[str, State] | None = None
        self._record: FileRecord | None = None
        self._told: set[str] = set()
        self._next_look = 0.0

    def before(self, batch_id: int, query_id: str) -> None:
        with self._lock:
            seen, record = self._loaded()
            planned = [as_printed(path) for path in self._checkpoint.planned_files(batch_id)]
            if not planned:
                return
            read = self._read_by(query_id)
            self._gone(batch_id, [p for p in planned if p not in read and not why_passed_over(p.rpartition("/")[2])])
            states = {path: read[path] for path in planned if path in read}
            self._still_written(batch_id, states)
            record.keep(batch_id, states, seen)
            seen.update(states)
        self.look()

    def skipped(self, batch_id: int) -> None:
        with self._lock:
            seen, record = self._loaded()
            kept = record.of(batch_id)
            if kept is None:
                kept = _without_length(self._checkpoint.planned_files(batch_id))
                record.keep(batch_id, kept, seen)
            seen.update(kept)

    def look(self, *, now: bool = False) -> None:
        began = time.monotonic()
        if not (now or began >= self._next_look) or not self._lock.acquire(blocking=now):
            return
        try:
            seen, _ = self._loaded()
            try:
                found = self._listing.all()
            except OSError:
                return  # a directory that cannot be listed is told by Spark, which needs it too
            self._compare(found, seen)
        finally:
            self._next_look = time.monotonic() + max(_LOOK_EVERY_S, _SHARE * (time.monotonic() - began))
            self._lock.release()

    def meaning(self, error: BaseException) -> BaseException:
        found = _UNREADABLE.search(str(error))
        if found is None:
            return error
        lost = DataLossError(
            f"{as_printed(found['path'])} cannot be read: {found['why'].strip()}. Nothing of its batch "
            "was recorded as delivered. Next: put it back as it was and run the pipeline again; if it is lost for "
            "good, put one without rows in its place."
        )
        lost.__cause__ = error
        return lost

    def _loaded(self) -> tuple[dict[str, State], FileRecord]:
        """Every file of batches that are surely delivered. What the last planned one read is judged when it comes."""
        if self._seen is None or self._record is None:
            self._record = FileRecord(self._checkpoint.files)
            delivered = _delivered(self._checkpoint)
            if self._record.is_empty() and delivered >= 0:
                # A checkpoint from before lengths were kept: Spark's own list has the times.
                self._record.keep_whole(delivered, _without_length(self._checkpoint.seen_files(delivered)))
            self._seen = self._record.up_to(delivered)
        return self._seen, self._record

    def _gone(self, batch_id: int, missing: list[str]) -> None:
        """Spark leaves a planned file out when it is not there any more, and says nothing."""
        if not missing:
            return
        if self._strict:
            raise DataLossError(
                f"batch {batch_id} reads {missing[0]}{_and_more(missing)}, which is not there any more. Nothing of the "
                "batch was delivered. Next: put the file back and run it again; if it is lost for good, put one "
                "without rows in its place."
            )
        self._say([f"{path} was passed over: it vanished before batch {batch_id} read it" for path in missing])

    def _still_written(self, batch_id: int, states: Mapping[str, State]) -> None:
        """What Spark listed for this batch against the files as they are now, right before they are read."""
        if not self._strict:
            return
        try:
            present = self._listing.some(list(states))
        except OSError as error:
            raise RetriableError(f"the files of batch {batch_id} cannot be looked at: {error}") from error
        for path, state in states.items():
            now = present.get(path)
            if now is None:
                self._gone(batch_id, [path])
            elif not now.is_as(state):
                raise RetriableError(
                    f"{path} changed while batch {batch_id} was planned: {_words(state)}, then {_words(now)}. Nothing "
                    "of the batch was delivered; it is read again. Next: let files appear whole (write elsewhere, "
                    "then rename)."
                )

    def _compare(self, found: Found, seen: dict[str, State]) -> None:
        changed = [(p, seen[p], state) for p, state in found.files.items() if p in seen and not state.is_as(seen[p])]
        passed = [(path, why) for path, why in found.passed_over.items() if path not in self._told]
        self._told.update(path for path, _ in passed)
        self._say([f"{path} is passed over: {why}" for path, why in passed])
        if not changed:
            return
        if self._strict:
            path, then, now = changed[0]
            raise DataLossError(
                f"{path}{_and_more(changed)} has changed since it was read: {_words(then)} then, {_words(now)} now. "
                "Spark reads a path once, so what is new in it would be passed over. Next: give new rows a file of a "
                "new name; take this one away or put it back as it was, and run the pipeline again."
            )
        self._say(
            [
                f"{path} is passed over: it has changed since it was read ({_words(then)} then, {_words(now)} now)"
                for path, then, now in changed
            ]
        )
        seen.update({path: now for path, _, now in changed})

    def _say(self, lines: list[str]) -> None:
        for line in lines[:LINES]:
            self._tell(line, 1)
        if len(lines) > LINES:
            self._tell(f"{len(lines) - LINES} more files in {self._path} are passed over", len(lines) - LINES)


def files_of_batch(spark: Any, query_id: str) -> dict[str, State]:
    """What the batch that this query runs now reads, as Spark listed it for that batch."""
    leaves = spark._jsparkSession.streams().get(query_id).streamingQuery().lastExecution().analyzed().collectLeaves()
    found: dict[str, State] = {}
    for index in range(leaves.size()):
        leaf = leaves.apply(index)
        if leaf.getClass().getSimpleName() == "LogicalRelation":
            relation = leaf.relation()
            if relation.getClass().getSimpleName() == "HadoopFsRelation":
                text = str(relation.location().allFiles().mkString("\n"))
                found.update({path: state for path, state in statuses(text) if state is not None})
    return found


def _delivered(checkpoint: Checkpoint) -> int:
    """The newest batch that Spark will not call again."""
    planned, committed = checkpoint.planned(), checkpoint.committed()
    return max((-1 if planned is None else planned) - 1, -1 if committed is None else committed)


def _without_length(times: Mapping[str, int]) -> dict[str, State]:
    return {as_printed(path): State(-1, time_ms) for path, time_ms in times.items()}


def _words(state: State) -> str:
    moment = datetime.fromtimestamp(state.time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return f"{'unknown' if state.length < 0 else f'{state.length:,}'} bytes of {moment.replace('+00:00', 'Z')}"


def _and_more(several: list[Any]) -> str:
    return f" (and {len(several) - 1} more)" if len(several) > 1 else ""

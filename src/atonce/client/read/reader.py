"""One range of a partition, undecoded: where we are, the connection to the leader, and what each answer proves.

The next fetch is on its way before the current one is decoded, so that network, broker and decoder work at once.
A range is done when a batch reaches its end, when the log begins beyond it, or by the proof in `proof.py`; anything
else is asked again. Whether the log is still the one that was read before is asked with every fetch: by the topic's
id, and by the leader epoch of the last record.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

from kafka.protocol.consumer import FetchRequest

from atonce.client.answers import left_out
from atonce.client.cluster import Cluster
from atonce.client.errors import (
    LEADER_MOVED,
    WRONG_TOPIC_ID,
    BrokerRefused,
    Code,
    ConnectionLost,
    TopicMissing,
    TryAgain,
    error_for,
)
from atonce.client.identity import Identity
from atonce.client.offsets import EARLIEST, LATEST, TopicPartition, epoch_ends, isolation_level, list_offsets
from atonce.client.read.proof import WAIT_MS, Proof
from atonce.client.read.ranges import Wanted
from atonce.client.read.request import MAX_WAIT_MS, Question, answered
from atonce.client.retry import retry
from atonce.client.wire import Wire
from atonce.errors import DataLossError
from atonce.records.columns import EPOCH, Located, locate

log = logging.getLogger(__name__)

DEFAULT_MAX_BYTES = 4 << 20
RESPONSE_TIMEOUT_MS = 30_000
NO_PROGRESS_MS = 60_000
THROTTLED_MS = 600_000
"""So long is a quota waited for that lets nothing through at all."""
CUT_BELIEVED_MS = 30_000
"""A new leader may answer a lower end than the one before it, for a moment."""
PAUSE_S = 0.02
NEXT_STEP = (
    " Next: find out why, then go on with failOnDataLoss=false (in a pipeline fail_on_data_loss: false), or reset it."
)


class Reader:
    """Not thread-safe. `responses` gives the answers; `gone` and `missing` say what it passed over, and why."""

    def __init__(
        self,
        cluster: Cluster,
        wanted: Wanted,
        *,
        isolation: str = "read_committed",
        max_bytes: int = DEFAULT_MAX_BYTES,
        timeout_ms: int = NO_PROGRESS_MS,
        fail_on_data_loss: bool = True,
        only_this_topic: bool = False,
    ) -> None:
        self._cluster, self.wanted, self.end = cluster, wanted, wanted.end
        self.tp = TopicPartition(wanted.topic, wanted.partition)
        self._identity = Identity(cluster, wanted)
        self._level = isolation_level(isolation)
        self._max_bytes, self._timeout_ms = max_bytes, timeout_ms
        self._fail_on_data_loss, self._only_this_topic = fail_on_data_loss, only_this_topic
        self._wire: Wire | None = None
        self._position, self._epoch = wanted.start, wanted.epoch
        self._proof: Proof | None = None
        self._progress_at = time.monotonic()
        self._throttled_s = 0.0
        self._cut_since: float | None = None
        self.gone = 0
        """Offsets that retention removed before we came, passed over as `fail_on_data_loss=False` says."""
        self.missing = 0
        """Offsets at the end of the range of which it is proved that they have no record."""

    def begin(self) -> None:
        """Ask for the first answer, once. Whatever is in the way is dealt with when it is waited for."""
        if self._wire is None and self._position < self.end:
            try:
                self._ask_for()
            except (ConnectionLost, TryAgain, TopicMissing):
                self._lose()

    def responses(self) -> Iterator[tuple[int, Located, list[tuple[int, int]]]]:
        """(position asked for, its batches, its aborted transactions). The next request is out when one is yielded."""
        self._progress_at = time.monotonic()
        while self._position < self.end:
            answer = retry(self._ask, limit_ms=self._timeout_ms)
            if answer.error_code == Code.OFFSET_OUT_OF_RANGE:
                self._out_of_range()
                continue
            if answer.diverging_epoch is not None and answer.diverging_epoch.end_offset >= 0:
                self._diverged()
                continue
            located = locate(answer.records or b"", f"topic {self.tp.topic!r} partition {self.tp.partition}")
            if located.next_offset <= self._position:
                if answer.high_watermark >= self.end:
                    self._cut_since = None  # the leader has all that we want
                elif self._ends_early():
                    continue
                if self._nothing_left(answer):
                    self.missing = self.end - self._position
                    return
                continue
            asked = self._advance(located)
            aborted = [(int(a.producer_id), int(a.first_offset)) for a in answer.aborted_transactions or []]
            yield asked, located, aborted
            self._progress_at = time.monotonic()  # what the consumer took is none of the broker's time

    def _advance(self, located: Located) -> int:
        """Past these batches; what comes next is asked for at once. Returns where they were asked for."""
        asked, self._position = self._position, located.next_offset
        self._epoch = int(located.table[-1, EPOCH])
        self._proof, self._cut_since, self._progress_at = None, None, time.monotonic()
        self._throttled_s = 0.0
        if self._position < self.end and self._wire is not None:
            try:
                self._send(self._wire)
            except ConnectionLost:
                self._lose()  # the next round connects again
        return asked

    # One question and its answer --------------------------------------------------------------------------------------

    def _ask(self) -> Any:
        """One answer for the position; asks only when no request is on its way."""
        where = f"fetching {self.tp} at offset {self._position}"
        answer = self._receive()
        entry = answered(answer, self.tp.partition)
        while answer.throttle_time_ms > 0 and entry is None:
            self._throttled(answer.throttle_time_ms, where)
            answer = self._receive()
            entry = answered(answer, self.tp.partition)
        code = answer.error_code or (entry.error_code if entry is not None else Code.NONE)
        if answer.throttle_time_ms > 0:
            self._proof = None
        if code == Code.NONE and entry is not None and entry.preferred_read_replica >= 0 and not entry.records:
            # Empty, without an error and with the true bound: the leader did not read at all (KIP-392).
            raise BrokerRefused(
                f"{where}: the leader sends this client to node {entry.preferred_read_replica} and gives nothing. "
                "Next: let replica.selector.class of the brokers choose the leader for clients without a rack."
            )
        if code in (Code.NONE, Code.OFFSET_OUT_OF_RANGE) and entry is not None:
            self._identity.confirmed()
            return entry
        self._proof = None
        if code == Code.NONE:
            raise left_out(where)
        error = error_for(code, where)
        if code in LEADER_MOVED:
            self._lose()
            raise TryAgain(str(error))
        if code in WRONG_TOPIC_ID:
            self._lose()
            self._another_topic(str(error))
            raise TryAgain(str(error))
        if code == Code.UNKNOWN_SERVER_ERROR:
            raise TryAgain(str(error))  # so a leader answers, too, whose remote storage failed to read
        raise error

    def _receive(self) -> Any:
        try:
            return self._ask_for().receive(RESPONSE_TIMEOUT_MS)
        except ConnectionLost:
            self._lose()
            raise
        except TopicMissing as error:
            self._lose()
            if self._identity.topic_id is None:
                raise
            self._another_topic(str(error))
            raise TryAgain(str(error)) from None

    def _throttled(self, throttle_ms: int, where: str) -> None:
        """The quota is used up and nothing was read. The connection waits as long as the broker says."""
        self._proof = None
        self._throttled_s += throttle_ms / 1000
        self._progress_at += throttle_ms / 1000
        if self._throttled_s > THROTTLED_MS / 1000:
            raise TryAgain(
                f"{where}: the broker's quota for this client has let nothing through for {self._throttled_s:.0f} s. "
                "Next: raise consumer_byte_rate or request_percentage of this user or client id."
            )

    def _ask_for(self) -> Wire:
        """The connection on which the answer will come."""
        if self._wire is None:
            self._wire = self._cluster.wire(self._cluster.leader(self.tp.topic, self.tp.partition))
        if not self._wire.outstanding:
            self._send(self._wire)
        return self._wire

    def _send(self, wire: Wire) -> None:
        question = Question(
            topic=self.tp.topic,
            partition=self.tp.partition,
            position=self._position,
            topic_id=self._identity.topic_id,
            fetched_epoch=self._epoch,
            leader_epoch=self._proof.leader_epoch if self._proof is not None else -1,
            isolation_level=self._level,
            max_bytes=self._max_bytes,
            max_wait_ms=MAX_WAIT_MS if self._proof is None else WAIT_MS,
        )
        wire.send(question.request(wire.max_version(FetchRequest)))

    def _lose(self) -> None:
        """The connection or the leader is gone: look for both anew."""
        self._proof = None
        self._cluster.forget_topic(self.tp.topic)
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    # What an answer without new batches means -------------------------------------------------------------------------

    def _nothing_left(self, answer: Any) -> bool:
        """An empty answer: is it proved by now that nothing more will come below our end?"""
        bound = answer.last_stable_offset if self._level else answer.high_watermark
        why_not = "Next: see whether the log was cut."
        if bound < self.end or answer.records:
            self._proof = None
        else:
            try:
                if self._proof is None:
                    begun = Proof.begin(self._cluster, self.wanted, self._position)
                    self._proof = begun if begun is not None and begun.possible else None
                    why_not = begun.why_not() if begun is not None else why_not
                elif self._proof.complete():
                    return True
                elif self._proof.exhausted:
                    self._proof = None
            except (TryAgain, ConnectionLost):
                self._lose()
        if time.monotonic() - self._progress_at > self._timeout_ms / 1000:
            raise TryAgain(
                f"{self.tp}: nothing to read at offset {self._position} for {self._timeout_ms} ms, although the "
                f"batch ends at {self.end} (the broker's end is {bound}). {why_not}"
            )
        if self._proof is None:
            time.sleep(PAUSE_S)  # a broker waits for records by itself; what stands before it may not
        return False

    def _out_of_range(self) -> None:
        """The leader has nothing at our position: it was removed, or cut off, or the leader is not up to date."""
        if self._epoch >= 0:
            # It answers so as well when it does not know that epoch any more. That alone says nothing of the position.
            self._epoch = -1
            return
        position = self._position
        first = list_offsets(self._cluster, {self.tp: EARLIEST})[self.tp]
        last = list_offsets(self._cluster, {self.tp: LATEST}, "read_uncommitted")[self.tp]
        if first <= position and self._may_come_back(position, last):
            time.sleep(PAUSE_S)
            return
        self._pass_over(first, last)

    def _ends_early(self) -> bool:
        """The log ends within our range, which it held when it was planned: cut off, or the leader is not up to date.
        True when that was believed, and what is wanted passed over."""
        if self._cut_since is None:
            self._cut_since = time.monotonic()
            self._lose()
        if time.monotonic() - self._cut_since < CUT_BELIEVED_MS / 1000:
            return False
        last = list_offsets(self._cluster, {self.tp: LATEST}, "read_uncommitted")[self.tp]
        if last >= self.end:
            self._cut_since = None
            return False
        self._pass_over(list_offsets(self._cluster, {self.tp: EARLIEST})[self.tp], last)
        return True

    def _pass_over(self, first: int, last: int) -> None:
        """Nothing between our position and what comes next will ever be there: refused, unless the user says so."""
        position = self._position
        self._position = min(first, self.end) if first > position else self.end
        message = (
            f"{self.tp}: offsets {position} to {self._position - 1} are wanted, but only {first} to {last - 1} are "
            "there: they were removed (retention, deletion, a cut log, or the topic was made again) before they were "
            "read."
        )
        if self._fail_on_data_loss:
            raise DataLossError(message + NEXT_STEP)
        log.warning("%s Going on without them, as failOnDataLoss=false says.", message)
        self.gone += self._position - position
        self._progress_at = time.monotonic()

    def _may_come_back(self, position: int, last: int) -> bool:
        """The log's end says whether our position may be there in a moment: on this leader, or on the next one."""
        if position <= last:
            self._cut_since = None
            if time.monotonic() - self._progress_at > self._timeout_ms / 1000:
                raise TryAgain(
                    f"{self.tp}: the leader refuses to read at offset {position} and yet says that its log ends at "
                    f"{last}, for {self._timeout_ms} ms now. Next: see the broker's log."
                )
            return True
        if self._cut_since is None:
            self._cut_since = time.monotonic()
        self._lose()
        return time.monotonic() - self._cut_since < CUT_BELIEVED_MS / 1000

    def _diverged(self) -> None:
        """The leader's log was written otherwise than what we read, or ends before it."""
        asked, self._proof = self._epoch, None
        epoch, end = epoch_ends(self._cluster, {self.tp: asked})[self.tp]
        last = list_offsets(self._cluster, {self.tp: LATEST}, "read_uncommitted")[self.tp]
        if (last < self._position or (epoch == asked and end >= self._position)) and self._may_come_back(
            self._position, last
        ):
            time.sleep(PAUSE_S)
            return
        there = f"that epoch ends at offset {end}" if epoch == asked else "that epoch is not there any more"
        if epoch >= 0 and epoch != asked:
            there += f" (epoch {epoch} ends at offset {end})"
        message = (
            f"{self.tp}: read up to offset {self._position}, the last record in leader epoch {asked}, but in the "
            f"log as it is now {there}: the log was cut and written anew, as after an unclean leader election."
        )
        if self._fail_on_data_loss:
            raise DataLossError(message + NEXT_STEP)
        log.warning("%s Going on, as failOnDataLoss=false says.", message)
        self._epoch = -1

    def _another_topic(self, error: str) -> None:
        """Passing trouble, for a moment after a topic was made; then it is another topic, or none."""
        message = self._identity.doubted(error)
        if message is None:
            return
        if self._only_this_topic:
            raise DataLossError(
                f"{message} Nothing of it was read. Next: begin again with `atonce reset NAME --to earliest`."
            )
        if self._fail_on_data_loss:
            raise DataLossError(message + NEXT_STEP)
        log.warning("%s Going on, as failOnDataLoss=false says.", message)
        self._identity.given_up()
        self._epoch = -1

    def last_epoch(self, epoch: int, reach: int) -> int:
        """The leader epoch in which the offset before the end was written.

        `epoch` is that of the last batch, which reaches to `reach`. Where nothing is between that and the end, the
        epoch may have changed in the gap: only the leader knows; -1 when it does not say that it is still the same.
        """
        if epoch < 0 or reach >= self.end:
            return epoch
        found, end = epoch_ends(self._cluster, {self.tp: epoch})[self.tp]
        return epoch if found == epoch and end >= self.end else -1

    def close(self) -> None:
        if self._wire is not None:
            self._cluster.release(self._wire)
            self._wire = None

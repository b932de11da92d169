"""Progress as committed offsets of the consumer group that bears the pipeline's name, with a token in their metadata.

Two homes, chosen by where the input is:

    input on the same cluster    the offsets stand on the input's own partitions: lag tools see the pipeline
    publishing, other cluster    there is no such partition here, so offset and token stand on the output topic,
                                 on partition 0 and, when the positions need more room, on the next ones

A token holds instance, query id, batch id, topic id, fingerprint and the offset. Offsets without a token of ours, or
beside what their token says, were written by something else (a tool that reset the group): they are refused, since
resuming from them could lose or double data. What is remembered besides (`delivery/format.py`): leader epochs
where Kafka has a place for them, the last cuts in the token of the first partition only.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from atonce.client.offsets import Committed, TopicPartition
from atonce.delivery.format import VERSION, cuts_from, cuts_to, refuse_newer
from atonce.delivery.progress import Positions, Progress
from atonce.errors import LedgerMismatch, UsageError

TOKEN_LIMIT_BYTES = 4096
"""Kafka's offset.metadata.max.bytes."""
_CHUNK = 3_600

Token = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaLedger:
    """Turns progress into a group's offsets and back. Does no I/O: the offsets travel in the sink's transaction."""

    group: str
    on_topic: str | None = None
    """The output topic that carries the token; None: the input's own partitions do."""
    on_partitions: int = 1

    def offsets(self, progress: Progress) -> dict[TopicPartition, Committed]:
        if self.on_topic is None:
            return self._on_input(progress)
        return self._on_output(progress, self.on_topic)

    def progress(self, committed: Mapping[TopicPartition, Committed]) -> Progress | None:
        """What the group's offsets say; None when it has none."""
        if self.on_topic is not None:
            committed = {tp: c for tp, c in committed.items() if tp.topic == self.on_topic}
        else:
            committed = {tp: c for tp, c in committed.items() if c.offset >= 0}
        if not committed:
            return None
        tokens = {tp: self._parse(tp, c.metadata) for tp, c in committed.items()}
        ours = {tp: token for tp, token in tokens.items() if token is not None and token["o"] == committed[tp].offset}
        if len(ours) < len(tokens):
            raise self._foreign(committed, tokens, ours)
        if self.on_topic is not None:
            return self._from_output(ours)
        return self._from_input(committed, ours)

    def _on_input(self, progress: Progress) -> dict[TopicPartition, Committed]:
        if progress.positions is None:
            raise UsageError(
                f"group {self.group!r}: positions that cannot be compared have no place on input partitions"
            )
        offsets: dict[TopicPartition, Committed] = {}
        for partition, at in sorted(progress.positions.items()):
            tp = TopicPartition.parse(partition)
            more: dict[str, object] = {"t": progress.source_ids.get(tp.topic, ""), "o": at}
            if progress.first is not None and partition in progress.first:
                more["a"] = progress.first[partition]
            if not offsets:
                more["r"] = cuts_to(progress.recent)
            offsets[tp] = Committed(
                offset=at, leader_epoch=progress.epochs.get(partition, -1), metadata=_token(progress, more)
            )
        return offsets

    def _from_input(
        self, committed: Mapping[TopicPartition, Committed], tokens: Mapping[TopicPartition, Token]
    ) -> Progress:
        newest = max(tokens.values(), key=lambda token: int(token["s"]))
        of_newest = [token for token in tokens.values() if token["s"] == newest["s"]]
        first = {f"{tp.topic}/{tp.partition}": int(token["a"]) for tp, token in tokens.items() if "a" in token}
        return _progress(
            newest,
            positions={f"{tp.topic}/{tp.partition}": c.offset for tp, c in committed.items()},
            source_ids={tp.topic: str(token["t"]) for tp, token in tokens.items() if token["t"]},
            epochs={f"{tp.topic}/{tp.partition}": c.leader_epoch for tp, c in committed.items() if c.leader_epoch >= 0},
            first=first or None,
            recent=next((str(token["r"]) for token in of_newest if "r" in token), ""),
        )

    def _on_output(self, progress: Progress, topic: str) -> dict[TopicPartition, Committed]:
        at = progress.batch_id + 1
        room = _CHUNK - len(_token(progress, {"o": at}))
        body = ""
        for body in _bodies(progress):  # what can be done without goes first, rather than refuse to deliver
            if len(body) <= room * self.on_partitions:
                break
        chunks = [body[start : start + room] for start in range(0, len(body), room)]
        if len(chunks) > self.on_partitions:
            raise UsageError(
                f"the positions of {len(progress.positions or {})} input partitions take {len(body)} bytes, and the "
                f"tokens on {self.on_partitions} partitions of {topic!r} hold {room} each. Next: give {topic!r} "
                f"{len(chunks)} partitions."
            )
        return {
            TopicPartition(topic, index): Committed(
                offset=at, metadata=_token(progress, {"o": at, "n": len(chunks), "c": chunk})
            )
            for index, chunk in enumerate(chunks)
        }

    def _from_output(self, tokens: Mapping[TopicPartition, Token]) -> Progress:
        first = tokens.get(TopicPartition(self.on_topic or "", 0))
        if first is None:
            raise LedgerMismatch(
                f"group {self.group!r} has no token on partition 0 of {self.on_topic!r}, but on others"
            )
        chunks = []
        for index in range(int(str(first["n"]))):
            token = tokens.get(TopicPartition(self.on_topic or "", index))
            if token is None or token["s"] != first["s"]:
                raise LedgerMismatch(
                    f"group {self.group!r}: the token on {self.on_topic}/{index} does not belong to the one on "
                    f"partition 0"
                )
            chunks.append(str(token["c"]))
        text = "".join(chunks)
        body = json.loads(text if first["v"] == 1 else zlib.decompress(base64.b85decode(text)))
        return _progress(
            first,
            positions=body["p"],
            source_ids=body["t"],
            epochs=body.get("e", {}),
            first=body.get("a"),
            recent=body.get("r", ""),
            borders=body.get("d", {}),
        )

    def _parse(self, tp: TopicPartition, metadata: str) -> Token | None:
        """The token, None where there is none of ours; one that a newer version wrote is refused."""
        try:
            token = json.loads(metadata)
        except ValueError:
            return None
        if not (isinstance(token, dict) and isinstance(token.get("v"), int) and "i" in token and "o" in token):
            return None
        refuse_newer(token["v"], f"the offset of group {self.group!r} on {tp}")
        return token

    def _foreign(
        self,
        committed: Mapping[TopicPartition, Committed],
        tokens: Mapping[TopicPartition, Token | None],
        ours: Mapping[TopicPartition, Token],
    ) -> LedgerMismatch:
        others = ", ".join(
            f"{tp} at {committed[tp].offset}{_written(tokens[tp])}" for tp in sorted(set(tokens) - set(ours))[:8]
        )
        error = LedgerMismatch(
            f"group {self.group!r} holds offsets that this pipeline did not write: {others}. A tool has reset them, or "
            "another consumer uses the name; resuming there could lose or double data. Next: run "
            f"`atonce reset {self.group} --to OFFSETS` to say where it should begin, or use another name."
        )
        error.sequence = max((int(token["s"]) for token in tokens.values() if token is not None), default=0)
        return error


def mirror_offsets(positions: Positions, note: str) -> dict[TopicPartition, Committed]:
    """Positions for lag tools only: the truth is elsewhere, and nobody reads these back."""
    return {TopicPartition.parse(name): Committed(offset=at, metadata=note) for name, at in positions.items()}


def _bodies(progress: Progress) -> list[str]:
    """The whole body, then ever less of what may be missing."""
    body: dict[str, object] = {
        "p": None if progress.positions is None else dict(progress.positions),
        "t": dict(progress.source_ids),
        "r": cuts_to(progress.recent),
        "e": dict(progress.epochs),
        "a": None if progress.first is None else dict(progress.first),
    }
    if progress.borders:
        body["d"] = dict(progress.borders)
    bodies = []
    for dropped in ("", "a", "e"):
        body.pop(dropped, None)
        text = json.dumps(body, separators=(",", ":"), sort_keys=True)
        # Base 85 (of `b85encode`) needs no escapes in JSON.
        bodies.append(base64.b85encode(zlib.compress(text.encode(), 9)).decode())
    return bodies


def _token(progress: Progress, more: Mapping[str, object]) -> str:
    token = {
        "v": VERSION,
        "i": progress.instance,
        "q": progress.query_id,
        "b": progress.batch_id,
        "s": progress.sequence,
        "f": progress.fingerprint,
        **more,
    }
    text = json.dumps(token, separators=(",", ":"))
    if len(text.encode()) > TOKEN_LIMIT_BYTES:
        raise UsageError(f"the token takes {len(text)} bytes, Kafka allows {TOKEN_LIMIT_BYTES}: {text[:200]}…")
    return text


def _written(token: Token | None) -> str:
    return f" (it wrote {token['o']})" if token is not None else ""


def _progress(
    token: Token,
    *,
    positions: Positions | None,
    source_ids: Mapping[str, str],
    epochs: Positions,
    first: Positions | None,
    recent: str,
    borders: Mapping[str, str] | None = None,
) -> Progress:
    return Progress(
        instance=str(token["i"]),
        query_id=str(token["q"]),
        batch_id=int(token["b"]),
        positions=None if positions is None else dict(positions),
        source_ids=dict(source_ids),
        fingerprint=str(token["f"]),
        sequence=int(token["s"]),
        epochs=dict(epochs),
        first=None if first is None else dict(first),
        recent=cuts_from(recent),
        borders=dict(borders or {}),
    )

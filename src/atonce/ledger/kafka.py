"""Progress as committed offsets of the consumer group that bears the pipeline's name, with a token in their metadata.

Two homes, chosen by where the input is:

    input on the same cluster    the offsets stand on the input's own partitions: lag tools see the pipeline
    publishing, other cluster    there is no such partition here, so offset and token stand on the output topic,
                                 on partition 0 and, when the positions need more room, on the next ones

A token holds instance, query id, batch id, topic id, fingerprint and the offset. Offsets without a token of ours, or
beside what their token says, were written by something else (a tool that reset the group): they are refused, since
going on from them could lose or double data (F27).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from atonce.client.offsets import Committed, TopicPartition
from atonce.errors import LedgerMismatch, UsageError
from atonce.ledger.progress import Positions, Progress

TOKEN_LIMIT_BYTES = 4096
"""Kafka's offset.metadata.max.bytes."""
_CHUNK = 3_600
_VERSION = 1


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
        tokens = {tp: _parse(c.metadata) for tp, c in committed.items()}
        foreign = sorted(tp for tp, token in tokens.items() if token is None or token.get("o") != committed[tp].offset)
        if foreign:
            places = ", ".join(
                f"{tp.topic}/{tp.partition} at {committed[tp].offset}{_written(tokens[tp])}" for tp in foreign[:8]
            )
            raise LedgerMismatch(
                f"group {self.group!r} holds offsets that this pipeline did not write: {places}. A tool has reset "
                f"them, or "
                "another consumer uses the name; going on from there could lose or double data. Next: run "
                f"`atonce reset {self.group} --to OFFSETS` to say where it should begin, or use another name."
            )
        if self.on_topic is not None:
            return self._from_output(tokens)
        return self._from_input(committed, tokens)

    def _on_input(self, progress: Progress) -> dict[TopicPartition, Committed]:
        if progress.positions is None:
            raise UsageError(
                f"group {self.group!r}: positions that cannot be compared have no place on input partitions"
            )
        offsets = {}
        for place, at in progress.positions.items():
            topic, _, index = place.rpartition("/")
            token = _token(progress, {"t": progress.source_ids.get(topic, ""), "o": at})
            offsets[TopicPartition(topic, int(index))] = Committed(offset=at, metadata=token)
        return offsets

    def _from_input(
        self, committed: Mapping[TopicPartition, Committed], tokens: Mapping[TopicPartition, dict[str, object] | None]
    ) -> Progress:
        parsed = {tp: token for tp, token in tokens.items() if token is not None}
        newest = max(parsed.values(), key=lambda token: int(str(token["s"])))
        return _progress(
            newest,
            positions={f"{tp.topic}/{tp.partition}": c.offset for tp, c in committed.items()},
            source_ids={tp.topic: str(token["t"]) for tp, token in parsed.items() if token["t"]},
        )

    def _on_output(self, progress: Progress, topic: str) -> dict[TopicPartition, Committed]:
        body = json.dumps(
            {"p": None if progress.positions is None else dict(progress.positions), "t": dict(progress.source_ids)},
            separators=(",", ":"),
            sort_keys=True,
        )
        at = progress.batch_id + 1
        room = _CHUNK - len(_token(progress, {"o": at}))
        chunks = [body[at : at + room] for at in range(0, len(body), room)]
        if len(chunks) > self.on_partitions:
            raise UsageError(
                f"the positions of {len(progress.positions or {})} input partitions take {len(body)} bytes, and the "
                f"tokens "
                f"on {self.on_partitions} partitions of {topic!r} hold {room} each. Next: give {topic!r} "
                f"{len(chunks)} partitions."
            )
        return {
            TopicPartition(topic, index): Committed(
                offset=at, metadata=_token(progress, {"o": at, "n": len(chunks), "c": chunk})
            )
            for index, chunk in enumerate(chunks)
        }

    def _from_output(self, tokens: Mapping[TopicPartition, dict[str, object] | None]) -> Progress:
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
        body = json.loads("".join(chunks))
        return _progress(first, positions=body["p"], source_ids=body["t"])


def mirror_offsets(positions: Positions, note: str) -> dict[TopicPartition, Committed]:
    """Positions for lag tools only: the truth is elsewhere, and nobody reads these back."""
    return {
        TopicPartition(place.rpartition("/")[0], int(place.rpartition("/")[2])): Committed(offset=at, metadata=note)
        for place, at in positions.items()
    }


def _token(progress: Progress, more: Mapping[str, object]) -> str:
    token = {
        "v": _VERSION,
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


def _parse(metadata: str) -> dict[str, object] | None:
    try:
        token = json.loads(metadata)
    except ValueError:
        return None
    return token if isinstance(token, dict) and token.get("v") == _VERSION and "i" in token else None


def _written(token: Mapping[str, object] | None) -> str:
    return f" (it wrote {token['o']})" if token is not None and "o" in token else ""


def _progress(token: Mapping[str, object], positions: Positions | None, source_ids: Mapping[str, str]) -> Progress:
    return Progress(
        instance=str(token["i"]),
        query_id=str(token["q"]),
        batch_id=int(str(token["b"])),
        positions=None if positions is None else dict(positions),
        source_ids=dict(source_ids),
        fingerprint=str(token["f"]),
        sequence=int(str(token["s"])),
    )

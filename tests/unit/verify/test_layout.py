"""How the input stands in the log: batches, codecs, transactions and offsets that are known beforehand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from atonce.connectors.contract import Feature, InputRecord
from atonce.verify.ground.encoding import batch_of
from atonce.verify.ground.layout import CODECS, Chunk, Ends, Layout, Step, laid_out
from atonce.verify.ground.nasty import HEADERS, MAKE
from atonce.verify.ground.workload import MARK, Workload, generated
from atonce.verify.wire.batches import decode

ALL = frozenset(Feature) - {Feature.GAPS}
WORKLOAD = generated(3, 120, 2, 30, ALL, at_ms=1_000_000)


def kinds(workload: Workload) -> Counter[str]:
    return Counter(
        name
        for record in workload.all
        for name, is_so in (
            ("null key", record.key is None),
            ("empty key", record.key == b""),
            ("null value", record.value is None),
            ("empty value", record.value == b""),
            ("headers", bool(record.headers)),
            ("large", len(record.value or b"") > 100_000),
            ("no text", not _is_text(record.value or b"")),
        )
        if is_so
    )


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_every_kind_of_nasty_record_stands_in_the_first_part_and_in_the_rest() -> None:
    assert set(kinds(WORKLOAD)) == {
        "null key",
        "empty key",
        "null value",
        "empty value",
        "headers",
        "large",
        "no text",
    }
    assert kinds(WORKLOAD)["null value"] == 3
    assert len(WORKLOAD.all) == 150


def test_a_feature_that_is_left_out_leaves_the_other_records_as_they_were() -> None:
    without = generated(3, 120, 2, 30, ALL - {Feature.NULL_VALUE}, at_ms=1_000_000)
    other = [a.number for a, b in zip(WORKLOAD.all, without.all, strict=True) if a != b]
    assert other == [record.number for record in WORKLOAD.all if record.value is None]


def test_every_generated_record_carries_its_number_in_its_value_or_its_key() -> None:
    for record in WORKLOAD.all:
        found = MARK.search(record.value or b"") or MARK.search(record.key or b"")
        assert found and int(found.group(1)) == record.number


def test_all_records_of_a_key_stay_in_one_partition() -> None:
    places = {(r.key, r.beside, r.partition) for r in WORKLOAD.all if r.key}
    assert len(places) == len({key for key, _, _ in places})
    assert {r.partition for r in WORKLOAD.head} == {0, 1}
    assert 2 in {r.partition for r in WORKLOAD.tail}, "nothing went to the partition that is added"
    assert any(r.beside for r in WORKLOAD.head)


def replayed(layout: Layout) -> dict[tuple[bool, int], list[InputRecord | str]]:
    """What a log would hold: records and markers in the order in which they get their offsets."""
    logs: dict[tuple[bool, int], list[InputRecord | str]] = {}
    waiting: list[Step] = []

    def marked(step: Step) -> None:
        for chunk in step.chunks:
            logs[chunk.beside, chunk.partition].append(step.ends.value)

    for part in (layout.head, layout.tail):
        for step in part:
            for chunk in step.chunks:
                logs.setdefault((chunk.beside, chunk.partition), []).extend(chunk.records)
            if step.later:
                waiting.append(step)
            elif step.ends is not Ends.PLAIN:
                marked(step)
        while waiting:
            marked(waiting.pop(0))
    return logs


def test_offsets_are_those_that_the_log_will_give() -> None:
    layout = laid_out(WORKLOAD)
    logs = replayed(layout)
    for record in layout.workload.all:
        stands = logs[record.beside, record.partition][record.offset or 0]
        assert not isinstance(stands, str) and stands.number == record.number


@pytest.mark.parametrize("count", [20, 40, 60, 120])
def test_what_can_be_read_ends_with_a_record_in_every_partition_so_that_a_consumer_reaches_its_end(count: int) -> None:
    layout = laid_out(generated(3, count, 2, max(10, count // 4), ALL))
    closed = replace(layout, head=tuple(step for step in layout.head if not step.later), tail=())
    for part in (layout, closed):
        assert all(not isinstance(log[-1], str) for log in replayed(part).values())


def test_there_are_all_codecs_and_aborted_committed_and_open_transactions() -> None:
    layout = laid_out(WORKLOAD)
    assert {chunk.codec for step in layout.head for chunk in step.chunks} == set(CODECS)
    assert {(step.ends, step.later) for step in layout.head} == {
        (Ends.PLAIN, False),
        (Ends.COMMIT, False),
        (Ends.ABORT, False),
        (Ends.COMMIT, True),
        (Ends.ABORT, True),
    }
    ghosts = {r.number for s in layout.head if s.ends is Ends.ABORT for c in s.chunks for r in c.records}
    assert len(ghosts) == layout.ghosts == 6
    assert not ghosts & {record.number for record in WORKLOAD.all}


def test_without_features_records_stand_as_they_come() -> None:
    plain = laid_out(generated(3, 20, 2, 5))
    assert [step.ends for step in (*plain.head, *plain.tail)] == [Ends.PLAIN] * len((*plain.head, *plain.tail))
    assert {chunk.codec for step in plain.head for chunk in step.chunks} == {0}


def test_the_auditors_decoder_reads_what_its_input_was_encoded_to_in_every_codec() -> None:
    records = tuple(record for record in WORKLOAD.all if record.headers or record.value is None or record.key is None)
    for codec in CODECS:
        chunk = Chunk(False, 0, records, codec)
        batch = batch_of(chunk.records, producer=(5, 1), sequence=0, codec=codec, transactional=True, now_ms=0)
        read = list(decode(0, batch))
        assert [(r.key, r.value, r.timestamp_ms) for r in read] == [(r.key, r.value, r.timestamp_ms) for r in records]
        assert [r.headers for r in read] == [tuple((n.encode(), v) for n, v in r.headers) for r in records]
        assert all(r.transactional and r.producer_id == 5 for r in read)
    assert len(HEADERS) == 5 and len(MAKE) == 8

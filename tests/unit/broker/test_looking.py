"""Where a producer's batches are looked at: small ones where they arrive, large and unpacking ones in a thread."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from atonce.broker import looking
from atonce.broker.broker import BrokerState
from atonce.broker.looking import look_at
from atonce.broker.metrics import Metrics
from atonce.broker.produce_wire import PartitionRecords
from atonce.broker.settings import Settings
from atonce.log import partition_log, validation
from atonce.log.errors import InvalidRecord
from atonce.records.batch import HEADER_SIZE, assemble, read_header
from atonce.records.compression import Compression, compress
from atonce.records.record import build_batch

NOW = 1_700_000_000_000
SMALL = build_batch([(None, b"x" * 100)], timestamp_ms=NOW)
MIDDLE = build_batch([(None, b"x" * 900_000)], timestamp_ms=NOW)
LARGE_PACKED = build_batch([(None, random.Random(1).randbytes(100_000))], timestamp_ms=NOW, compression=Compression.LZ4)
SMALL_PACKED = build_batch([(None, b"x" * 100)], timestamp_ms=NOW, compression=Compression.ZSTD)
# A few hundred bytes that become 20 MB: allowed, but not while others wait.
UNPACKS_TO_MUCH = build_batch([(None, b"x" * 20_000_000)], timestamp_ms=NOW, compression=Compression.ZSTD)
BOMB = assemble(
    read_header(SMALL)._replace(attributes=int(Compression.ZSTD)), compress(Compression.ZSTD, b"\0" * 100_000_000)
)
GARBAGE = assemble(read_header(SMALL)._replace(attributes=int(Compression.LZ4)), SMALL[HEADER_SIZE:])


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "is_compiled", lambda: True)


def looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: Sequence[bytes]
) -> tuple[list[Any], list[bool]]:
    """What was found for each batch (None: left to the append), and for each look whether it was on the loop."""
    on_loop: list[bool] = []
    accept = validation.accept

    def noting(*args: Any, **named: Any) -> Any:
        on_loop.append(threading.current_thread() is threading.main_thread())
        return accept(*args, **named)

    monkeypatch.setattr(validation, "accept", noting)
    monkeypatch.setattr(partition_log.validation, "accept", noting)

    async def body() -> list[Any]:
        broker = BrokerState(tmp_path, Settings(), Metrics())
        await broker.start()
        try:
            partition = (await broker.topics.create("t", 1, {})).partitions[0]
            wanted = [(PartitionRecords(0, memoryview(batch)), partition) for batch in batches]
            on_loop.clear()
            looked = await look_at(broker, wanted)
            return [looked.get(id(one)) for one, _ in wanted]
        finally:
            await broker.stop()

    return asyncio.run(body()), on_loop


def test_a_plain_batch_is_left_to_the_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert looked_at(tmp_path, monkeypatch, [SMALL, MIDDLE]) == ([None, None], [])


def test_nobody_waits_on_the_loop_for_the_compiled_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first large batch of a broker's life, or one that may unpack to more than a small one."""
    monkeypatch.setattr(looking, "is_compiled", lambda: False)
    found, on_loop = looked_at(tmp_path, monkeypatch, [SMALL, MIDDLE, SMALL_PACKED])
    assert [one is None for one in found] == [True, False, False] and on_loop == [False, False]


def test_a_small_packed_batch_is_looked_at_where_it_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,), on_loop = looked_at(tmp_path, monkeypatch, [SMALL_PACKED])
    assert found[0].header.record_count == 1 and on_loop == [True]


def test_a_large_packed_batch_is_looked_at_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,), on_loop = looked_at(tmp_path, monkeypatch, [LARGE_PACKED])
    assert found[0].header.record_count == 1 and on_loop == [False]


def test_what_unpacks_to_much_goes_on_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(UNPACKS_TO_MUCH) < 8192
    (found,), on_loop = looked_at(tmp_path, monkeypatch, [UNPACKS_TO_MUCH])
    assert found[0].header.record_count == 1 and on_loop == [True, False]


def test_bombs_and_garbage_are_refused_each_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = looked_at(tmp_path, monkeypatch, [BOMB, SMALL_PACKED, GARBAGE, LARGE_PACKED])
    assert isinstance(found[0], InvalidRecord) and "more than the" in str(found[0])
    assert isinstance(found[2], InvalidRecord)
    assert found[1][0].header.record_count == found[3][0].header.record_count == 1


def test_many_small_packed_batches_of_one_request_do_not_hold_up_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, on_loop = looked_at(tmp_path, monkeypatch, [SMALL_PACKED] * 30)
    assert all(one is not None for one in found)
    assert on_loop.count(True) == 8 and on_loop.count(False) == 22


def test_a_large_request_of_small_batches_is_looked_at_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, on_loop = looked_at(tmp_path, monkeypatch, [MIDDLE] * 12)
    assert all(one is not None for one in found) and not any(on_loop)

"""What happens by the clock happens to every partition, whatever is wrong with one of them."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from atonce.broker.broker import BrokerState
from atonce.broker.metrics import Metrics
from atonce.broker.settings import Settings
from atonce.log.partition_log import PartitionLog


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), RuntimeError("a bug of ours")])
@pytest.mark.parametrize(
    ("job", "due", "work"),
    [
        ("_enforce_retention", "retention_due", "enforce_retention"),
        ("_compact", "compaction_due", "compact"),
        ("_expire_producers", None, "expire_producers"),
    ],
)
def test_one_bad_partition_is_named_and_those_after_it_have_their_turn(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    job: str,
    due: str | None,
    work: str,
    error: Exception,
) -> None:
    seen: list[str] = []

    def fails_for_one(log: PartitionLog) -> bool:
        seen.append(log.directory)
        if "bad-1" in log.directory:
            raise error
        return True

    async def main() -> None:
        broker = BrokerState(tmp_path, Settings(), Metrics(), 100)
        await broker.start()
        try:
            await broker.topics.create("bad", 3, {})
            if due is not None:
                monkeypatch.setattr(PartitionLog, due, lambda log: True)
            monkeypatch.setattr(PartitionLog, work, fails_for_one)
            run: Any = getattr(broker.background, job)
            await run()
        finally:
            monkeypatch.undo()
            broker.stop_waiting()
            await broker.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert len([one for one in seen if "bad-" in one]) == 3, seen
    assert "bad-1" in caplog.text and str(error) in caplog.text

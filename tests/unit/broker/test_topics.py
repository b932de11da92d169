"""The list of topics is the truth: a crash between any two steps leaves rubbish, never a topic without its data."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from atonce.broker.metrics import Metrics
from atonce.broker.partition import Partition
from atonce.broker.settings import Settings
from atonce.broker.topics import NewTopic, TopicRefused, Topics, check_topic_name, random_uuid, uuid_text
from atonce.errors import CorruptLogError
from atonce.log.config import LogConfig
from atonce.log.partition_log import PartitionLog
from atonce.log.storage import DiskStorage
from atonce.records.record import build_batch


class Crash(BaseException):
    """The process ends here."""


def topics(root: Path, pool: ThreadPoolExecutor, settings: Settings | None = None) -> Topics:
    storage = DiskStorage(root)

    def open_log(_topic: str, directory: str, _settings: Any) -> PartitionLog:
        return PartitionLog.open(storage, directory, LogConfig(), lambda: 0)

    def make(topic: str, index: int, log: PartitionLog) -> Partition:
        return Partition(topic, index, log, pool, Metrics())

    made = Topics(root, settings or Settings(), open_log, make, pool)
    made.load()
    return made


def run(body: Any) -> None:
    async def main() -> None:
        with ThreadPoolExecutor(2) as pool:
            await body(pool)

    asyncio.run(main())


@pytest.mark.parametrize("bad", ["", ".", "..", "a/b", "../a", "a b", "ä", "a" * 250, "a\0b"])
def test_bad_names_are_refused(bad: str) -> None:
    with pytest.raises(TopicRefused, match="Topic name is invalid"):
        check_topic_name(bad)


def test_names_at_the_limit_are_accepted() -> None:
    for good in ("a" * 249, "a.b_c-D9", "..."):
        check_topic_name(good)


def test_ids_never_begin_with_a_dash() -> None:
    assert not any(uuid_text(random_uuid()).startswith("-") for _ in range(500))


def test_topics_are_the_same_after_a_restart(scratch: Path) -> None:
    async def body(pool: ThreadPoolExecutor) -> None:
        first = topics(scratch, pool)
        made = await first.create("a", 3, {"retention.ms": "5"})
        await first.add_partitions(made, 5)
        await first.keep_broker_settings({"message.max.bytes": 7})
        first.close()
        settings = Settings()
        again = topics(scratch, pool, settings)
        found = again.get("a")
        assert found is not None
        assert (found.topic_id, found.overrides, len(found.partitions)) == (made.topic_id, {"retention.ms": "5"}, 5)
        assert settings.number("message.max.bytes") == 7
        assert again.cluster_id == first.cluster_id

    run(body)


def test_crash_before_the_list_is_written_leaves_no_topic_and_no_rubbish(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(pool: ThreadPoolExecutor) -> None:
        first = topics(scratch, pool)
        with monkeypatch.context() as patched:
            patched.setattr(first, "_write_list", _crash)
            patched.setattr(first, "_discard", lambda partitions: None)
            with pytest.raises(Crash):
                await first.create("a", 2, {})
        assert sorted(p.name for p in (scratch / "logs").iterdir()) == ["a-0", "a-1"]
        again = topics(scratch, pool)
        assert again.get("a") is None
        assert list((scratch / "logs").iterdir()) == []

    run(body)


def test_crash_after_the_list_forgot_a_topic_removes_its_data_at_the_next_start(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(pool: ThreadPoolExecutor) -> None:
        first = topics(scratch, pool)
        made = await first.create("a", 2, {})
        with monkeypatch.context() as patched:
            patched.setattr(first, "_discard", _crash)
            with pytest.raises(Crash):
                await first.delete_many([made])
        again = topics(scratch, pool)
        assert again.get("a") is None and list((scratch / "logs").iterdir()) == []
        new = await again.create("a", 2, {})
        assert new.topic_id != made.topic_id and new.partitions[0].log.log_end_offset == 0

    run(body)


def _crash(*_: Any) -> None:
    raise Crash


def test_damaged_list_is_refused_with_its_path(scratch: Path) -> None:
    async def body(pool: ThreadPoolExecutor) -> None:
        topics(scratch, pool)
        path = scratch / "topics.json"
        good = path.read_text()
        for bad in (good[:-3], "{}", good.replace('"format": 1', '"format": 2')):
            path.write_text(bad)
            with pytest.raises(CorruptLogError, match=r"topics\.json"):
                topics(scratch, pool)
        content = json.loads(good)
        content["topics"] = [{"name": "../../etc", "id": str(random_uuid()), "partitions": 1, "settings": {}}]
        path.write_text(json.dumps(content))
        with pytest.raises(CorruptLogError, match="Topic name is invalid"):
            topics(scratch, pool)

    run(body)


def test_two_creations_of_one_name_give_one_topic(scratch: Path) -> None:
    async def body(pool: ThreadPoolExecutor) -> None:
        first = topics(scratch, pool)
        results = await asyncio.gather(*(first.create("a", 1, {}) for _ in range(4)), return_exceptions=True)
        assert sum(isinstance(result, TopicRefused) for result in results) == 3

    run(body)


def test_many_changes_share_the_cost_of_the_list(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(pool: ThreadPoolExecutor) -> None:
        made = topics(scratch, pool)
        await made.create_many([NewTopic(f"t{number}", 1) for number in range(250)])
        written = 0
        write = made._write_list

        def counting(content: bytes) -> None:
            nonlocal written
            written += 1
            write(content)

        monkeypatch.setattr(made, "_write_list", counting)
        done = await made.alter_many([(one, lambda: {"retention.ms": "5"}) for one in made.all()])
        assert done == [None] * 250 and written == 3
        made.close()
        again = topics(scratch, pool)
        assert all(one.overrides == {"retention.ms": "5"} for one in again.all())

    run(body)


def test_a_topic_named_twice_sees_its_own_first_change(scratch: Path) -> None:
    async def body(pool: ThreadPoolExecutor) -> None:
        made = topics(scratch, pool)
        one = await made.create("a", 1, {})

        def more(name: str) -> Any:
            return lambda: {**one.overrides, name: "5"}

        assert await made.alter_many([(one, more("retention.ms")), (one, more("segment.ms"))]) == [None, None]
        assert one.overrides == {"retention.ms": "5", "segment.ms": "5"}

    run(body)


def test_changes_of_one_topic_by_several_clients_at_once_all_stay(scratch: Path) -> None:
    async def body(pool: ThreadPoolExecutor) -> None:
        made = topics(scratch, pool)
        one = await made.create("a", 1, {})
        names = ("retention.ms", "segment.ms", "flush.ms", "delete.retention.ms")
        await asyncio.gather(*(made.alter_many([(one, lambda n=n: {**one.overrides, n: "5"})]) for n in names))
        assert one.overrides == dict.fromkeys(names, "5")

    run(body)


def test_a_change_of_a_topic_that_is_deleted_meanwhile_does_not_put_it_on_the_list_again(scratch: Path) -> None:
    """It would be missing at the next start, which would be refused."""

    async def body(pool: ThreadPoolExecutor) -> None:
        made = topics(scratch, pool)
        one = await made.create("a", 1, {})
        _, (altered,), grown = await asyncio.gather(
            made.delete_many([one]),
            made.alter_many([(one, lambda: {"retention.ms": "5"})]),
            made.add_partitions(one, 3),
            return_exceptions=True,
        )
        assert isinstance(altered, TopicRefused) and isinstance(grown, TopicRefused)
        made.close()
        assert topics(scratch, pool).all() == []

    run(body)


def test_two_requests_for_four_partitions_make_four(scratch: Path) -> None:
    async def body(pool: ThreadPoolExecutor) -> None:
        made = topics(scratch, pool)
        one = await made.create("a", 1, {})
        done = await asyncio.gather(made.add_partitions(one, 4), made.add_partitions(one, 4), return_exceptions=True)
        assert len(one.partitions) == 4 and sum(isinstance(each, TopicRefused) for each in done) == 1

    run(body)


def test_a_topic_made_again_has_files_of_its_own_whoever_still_holds_the_old_ones(scratch: Path) -> None:
    """A fetch that is on its way holds the old log: the new one must not go offline because of it."""

    async def body(pool: ThreadPoolExecutor) -> None:
        made = topics(scratch, pool)
        old = (await made.create("a", 1, {})).partitions[0].log
        old.append(build_batch([(None, b"old")], timestamp_ms=0))
        old.flush()
        held = old.read(0, 1000)
        await made.delete_many(made.all())
        new = (await made.create("a", 1, {})).partitions[0].log
        assert new.append(build_batch([(None, b"new")], timestamp_ms=0)).base_offset == 0
        assert new.flush() == 1 and not new.is_offline
        assert b"new" in new.read(0, 1000).read() and b"old" in held.read()
        made.close()
        assert topics(scratch, pool).partitions()[0].log.log_end_offset == 1

    run(body)

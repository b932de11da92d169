"""The topics and their durable list. `topics.json` is the truth; a directory that it does not name is rubbish.

So a topic's directories are made before the list names it, and removed after the list has forgotten it: a crash
anywhere in between leaves rubbish, which the next start removes, and never a topic without its data.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from atonce.broker.messages import ErrorCode
from atonce.broker.partition import Partition
from atonce.broker.settings import Settings, checked_topic_settings
from atonce.errors import AtOnceError, CorruptLogError
from atonce.log.partition_log import PartitionLog
from atonce.log.storage import DiskStorage

_LIST = "topics.json"
_LOGS = "logs"
_RUBBISH = "deleted"
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_FORMAT = 1
# A directory name ends in "-" and the index, and may have 255 characters.
MAX_PARTITIONS = 10_000

INTERNAL = frozenset({"__consumer_offsets", "__transaction_state"})

# (topic, directory, the topic's own settings)
LogOpener = Callable[[str, str, Mapping[str, str]], PartitionLog]
PartitionMaker = Callable[[str, int, PartitionLog], Partition]


class TopicRefused(AtOnceError):
    """A change of topics that was not made; `code` is what the client is told."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(slots=True)
class Topic:
    name: str
    topic_id: UUID
    overrides: dict[str, str]
    partitions: list[Partition] = field(default_factory=list)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL


def random_uuid() -> UUID:
    """As Kafka makes them: shown in base64, and never with a leading dash, which tools take for an option."""
    while True:
        made = uuid.uuid4()
        if not uuid_text(made).startswith("-"):
            return made


def uuid_text(value: UUID) -> str:
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def check_topic_name(name: str) -> None:
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise TopicRefused(
            ErrorCode.invalid_topic_exception,
            f"Topic name is invalid: {name[:260]!r}. Up to 249 of the characters a-z A-Z 0-9 . _ - are allowed.",
        )


class Topics:
    """All topics. Reads are immediate; changes are made one after another."""

    def __init__(
        self, root: Path, settings: Settings, open_log: LogOpener, make_partition: PartitionMaker, files: Executor
    ) -> None:
        self._root = root
        self._settings = settings
        self._open_log = open_log
        self._make_partition = make_partition
        self._files = files
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self._changes = asyncio.Lock()
        self._storage = DiskStorage(root)
        self.cluster_id = ""

    # -- life ---------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Read the list, remove rubbish, open every log. Raises CorruptLogError if a listed log is not there."""
        path = self._root / _LIST
        known = self._storage.list(_LOGS)
        if not path.exists():
            if known:
                raise CorruptLogError(
                    f"{path} is missing, but {self._root / _LOGS} holds {len(known)} partitions. "
                    "Put the file back, or move the data away to begin anew."
                )
            self.cluster_id = uuid_text(random_uuid())
            self._storage.make_directory(_LOGS)
            self._write_list(self._listed())
            return
        content = self._read_list(path)
        self.cluster_id = content["cluster_id"]
        self._settings.dynamic.update(content.get("broker_settings", {}))
        wanted = {
            _directory(entry["name"], index) for entry in content["topics"] for index in range(entry["partitions"])
        }
        for name in known:
            if f"{_LOGS}/{name}" not in wanted:
                self._storage.remove_directory(f"{_LOGS}/{name}")
        self._storage.remove_directory(_RUBBISH)
        for entry in content["topics"]:
            topic = Topic(entry["name"], UUID(entry["id"]), dict(entry["settings"]))
            for index in range(entry["partitions"]):
                directory = _directory(topic.name, index)
                if not self._storage.exists(directory):
                    raise CorruptLogError(
                        f"{self._root / directory} is missing, but {path} lists {topic.name} with "
                        f"{entry['partitions']} partitions. Put the directory back from a copy."
                    )
                log = self._open_log(topic.name, directory, topic.overrides)
                topic.partitions.append(self._make_partition(topic.name, index, log))
            self._publish(topic)

    def _read_list(self, path: Path) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads(path.read_bytes())
            if content["format"] != _FORMAT:
                raise CorruptLogError(f"{path} has format {content['format']}; this version reads {_FORMAT}")
            for entry in content["topics"]:
                check_topic_name(entry["name"])
        except (ValueError, KeyError, TypeError, TopicRefused) as error:
            raise CorruptLogError(f"{path} cannot be read: {error}. Put it back from a copy.") from error
        return content

    def close(self) -> None:
        for topic in self._by_name.values():
            for partition in topic.partitions:
                if partition.log.is_offline:
                    partition.log.abandon()
                else:
                    with contextlib.suppress(AtOnceError):
                        partition.log.close()

    # -- reading ------------------------------------------------------------------------------------------------

    def get(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: UUID | None) -> Topic | None:
        return self._by_id.get(topic_id) if topic_id is not None else None

    def all(self) -> list[Topic]:
        return sorted(self._by_name.values(), key=lambda topic: topic.name)

    def partition(self, name: str, index: int) -> Partition | None:
        topic = self._by_name.get(name)
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None

    def partitions(self) -> list[Partition]:
        return [partition for topic in self._by_name.values() for partition in topic.partitions]

    def partition_count(self, topic: str) -> int | None:
        found = self._by_name.get(topic)
        return len(found.partitions) if found is not None else None

    def topic_id(self, topic: str) -> UUID | None:
        found = self._by_name.get(topic)
        return found.topic_id if found is not None else None

    def topic_name(self, topic_id: UUID) -> str | None:
        found = self._by_id.get(topic_id)
        return found.name if found is not None else None

    def names(self) -> Sequence[str]:
        return sorted(self._by_name)

    # -- changing -----------------------------------------------------------------------------------------------

    def check_new(self, name: str) -> None:
        """Raises TopicRefused if no topic of that name can be made."""
        check_topic_name(name)
        if name in self._by_name:
            raise TopicRefused(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
        flat = name.replace(".", "_")
        for other in self._by_name:
            if other.replace(".", "_") == flat:
                raise TopicRefused(
                    ErrorCode.invalid_topic_exception, f"Topic '{name}' collides with existing topic: {other}"
                )

    async def create(self, name: str, count: int, overrides: Mapping[str, str | None]) -> Topic:
        checked = checked_topic_settings(overrides)
        async with self._changes:
            self.check_new(name)
            topic = Topic(name, random_uuid(), checked)
            logs = await self._in_thread(self._open_new, name, 0, count, checked)
            topic.partitions = [self._make_partition(name, index, log) for index, log in enumerate(logs)]
            try:
                await self._in_thread(self._write_list, self._listed(added=topic))
            except BaseException:
                self._discard(topic.partitions)
                raise
            self._publish(topic)
            return topic

    async def add_partitions(self, topic: Topic, count: int) -> None:
        async with self._changes:
            have = len(topic.partitions)
            logs = await self._in_thread(self._open_new, topic.name, have, count, topic.overrides)
            more = [self._make_partition(topic.name, have + i, log) for i, log in enumerate(logs)]
            grown = Topic(topic.name, topic.topic_id, topic.overrides, [*topic.partitions, *more])
            try:
                await self._in_thread(self._write_list, self._listed(added=grown))
            except BaseException:
                self._discard(more)
                raise
            topic.partitions.extend(more)

    async def delete(self, topic: Topic) -> None:
        async with self._changes:
            if self._by_id.get(topic.topic_id) is not topic:
                raise TopicRefused(ErrorCode.unknown_topic_or_partition, "This server does not host this topic.")
            await self._in_thread(self._write_list, self._listed(without=topic))
            del self._by_name[topic.name]
            del self._by_id[topic.topic_id]
            for partition in topic.partitions:
                partition.forget()
            for partition in topic.partitions:
                async with partition.cleaning:  # a cleaner still at work would write into the next topic of this name
                    await partition.settle()
            await self._in_thread(self._discard, topic.partitions)

    async def alter(self, topic: Topic, overrides: Mapping[str, str | None]) -> None:
        """Replace a topic's own settings."""
        checked = checked_topic_settings(overrides)
        async with self._changes:
            altered = Topic(topic.name, topic.topic_id, checked, topic.partitions)
            await self._in_thread(self._write_list, self._listed(added=altered))
            topic.overrides = checked

    async def keep_broker_settings(self, values: Mapping[str, Any]) -> None:
        """Make the broker's dynamic settings durable, then put them in force."""
        async with self._changes:
            await self._in_thread(self._write_list, self._listed(dynamic=values))
            self._settings.dynamic.clear()
            self._settings.dynamic.update(values)

    # -- files --------------------------------------------------------------------------------------------------

    async def _in_thread(self, work: Callable[..., Any], *args: Any) -> Any:
        # Shielded: a half made change must be finished or undone, whoever stopped waiting for it.
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._files, work, *args))

    def _publish(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic

    def _open_new(self, name: str, start: int, count: int, overrides: Mapping[str, str]) -> list[PartitionLog]:
        made: list[PartitionLog] = []
        try:
            for index in range(start, start + count):
                directory = _directory(name, index)
                self._storage.remove_directory(directory)
                made.append(self._open_log(name, directory, overrides))
            self._storage.sync_directory(_LOGS)
        except BaseException:
            for log in made:
                log.abandon()
                self._storage.remove_directory(log.directory)
            raise
        return made

    def _discard(self, partitions: Sequence[Partition]) -> None:
        self._storage.make_directory(_RUBBISH)
        for partition in partitions:
            rubbish = f"{_RUBBISH}/{uuid.uuid4().hex}"
            partition.log.abandon()
            with contextlib.suppress(FileNotFoundError):
                self._storage.rename(partition.log.directory, rubbish)
            self._storage.remove_directory(rubbish)

    def _listed(
        self, added: Topic | None = None, without: Topic | None = None, dynamic: Mapping[str, Any] | None = None
    ) -> bytes:
        topics = {name: topic for name, topic in self._by_name.items() if topic is not without}
        if added is not None:
            topics[added.name] = added
        content = {
            "format": _FORMAT,
            "cluster_id": self.cluster_id,
            "broker_settings": dict(self._settings.dynamic if dynamic is None else dynamic),
            "topics": [
                {
                    "name": topic.name,
                    "id": str(topic.topic_id),
                    "partitions": len(topic.partitions),
                    "settings": topic.overrides,
                }
                for topic in topics.values()
            ],
        }
        return json.dumps(content, indent=1).encode()

    def _write_list(self, content: bytes) -> None:
        """Whole or not at all, whatever happens in between."""
        path = self._root / _LIST
        fresh = path.with_suffix(".new")
        with fresh.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        self._storage.sync_directory()


def _directory(topic: str, index: int) -> str:
    return f"{_LOGS}/{topic}-{index}"

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
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import UUID

from atonce.broker.messages import ErrorCode
from atonce.broker.partition import Partition
from atonce.broker.settings import Settings, checked_topic_settings
from atonce.errors import AtOnceError, CorruptLogError
from atonce.log.partition_log import PartitionLog
from atonce.log.storage import DiskStorage

TOPIC_LIST = "topics.json"
_LOGS = "logs"
_RUBBISH = "deleted"
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_FORMAT = 1
# A directory name ends in "-" and the index, and may have 255 characters.
MAX_PARTITIONS = 10_000
# Topics that are made before the list is written: others who want to change something wait that long.
_AT_ONCE = 100
# Up to so many new partitions are synced file by file, more of them by one sync of the file system.
_FEW = 8

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


def read_list(path: Path) -> dict[str, Any]:
    """What `topics.json` says; CorruptLogError if it cannot be read."""
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        if content["format"] != _FORMAT:
            raise CorruptLogError(f"{path} has format {content['format']}; this version reads {_FORMAT}")
        for entry in content["topics"]:
            check_topic_name(entry["name"])
    except (ValueError, KeyError, TypeError, TopicRefused) as error:
        raise CorruptLogError(f"{path} cannot be read: {error}. Put it back from a copy.") from error
    return content


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be made; its settings have been checked."""

    name: str
    partitions: int
    overrides: dict[str, str] = field(default_factory=dict)


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
        self._by_flat_name: dict[str, str] = {}
        self._partition_count = 0
        self._changes = asyncio.Lock()
        self._storage = DiskStorage(root)
        self.cluster_id = ""

    # -- life ---------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Read the list, remove rubbish, open every log. Raises CorruptLogError if a listed log is not there."""
        path = self._root / TOPIC_LIST
        known = self._storage.list(_LOGS)
        if not path.exists():
            if known:
                raise CorruptLogError(
                    f"{path} is missing, but {self._root / _LOGS} holds {len(known)} partitions. "
                    "Put the file back, or move the data away to begin anew."
                )
            self.cluster_id = uuid_text(random_uuid())
            self._storage.make_directory(_LOGS)
            self._save_list()
            return
        content = read_list(path)
        self.cluster_id = content["cluster_id"]
        self._settings.dynamic.update(content.get("broker_settings", {}))
        wanted = {
            log_directory(entry["name"], index) for entry in content["topics"] for index in range(entry["partitions"])
        }
        for name in known:
            if f"{_LOGS}/{name}" not in wanted:
                self._storage.remove_directory(f"{_LOGS}/{name}")
        self._storage.remove_directory(_RUBBISH)
        for entry in content["topics"]:
            topic = Topic(entry["name"], UUID(entry["id"]), dict(entry["settings"]))
            for index in range(entry["partitions"]):
                directory = log_directory(topic.name, index)
                if not self._storage.exists(directory):
                    raise CorruptLogError(
                        f"{self._root / directory} is missing, but {path} lists {topic.name} with "
                        f"{entry['partitions']} partitions. Put the directory back from a copy."
                    )
                log = self._open_log(topic.name, directory, topic.overrides)
                topic.partitions.append(self._make_partition(topic.name, index, log))
            self._publish(topic)

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

    def name_of(self, asked: Any) -> str | None:
        """Of a topic as a request has it, by name or by id; None: an id that nobody knows."""
        return str(asked.name) if asked.name is not None else self.topic_name(asked.topic_id)

    def names(self) -> Sequence[str]:
        return sorted(self._by_name)

    # -- changing -----------------------------------------------------------------------------------------------

    def check_new(self, name: str) -> None:
        """Raises TopicRefused if no topic of that name can be made."""
        check_topic_name(name)
        if name in self._by_name:
            raise TopicRefused(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
        other = self._by_flat_name.get(_flat(name))
        if other is not None:
            raise TopicRefused(
                ErrorCode.invalid_topic_exception, f"Topic '{name}' collides with existing topic: {other}"
            )

    def check_room(self, more: int) -> None:
        """Raises TopicRefused if so many more partitions would be too many for this broker."""
        most = self._settings.number("max.partitions")
        if self._partition_count + more > most:
            raise TopicRefused(
                ErrorCode.policy_violation,
                f"There are {self._partition_count} partitions; {more} more would be above max.partitions={most}.",
            )

    async def create(self, name: str, count: int, overrides: Mapping[str, str | None]) -> Topic:
        made = (await self.create_many([NewTopic(name, count, checked_topic_settings(overrides))]))[name]
        if isinstance(made, Topic):
            return made
        raise made

    async def create_many(self, wanted: Sequence[NewTopic]) -> dict[str, Topic | TopicRefused | OSError]:
        """Each made, or why it was not. Many at once share the cost of the list, which is written once for them."""
        done: dict[str, Topic | TopicRefused | OSError] = {}
        for start in range(0, len(wanted), _AT_ONCE):
            async with self._changes:
                await self._create_some(wanted[start : start + _AT_ONCE], done)
        return done

    async def _create_some(self, wanted: Sequence[NewTopic], done: dict[str, Topic | TopicRefused | OSError]) -> None:
        made: list[Topic] = []
        taken = 0
        for new in wanted:
            try:
                self.check_new(new.name)
                if any(_flat(topic.name) == _flat(new.name) for topic in made):
                    raise TopicRefused(ErrorCode.invalid_topic_exception, f"Topic '{new.name}' is named twice.")
                self.check_room(new.partitions + taken)
            except TopicRefused as error:
                done[new.name] = error
            else:
                made.append(Topic(new.name, random_uuid(), dict(new.overrides)))
                taken += new.partitions
        counts = {new.name: new.partitions for new in wanted}
        try:
            logs = await self._in_thread(self._open_new, [(topic, 0, counts[topic.name]) for topic in made])
            for topic, opened in zip(made, logs, strict=True):
                topic.partitions = [self._make_partition(topic.name, index, log) for index, log in enumerate(opened)]
            if made:
                await self._in_thread(self._save_list, made)
        except BaseException as error:
            self._discard([partition for topic in made for partition in topic.partitions])
            if not isinstance(error, OSError):
                raise
            done.update({topic.name: error for topic in made})
            return
        for topic in made:
            self._publish(topic)
            done[topic.name] = topic

    async def add_partitions(self, topic: Topic, until: int) -> None:
        """Grow to so many; another request may have done so while this one waited."""
        async with self._changes:
            self._check_there(topic)
            have = len(topic.partitions)
            count = until - have
            if count <= 0:
                raise TopicRefused(
                    ErrorCode.invalid_partitions,
                    f"The topic {topic.name} currently has {have} partition(s); {until} would not be an increase.",
                )
            self.check_room(count)
            (logs,) = await self._in_thread(self._open_new, [(topic, have, count)])
            more = [self._make_partition(topic.name, have + i, log) for i, log in enumerate(logs)]
            grown = Topic(topic.name, topic.topic_id, topic.overrides, [*topic.partitions, *more])
            try:
                await self._in_thread(self._save_list, [grown])
            except BaseException:
                self._discard(more)
                raise
            topic.partitions.extend(more)
            self._partition_count += count

    async def delete_many(self, topics: Sequence[Topic]) -> dict[UUID, TopicRefused | OSError | None]:
        """Each removed (None), or why it was not."""
        done: dict[UUID, TopicRefused | OSError | None] = {}
        for start in range(0, len(topics), _AT_ONCE):
            async with self._changes:
                await self._delete_some(topics[start : start + _AT_ONCE], done)
        return done

    async def _delete_some(self, topics: Sequence[Topic], done: dict[UUID, TopicRefused | OSError | None]) -> None:
        going = []
        for topic in topics:
            if self._by_id.get(topic.topic_id) is topic:
                going.append(topic)
            else:
                missing = TopicRefused(ErrorCode.unknown_topic_or_partition, "This server does not host this topic.")
                done[topic.topic_id] = missing
        try:
            await self._in_thread(self._save_list, [], going)
        except OSError as error:
            done.update({topic.topic_id: error for topic in going})
            return
        for topic in going:
            self._withdraw(topic)
            done[topic.topic_id] = None
        for topic in going:
            for partition in topic.partitions:
                async with partition.cleaning:  # a cleaner still at work would write into the next topic of this name
                    await partition.settle()
        await self._in_thread(self._discard, [partition for topic in going for partition in topic.partitions])

    async def alter_many(
        self, wanted: Sequence[tuple[Topic, Callable[[], Mapping[str, str | None]]]]
    ) -> list[AtOnceError | OSError | None]:
        """Replace topics' own settings by what each function says when its turn has come; None, or why it was not done.

        Many at once share the cost of the list. A topic that is named twice sees its own first change.
        """
        done: list[AtOnceError | OSError | None] = []
        while len(done) < len(wanted):
            async with self._changes:
                done += await self._alter_some(wanted[len(done) : len(done) + _AT_ONCE])
        return done

    async def _alter_some(
        self, wanted: Sequence[tuple[Topic, Callable[[], Mapping[str, str | None]]]]
    ) -> list[AtOnceError | OSError | None]:
        done: list[AtOnceError | OSError | None] = []
        altered: dict[str, Topic] = {}
        for topic, values in wanted:
            if topic.name in altered:
                break  # what it is then depends on this change, which must be in force first
            try:
                self._check_there(topic)
                altered[topic.name] = Topic(
                    topic.name, topic.topic_id, checked_topic_settings(values()), topic.partitions
                )
                done.append(None)
            except AtOnceError as error:
                done.append(error)
        if altered:
            try:
                await self._in_thread(self._save_list, list(altered.values()))
            except OSError as error:
                return [one or error for one in done]
            for name, changed in altered.items():
                self._by_name[name].overrides = changed.overrides
        return done

    def _check_there(self, topic: Topic) -> None:
        """It may have been deleted while its change waited: put on the list again, it would be missing at a start."""
        if self._by_id.get(topic.topic_id) is not topic:
            raise TopicRefused(ErrorCode.unknown_topic_or_partition, "This server does not host this topic-partition.")

    async def keep_broker_settings(self, values: Mapping[str, Any]) -> None:
        """Make the broker's dynamic settings durable, then put them in force."""
        async with self._changes:
            await self._in_thread(self._save_list, [], [], values)
            self._settings.dynamic.clear()
            self._settings.dynamic.update(values)

    # -- files --------------------------------------------------------------------------------------------------

    async def _in_thread(self, work: Callable[..., Any], *args: Any) -> Any:
        # Shielded: a half made change must be finished or undone, whoever stopped waiting for it.
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._files, work, *args))

    def _publish(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self._by_flat_name[_flat(topic.name)] = topic.name
        self._partition_count += len(topic.partitions)

    def _withdraw(self, topic: Topic) -> None:
        del self._by_name[topic.name]
        del self._by_id[topic.topic_id]
        del self._by_flat_name[_flat(topic.name)]
        self._partition_count -= len(topic.partitions)
        for partition in topic.partitions:
            partition.forget()

    def _open_new(self, wanted: Sequence[tuple[Topic, int, int]]) -> list[list[PartitionLog]]:
        """The new logs of each topic: from which index on, and how many."""
        directories = [[log_directory(t.name, index) for index in range(at, at + count)] for t, at, count in wanted]
        many = sum(len(ours) for ours in directories) > _FEW
        made: list[list[PartitionLog]] = []
        try:
            for directory in chain.from_iterable(directories):
                self._storage.remove_directory(directory)
                if many:
                    PartitionLog.prepare(self._storage, directory)
            if many:
                self._storage.sync_all()
            for (topic, _, _), ours in zip(wanted, directories, strict=True):
                made.append([])
                made[-1].extend(self._open_log(topic.name, directory, topic.overrides) for directory in ours)
            self._storage.sync_directory(_LOGS)
        except BaseException:
            for log in chain.from_iterable(made):
                log.abandon()
            for directory in chain.from_iterable(directories):
                self._storage.remove_directory(directory)
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

    def _save_list(
        self, added: Sequence[Topic] = (), without: Sequence[Topic] = (), dynamic: Mapping[str, Any] | None = None
    ) -> None:
        """The list as it will stand after a change. One change at a time, so nothing else moves meanwhile."""
        gone = {topic.topic_id for topic in without}
        topics = {name: topic for name, topic in self._by_name.items() if topic.topic_id not in gone}
        topics.update((topic.name, topic) for topic in added)
        head = {
            "format": _FORMAT,
            "cluster_id": self.cluster_id,
            "broker_settings": dict(self._settings.dynamic if dynamic is None else dynamic),
        }
        lines = [
            json.dumps(
                {
                    "name": topic.name,
                    "id": str(topic.topic_id),
                    "partitions": len(topic.partitions),
                    "settings": topic.overrides,
                }
            )
            for topic in topics.values()
        ]
        body = ",\n".join(lines)
        self._write_list(f'{json.dumps(head)[:-1]}, "topics": [\n{body}\n]}}\n'.encode())

    def _write_list(self, content: bytes) -> None:
        """Whole or not at all, whatever happens in between."""
        path = self._root / TOPIC_LIST
        fresh = path.with_suffix(".new")
        with fresh.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        self._storage.sync_directory()


def _flat(name: str) -> str:
    """Kafka's metrics cannot tell these apart, so names that differ only there collide."""
    return name.replace(".", "_")


def log_directory(topic: str, index: int) -> str:
    return f"{_LOGS}/{topic}-{index}"

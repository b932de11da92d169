"""How input reaches the subject: appended to its topic, or as files in its directory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from atonce.verify.cluster import Cluster
from atonce.verify.subject_contract import Names
from atonce.verify.workload import Input, publish


class Feed(Protocol):
    def prepare(self, names: Names, partitions: int) -> None: ...

    def give(self, names: Names, records: Sequence[Input]) -> None: ...

    def ends(self, names: Names) -> dict[int, int]:
        """Where the input ends, per partition; empty when that cannot be said in offsets."""

    def remove(self, names: Names) -> None: ...


class TopicFeed:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def prepare(self, names: Names, partitions: int) -> None:
        self._cluster.create_topic(names.input, partitions)

    def give(self, names: Names, records: Sequence[Input]) -> None:
        self._cluster.patiently(lambda: publish(self._cluster, names.input, records))

    def ends(self, names: Names) -> dict[int, int]:
        return self._cluster.patiently(lambda: self._cluster.offsets(names.input))

    def remove(self, names: Names) -> None:
        self._cluster.delete_topic(names.input)


class FilesFeed:
    """One value a line (JSON lines or text), a few files, each put in place whole by a rename."""

    def __init__(self, records_per_file: int = 20) -> None:
        self._per_file = records_per_file
        self._count = 0

    def prepare(self, names: Names, partitions: int) -> None:
        (names.scratch / "in").mkdir(parents=True, exist_ok=True)

    def give(self, names: Names, records: Sequence[Input]) -> None:
        folder = names.scratch / "in"
        for at in range(0, len(records), self._per_file):
            self._count += 1
            made = names.scratch / f"part-{self._count:05d}.json"
            made.write_bytes(b"".join(record.value + b"\n" for record in records[at : at + self._per_file]))
            made.rename(folder / made.name)

    def ends(self, names: Names) -> dict[int, int]:
        return {}

    def remove(self, names: Names) -> None:
        return None

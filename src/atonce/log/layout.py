"""The names in a partition's directory: Kafka's for segments, plus three files of our own.

00000000000000000000.log        record batches, as sent
00000000000000000000.index      offset → position, sparse          }
00000000000000000000.timeindex  timestamp → offset, sparse         } written whole, with a checksum
00000000000000000000.txnindex   aborted transactions               }
00000000000000000000.snapshot   producer state at that offset      }
manifest                        the sealed segments, log start offset, how far it is cleaned (with a checksum)
recovery-point                  up to where everything is synced; see `recovery_point.py`
reserve                         zeros, given up so that a full disk can still record what retention removes
"""

from __future__ import annotations

from dataclasses import dataclass

from atonce.log.storage import Storage

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
INDEXES = (INDEX, TIME_INDEX, TXN_INDEX)
CLEANED = ".log.cleaned"
SWAP = ".log.swap"
TEMPORARY = ".tmp"
MANIFEST = "manifest"
RECOVERY_POINT = "recovery-point"
RESERVE = "reserve"
RESERVE_BYTES = 16 * 1024

_DIGITS = 20


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths in one partition's directory."""

    storage: Storage
    directory: str

    def path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def offset_path(self, offset: int, suffix: str) -> str:
        return self.path(f"{offset:0{_DIGITS}d}{suffix}")

    def offsets(self, suffix: str) -> list[int]:
        """The offsets for which there is a file with this suffix, ascending."""
        found = []
        for name in self.storage.list(self.directory):
            stem = name[:_DIGITS]
            if name[_DIGITS:] == suffix and len(stem) == _DIGITS and stem.isdecimal():
                found.append(int(stem))
        return found

    def sync(self) -> None:
        self.storage.sync_directory(self.directory)

    def keep_reserve(self) -> None:
        """Have the reserve there if the disk has room for it; it matters only when there is none."""
        path = self.path(RESERVE)
        if not self.storage.exists(path):
            try:
                self.storage.open(path, create=True).pwrite(0, [bytes(RESERVE_BYTES)])
            except OSError:
                self.storage.remove(path)

    def give_up_reserve(self) -> bool:
        """Free its room; False if it was not there."""
        path = self.path(RESERVE)
        there = self.storage.exists(path)
        self.storage.remove(path)
        return there

    def remove(self, offset: int, *suffixes: str) -> None:
        for suffix in suffixes:
            self.storage.remove(self.offset_path(offset, suffix))

"""The names in a partition's directory: Kafka's for segments, plus two files of our own.

00000000000000000000.log        record batches, as sent
00000000000000000000.index      offset → position, sparse          }
00000000000000000000.timeindex  timestamp → offset, sparse         } written whole, with a checksum
00000000000000000000.txnindex   aborted transactions               }
00000000000000000000.snapshot   producer state at that offset      }
manifest                        the sealed segments, log start offset, how far it is cleaned (with a checksum)
recovery-point                  up to where everything is synced; see `recovery_point.py`
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

    def remove(self, offset: int, *suffixes: str) -> None:
        for suffix in suffixes:
            self.storage.remove(self.offset_path(offset, suffix))

"""Small files that are whole or not there: written aside, synced, renamed; a checksum at the end.

The name is durable once the caller has synced the directory.
"""

from __future__ import annotations

import struct

import crc32c

from atonce.errors import AtOnceError
from atonce.log.layout import TEMPORARY
from atonce.log.storage import File, Storage

_TRAILER = struct.Struct(">II")
_MAGIC = 0x41744F31  # "AtO1"


class DamagedFile(AtOnceError):
    """A file whose bytes do not match its own checksum."""


def write_sealed(storage: Storage, path: str, payload: bytes) -> None:
    """Replace the file by `payload`."""
    temporary = path + TEMPORARY
    storage.remove(temporary)
    write_unsynced(storage, temporary, payload).sync()
    storage.rename(temporary, path)


def write_unsynced(storage: Storage, path: str, payload: bytes) -> File:
    """A file that is not there yet."""
    file = storage.open(path, create=True)
    file.pwrite(0, [payload, _TRAILER.pack(crc32c.crc32c(payload), _MAGIC)])
    return file


def read_sealed(storage: Storage, path: str) -> bytes | None:
    """The payload, or None if there is no such file; DamagedFile if it is not what was written."""
    try:
        file = storage.open(path)
    except FileNotFoundError:
        return None
    data = file.pread(0, file.size())
    payload = data[: -_TRAILER.size]
    if len(data) < _TRAILER.size or _TRAILER.unpack(data[-_TRAILER.size :]) != (crc32c.crc32c(payload), _MAGIC):
        raise DamagedFile(f"{path}: its checksum does not match its {len(data)} bytes")
    return payload

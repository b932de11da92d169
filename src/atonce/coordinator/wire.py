"""Kafka's primitive types, read and written: what the records of the internal topics are made of."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import TypeVar
from uuid import UUID

from atonce.errors import CorruptLogError

T = TypeVar("T")


class Writer:
    """Builds one key or value. `flexible` chooses between Kafka's old and compact forms of strings and arrays."""

    def __init__(self, version: int, *, flexible: bool = False) -> None:
        self._out = bytearray(struct.pack(">h", version))
        self._flexible = flexible

    @classmethod
    def tag(cls) -> Writer:
        """A writer for the content of one tagged field: no version in front."""
        writer = cls(0, flexible=True)
        writer._out.clear()
        return writer

    def done(self) -> bytes:
        return bytes(self._out)

    def i8(self, value: int) -> Writer:
        self._out += struct.pack(">b", value)
        return self

    def i16(self, value: int) -> Writer:
        self._out += struct.pack(">h", value)
        return self

    def i32(self, value: int) -> Writer:
        self._out += struct.pack(">i", value)
        return self

    def i64(self, value: int) -> Writer:
        self._out += struct.pack(">q", value)
        return self

    def uuid(self, value: UUID) -> Writer:
        self._out += value.bytes
        return self

    def varint(self, value: int) -> Writer:
        """Unsigned, as lengths and tags are."""
        while value > 0x7F:
            self._out.append(value & 0x7F | 0x80)
            value >>= 7
        self._out.append(value)
        return self

    def string(self, value: str | None) -> Writer:
        encoded = None if value is None else value.encode()
        if self._flexible:
            self.varint(0 if encoded is None else len(encoded) + 1)
        else:
            self.i16(-1 if encoded is None else len(encoded))
        self._out += encoded or b""
        return self

    def blob(self, value: bytes | None) -> Writer:
        if self._flexible:
            self.varint(0 if value is None else len(value) + 1)
        else:
            self.i32(-1 if value is None else len(value))
        self._out += value or b""
        return self

    def array(self, values: Iterable[T] | None, write: Callable[[Writer, T], object]) -> Writer:
        items = None if values is None else list(values)
        if self._flexible:
            self.varint(0 if items is None else len(items) + 1)
        else:
            self.i32(-1 if items is None else len(items))
        for item in items or ():
            write(self, item)
        return self

    def tags(self, fields: dict[int, bytes] | None = None) -> Writer:
        self.varint(len(fields or {}))
        for number, content in sorted((fields or {}).items()):
            self.varint(number).varint(len(content))
            self._out += content
        return self


class Reader:
    """Reads what `Writer` wrote. A short or impossible value is damage, and is reported as such."""

    def __init__(self, data: bytes, *, flexible_from: int = 32767) -> None:
        self._data = data
        self._at = 0
        self._flexible = False
        self.version = self.i16()
        self._flexible = self.version >= flexible_from

    @classmethod
    def tag(cls, content: bytes) -> Reader:
        """A reader for the content of one tagged field."""
        return cls(b"\0\0" + content, flexible_from=0)

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise CorruptLogError(
                f"a record of an internal topic ends early: {size} bytes wanted at {self._at} of {len(self._data)}; "
                f"restore the data directory from a copy"
            )
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def i8(self) -> int:
        return int(struct.unpack(">b", self._take(1))[0])

    def i16(self) -> int:
        return int(struct.unpack(">h", self._take(2))[0])

    def i32(self) -> int:
        return int(struct.unpack(">i", self._take(4))[0])

    def i64(self) -> int:
        return int(struct.unpack(">q", self._take(8))[0])

    def uuid(self) -> UUID:
        return UUID(bytes=self._take(16))

    def varint(self) -> int:
        value = shift = 0
        while shift < 35:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise CorruptLogError(f"a length at byte {self._at} of an internal topic's record is longer than 5 bytes")

    def _length(self, read_old: Callable[[], int]) -> int:
        return self.varint() - 1 if self._flexible else read_old()

    def nullable_string(self) -> str | None:
        length = self._length(self.i16)
        return None if length < 0 else self._take(length).decode()

    def string(self) -> str:
        return self.nullable_string() or ""

    def blob(self) -> bytes:
        length = self._length(self.i32)
        return b"" if length < 0 else self._take(length)

    def array(self, read: Callable[[Reader], T]) -> list[T]:
        return [read(self) for _ in range(max(0, self._length(self.i32)))]

    def tags(self) -> dict[int, bytes]:
        return {self.varint(): self._take(self.varint()) for _ in range(self.varint())}

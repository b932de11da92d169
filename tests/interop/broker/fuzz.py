"""Requests that nobody should send, made from a seed: every API in every version, whole, bent, cut and lying.

Request number `n` of a seed is always the same bytes. A run sends them over several connections at once, which it opens
again when the broker closes them, and reads what comes back without believing it.

    python -m tests.interop.broker.fuzz HOST:PORT --seed 7 --first 0 --count 1000
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import datetime
import io
import random
import struct
import uuid
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, get_field_tag, is_optional

from atonce.broker.router import routes
from atonce.records.batch import HEADER_SIZE, assemble, read_header
from atonce.records.compression import Compression, compress
from atonce.records.record import build_batch

PRODUCE = 0
# Words that lead somewhere: without them every request would end at "unknown".
WORDS = (
    "fuzz-a",
    "fuzz-b",
    "fuzz-new",
    "__consumer_offsets",
    "__transaction_state",
    "range",
    "consumer",
    "SCRAM-SHA-256",
    "PLAIN",
    "retention.ms",
    "cleanup.policy",
    "compact",
    "1",
    "-1",
    "User:*",
    "*",
    "",
    "a" * 300,
    "æøå\U0001f600",
    "(((((a+)+)+)+)+)$",
    "../../etc",
    "\0",
)
NUMBERS = (0, 1, 2, 3, 7, -1, -2, -3, 127, 255, 4096, 65_536, 1_000_000)
EDGES = {
    "int8": (-128, 127),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint8": (0, 255),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
}
_PATIENCE_S = 0.1
_REQUESTS_PER_CONNECTION = 60


@cache
def everything() -> tuple[tuple[int, int], ...]:
    """(API key, version) of all that the broker advertises."""
    return tuple(
        (route.api_key, version)
        for route in routes().values()
        for version in range(route.min_version, route.max_version + 1)
    )


def request(seed: int, number: int) -> bytes:
    """The bytes of one request, its size in front; the size may be a lie."""
    rng = random.Random(f"{seed}:{number}")
    api_key, version = rng.choice(everything())
    head, body = _head(rng, api_key, version), _body(rng, api_key, version)
    frame = _BENT[rng.choices(range(len(_BENT)), _WEIGHTS)[0]](rng, bytearray(head + body))
    size = len(frame)
    if rng.random() < 0.01:
        size = rng.choice((size - 1, size + 1, 0, -1, 2**31 - 1, 200_000))
    return struct.pack(">i", size) + bytes(frame)


def _head(rng: random.Random, api_key: int, version: int) -> bytes:
    entity = load_request_schema(api_key, version)
    flexible = int(entity.__header_schema__.__version__) >= 2
    client = rng.choice(WORDS).encode()
    if rng.random() < 0.01:
        version = rng.choice((-1, 99, 32767))
    return (
        struct.pack(">hhih", api_key, version, rng.getrandbits(31), len(client)) + client + (b"\0" if flexible else b"")
    )


def _body(rng: random.Random, api_key: int, version: int) -> bytes:
    entity = load_request_schema(api_key, version)
    buffer = io.BytesIO()
    try:
        entity_writer(entity)(buffer, _value(entity, rng, 0))
    except Exception:  # a number that this version has no room for
        return rng.randbytes(rng.randrange(80))
    return buffer.getvalue()


def _value(entity: type, rng: random.Random, depth: int) -> object:
    values = {}
    for field in dataclasses.fields(entity):
        kind = classify_field(field)
        count = rng.choice((0, 1, 1, 1, 2, 3)) if depth < 3 else 0
        if rng.random() < 0.02:
            count *= 30
        if is_optional(field) and rng.random() < 0.2 and get_field_tag(field) is None:
            values[field.name] = None
        elif isinstance(kind, EntityTupleField):
            values[field.name] = tuple(_value(kind.type_, rng, depth + 1) for _ in range(count))
        elif isinstance(kind, EntityField):
            values[field.name] = _value(kind.type_, rng, depth + 1)
        elif kind.is_array:
            values[field.name] = tuple(_primitive(field.metadata["kafka_type"], rng) for _ in range(count))
        else:
            values[field.name] = _primitive(field.metadata["kafka_type"], rng)
    return entity(**values)


def _primitive(kind: str, rng: random.Random) -> Any:
    if kind == "string":
        return rng.choice(WORDS)
    if kind == "records":
        return records(rng)
    if kind == "bytes":
        return rng.randbytes(rng.choice((0, 1, 7, 40, 2000)))
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "uuid":
        return uuid.UUID(int=rng.choice((1, rng.getrandbits(128) | 1)))
    if kind == "float64":
        return rng.choice((0.0, -1.0, 1e308, float("nan"), float("inf")))
    if kind.startswith("timedelta"):
        # A waiting fetch or join is fair, but a run must come to its end.
        return datetime.timedelta(milliseconds=rng.choice((0, 1, 50, 500, -1)))
    if kind == "datetime_i64":
        return datetime.datetime.fromtimestamp(rng.randrange(2**31), datetime.UTC)
    if kind == "error_code":
        return ErrorCode(rng.randrange(10))
    low, high = EDGES[kind]
    number = rng.choice((*NUMBERS, low, high, rng.randrange(low, high)))
    return min(max(number, low), high)


def records(rng: random.Random) -> bytes:
    """A record batch, whole or with a right checksum over lies."""
    pairs = [
        (rng.choice((None, b"k")), rng.choice((None, b"v" * rng.randrange(60)))) for _ in range(rng.randrange(1, 5))
    ]
    batch = build_batch(pairs, timestamp_ms=rng.choice((0, 1_700_000_000_000, 2**62)))
    header, body = read_header(batch), bytearray(batch[HEADER_SIZE:])
    kind = rng.randrange(6)
    if kind == 0:
        return batch
    if kind == 1:
        count = rng.choice((0, -1, 2**31 - 1, header.record_count + 1))
        header = header._replace(record_count=count, last_offset_delta=count - 1 if count > -(2**31) else 0)
    elif kind == 2 and body:
        for _ in range(rng.randrange(1, 4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
    elif kind == 3:
        codec = rng.choice([c for c in Compression if c])
        bomb = b"\0" * rng.choice((100, 100_000, 3_000_000))
        body = bytearray(compress(codec, bomb))
        header = header._replace(attributes=int(codec))
    elif kind == 4:
        header = header._replace(
            attributes=rng.randrange(-(2**15), 2**15),
            producer_id=rng.choice((-1, 0, 5)),
            producer_epoch=rng.choice((-1, 0)),
        )
    return assemble(header, bytes(body))


# -- what is done to a whole request ---------------------------------------------------------------------------------


def _as_it_is(rng: random.Random, frame: bytearray) -> bytearray:
    return frame


def _bent(rng: random.Random, frame: bytearray) -> bytearray:
    for _ in range(rng.randrange(1, 6)):
        frame[rng.randrange(len(frame))] = rng.randrange(256)
    return frame


def _cut(rng: random.Random, frame: bytearray) -> bytearray:
    return frame[: rng.randrange(len(frame) + 1)]


def _lying(rng: random.Random, frame: bytearray) -> bytearray:
    """A length somewhere says more than there is."""
    lie = rng.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x7f\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0"))
    at = rng.randrange(8, max(9, len(frame)))
    frame[at : at + len(lie)] = lie
    return frame


def _longer(rng: random.Random, frame: bytearray) -> bytearray:
    return frame + rng.randbytes(rng.choice((1, 30, 3000)))


def _repeated(rng: random.Random, frame: bytearray) -> bytearray:
    at = rng.randrange(len(frame))
    end = rng.randrange(at, min(len(frame), at + 50) + 1)
    return frame[:end] + frame[at:end] * rng.randrange(1, 40) + frame[end:]


def _noise(rng: random.Random, frame: bytearray) -> bytearray:
    return bytearray(rng.randbytes(rng.randrange(10, 300)))


_BENT: Sequence[Callable[[random.Random, bytearray], bytearray]] = (
    _as_it_is, _bent, _cut, _lying, _longer, _repeated, _noise,
)  # fmt: skip
_WEIGHTS = (50, 14, 8, 12, 5, 8, 3)


# -- a run -----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(slots=True)
class Run:
    sent: int = 0
    answers: int = 0
    closed: int = 0


async def attack(servers: str, seed: int, first: int, count: int, *, connections: int = 16) -> Run:
    """Send the requests `first` to `first + count` of a seed."""
    run = Run()
    numbers = iter(range(first, first + count))
    await asyncio.gather(*(_client(servers, seed, numbers, run) for _ in range(connections)))
    return run


async def _client(servers: str, seed: int, numbers: Any, run: Run) -> None:
    host, _, port = servers.rpartition(":")
    for number in numbers:
        reader, writer = await asyncio.open_connection(host, int(port))
        answered = asyncio.Semaphore(0)
        reading = asyncio.create_task(_count_answers(reader, answered, run))
        try:
            await _send(writer, reading, answered, seed, number, numbers, run)
        except OSError:
            pass
        finally:
            run.closed += reading.done()
            reading.cancel()
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await reading


async def _send(
    writer: asyncio.StreamWriter,
    reading: asyncio.Task[None],
    answered: asyncio.Semaphore,
    seed: int,
    number: int,
    numbers: Any,
    run: Run,
) -> None:
    """One connection's share. It ends early when the broker closes it, which most of these requests deserve."""
    # The first request of a connection must be small; a plain ApiVersions makes room for the others.
    writer.write(struct.pack(">ihhih", 10, 18, 0, 1, -1))
    for _ in range(_REQUESTS_PER_CONNECTION):
        writer.write(request(seed, number))
        run.sent += 1
        await writer.drain()
        # Not every request has an answer, and some take their time: then the next one goes behind it.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await answered.acquire()
        if reading.done() or (number := next(numbers, -1)) < 0:
            break


async def _count_answers(reader: asyncio.StreamReader, answered: asyncio.Semaphore, run: Run) -> None:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        while True:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            await reader.readexactly(size)
            run.answers += 1
            answered.release()
    answered.release()


def main() -> None:
    parser = argparse.ArgumentParser(description="Send the requests of a seed to a broker.")
    parser.add_argument("servers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--connections", type=int, default=1)
    given = parser.parse_args()
    print(asyncio.run(attack(given.servers, given.seed, given.first, given.count, connections=given.connections)))


if __name__ == "__main__":
    main()

"""Room for answers is given in turn, and what is sent piece by piece is what was to be sent."""

from __future__ import annotations

import asyncio
import itertools
import random
from dataclasses import dataclass

import pytest

from atonce.broker.sending import LARGE_BYTES, SMALL_BYTES, ResponseRoom, Stored, pieces, read

MB = 1024 * 1024


@dataclass(frozen=True)
class Kept:
    data: bytes

    def __len__(self) -> int:
        return len(self.data)

    def part(self, start: int, length: int) -> Stored:
        return Kept(self.data[start : start + length])

    def read(self) -> bytes:
        return self.data


def test_pieces_are_the_whole_in_the_right_sizes() -> None:
    rng = random.Random(3)
    for _ in range(200):
        data = [rng.randbytes(rng.choice((0, 1, 5, 10, 11, 99))) for _ in range(rng.randrange(1, 6))]
        parts = [Kept(one) if rng.random() < 0.5 else one for one in data]
        cut = [b"".join(read(piece)) for piece in pieces(parts, lambda: 10)]
        assert b"".join(cut) == b"".join(data)
        assert all(len(piece) == 10 for piece in cut[:-1])


def test_a_piece_is_as_large_as_is_right_when_it_is_its_turn() -> None:
    sizes = iter((4, 1, 100))
    assert [b"".join(read(piece)) for piece in pieces([Kept(b"0123456789")], lambda: next(sizes))] == [
        b"0123",
        b"4",
        b"56789",
    ]


def test_records_that_are_not_there_any_more_are_noticed() -> None:
    @dataclass(frozen=True)
    class Shorter(Kept):
        def read(self) -> bytes:
            return self.data[1:]

    with pytest.raises(OSError, match="2 bytes where 3 were stored"):
        read([Shorter(b"abc")])


def test_room_is_given_in_turn_and_never_more_than_there_is() -> None:
    async def run() -> None:
        room = ResponseRoom(8 * MB)
        order: list[int] = []

        async def one(number: int) -> None:
            await room.reserve(3 * MB)
            order.append(number)
            assert room.held <= 8 * MB
            await asyncio.sleep(0)
            room.release(3 * MB)

        await asyncio.gather(*(one(number) for number in range(40)))
        assert order == list(range(40))
        assert room.held == 0

    asyncio.run(run())


def test_what_is_larger_than_the_room_goes_alone() -> None:
    async def run() -> None:
        room = ResponseRoom(4 * MB)
        await room.reserve(9 * MB)
        second = asyncio.ensure_future(room.reserve(1))
        await asyncio.sleep(0)
        assert not second.done()
        room.release(9 * MB)
        await second
        assert room.held == 1

    asyncio.run(run())


def test_pieces_become_small_when_half_of_the_room_is_gone() -> None:
    async def run() -> None:
        room = ResponseRoom(8 * MB)
        assert room.piece_bytes == LARGE_BYTES
        room.take(4 * MB)
        assert room.is_tight and room.piece_bytes == SMALL_BYTES
        room.release(4 * MB)
        assert room.piece_bytes == LARGE_BYTES

    asyncio.run(run())


def test_one_turn_of_the_loop_gives_so_much_and_then_others_come_first() -> None:
    async def run() -> None:
        room = ResponseRoom(1000 * MB)
        given = [asyncio.ensure_future(room.reserve(MB)) for _ in range(20)]
        loop = asyncio.get_running_loop()
        seen: list[int] = []
        done = loop.create_future()

        def somebody_else() -> None:
            seen.append(room.held // MB)
            if room.held < 20 * MB:
                loop.call_soon(somebody_else)
            else:
                done.set_result(None)

        loop.call_soon(somebody_else)
        await done
        await asyncio.gather(*given)
        assert all(later - earlier <= 8 for earlier, later in itertools.pairwise(seen)), seen

    asyncio.run(run())


def test_somebody_who_hangs_up_while_he_waits_leaves_nothing_behind() -> None:
    async def run() -> None:
        room = ResponseRoom(4 * MB)
        await room.reserve(4 * MB)
        gone, next_one = asyncio.ensure_future(room.reserve(MB)), asyncio.ensure_future(room.reserve(MB))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        room.release(4 * MB)
        await next_one
        assert room.held == MB
        room.take(3 * MB)
        granted = asyncio.ensure_future(room.reserve(MB))
        await asyncio.sleep(0)
        room.release(3 * MB)  # his turn has come, and he hangs up before he hears of it
        granted.cancel()
        with pytest.raises(asyncio.CancelledError):
            await granted
        assert room.held == MB

    asyncio.run(run())


def test_when_somebody_waits_for_room_those_who_do_not_read_are_asked_to_go() -> None:
    async def run() -> None:
        room = ResponseRoom(4 * MB)
        asked: asyncio.Queue[int] = asyncio.Queue()
        room.relieve = asked.put_nowait
        await room.reserve(4 * MB)
        waits = asyncio.ensure_future(room.reserve(2 * MB))
        assert await asked.get() == 2 * MB
        room.release(4 * MB)
        await waits
        room.take(5 * MB)
        assert await asked.get() == 3 * MB

    asyncio.run(run())

"""What of the JVM's standard error reaches the user."""

from __future__ import annotations

from collections.abc import Iterator

from atonce.spark.start.jvm_words import worth_telling

TRACE = [
    b"Traceback (most recent call last):\n",
    b'  File "/env/pyspark/daemon.py", line 264, in manager\n',
    b"    code = worker(sock, authenticated)\n",
]
BROKEN = b"BrokenPipeError: [Errno 32] Broken pipe\n"


def test_a_planner_that_finds_its_query_ended_is_not_told_of() -> None:
    assert list(worth_telling([b"before\n", *TRACE, BROKEN, b"after\n"])) == [b"before\n", b"after\n"]


def test_any_other_trace_is_passed_on_whole() -> None:
    memory = [*TRACE, b"MemoryError\n"]
    elsewhere = [TRACE[0], b'  File "/mine.py", line 1, in f\n', BROKEN]
    assert list(worth_telling(memory + elsewhere)) == memory + elsewhere


def test_a_trace_that_was_cut_off_is_passed_on() -> None:
    assert list(worth_telling(TRACE)) == TRACE


def test_a_line_is_passed_on_before_the_next_one_comes() -> None:
    seen: list[bytes] = []

    def lines() -> Iterator[bytes]:
        yield b"WARNING: Using incubator modules: jdk.incubator.vector\n"
        yield b"spark: ERROR something\n"
        assert seen == [b"spark: ERROR something\n"]

    for line in worth_telling(lines()):
        seen.append(line)
    assert len(seen) == 1

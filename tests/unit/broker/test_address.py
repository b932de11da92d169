"""One broker per data directory, and where it answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from atonce.broker.address import DataLock, find_running, is_loopback, parse_address, show_address, write_address
from atonce.errors import UsageError


def test_address_is_host_and_port() -> None:
    assert parse_address("127.0.0.1:0") == ("127.0.0.1", 0)
    assert parse_address("[::1]:9092") == ("::1", 9092)
    assert show_address("::1", 9092) == "[::1]:9092"
    for bad in ("9092", "host", ":9092", "host:x", "host:70000"):
        with pytest.raises(UsageError, match="expected HOST:PORT"):
            parse_address(bad)


def test_only_loopback_is_safe_without_a_password() -> None:
    assert is_loopback("127.0.0.1") and is_loopback("localhost")
    assert not is_loopback("0.0.0.0")


def test_second_lock_is_refused_and_names_process_and_address(scratch: Path) -> None:
    import os

    first = DataLock(scratch)
    write_address(scratch, "127.0.0.1", 9)
    with pytest.raises(UsageError, match=rf"already runs on this data directory \(process {os.getpid()}\), at 127"):
        DataLock(scratch)
    first.release()
    DataLock(scratch).release()


def test_address_left_behind_by_a_dead_broker_is_not_believed(scratch: Path) -> None:
    DataLock(scratch).release()
    write_address(scratch, "127.0.0.1", 9)
    assert find_running(scratch) is None
    assert find_running(scratch / "nowhere") is None

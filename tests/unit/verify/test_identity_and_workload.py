"""What tells outputs apart, and the input that is made from a seed."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from atonce.errors import UsageError
from atonce.verify.audit.identity import Out, identify
from atonce.verify.ground.workload import from_lines, generated
from atonce.verify.subject.command import _PLACE, PLACES, _filled
from atonce.verify.wire.batches import decode, encode


def record(value: bytes, key: bytes | None = b"k") -> Out:
    return Out(key, value, "t/0@0")


def test_whole_tells_by_key_and_value() -> None:
    tell = identify("whole")
    assert tell(record(b"a")) != tell(record(b"a", key=b"other"))


def test_a_json_path_tells_by_one_field() -> None:
    tell = identify("$.order.lines[1]")
    assert tell(record(b'{"order":{"lines":[1,"x"]}}')) == '"x"'
    assert tell(record(b"not json")) == "(no $.order.lines[1])"


def test_a_pattern_tells_by_its_first_group() -> None:
    assert identify(r"id=(\d+)")(record(b"a id=42 b")) == "42"


def test_a_broken_pattern_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(UsageError, match="neither whole, nor a JSON path"):
        identify("([")


def test_the_same_seed_gives_the_same_records() -> None:
    assert generated(5, 30, 3, 10) == generated(5, 30, 3, 10)
    assert generated(5, 30, 3, 10) != generated(6, 30, 3, 10)


def test_every_record_is_numbered_and_a_key_stays_in_one_partition() -> None:
    made = generated(1, 50, 2, 10).all
    assert [record.number for record in made] == list(range(60))
    assert len({record.value for record in made}) == 60
    places = {(record.key, record.partition) for record in made}
    assert len(places) == len({key for key, _ in places})


def test_lines_of_a_file_are_values_or_key_tab_value(tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.write_bytes(b"one\nk\ttwo\nthree\n")
    made = from_lines(path, 2, 1).all
    assert [(record.key, record.value) for record in made] == [(None, b"one"), (b"k", b"two"), (None, b"three")]


def test_too_few_lines_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.write_bytes(b"one\n")
    with pytest.raises(UsageError, match="gives 1 records"):
        from_lines(path, 2, 1)


def test_the_auditors_codec_reads_what_it_writes() -> None:
    batch = encode([(b"k", b"v"), (None, b"w")], 1000, producer_id=4, epoch=2, sequence=0, transactional=True)
    read = list(decode(3, batch))
    assert [(r.partition, r.offset, r.key, r.value) for r in read] == [(3, 0, b"k", b"v"), (3, 1, None, b"w")]
    assert all(r.producer_id == 4 and r.epoch == 2 and r.transactional for r in read)


def test_a_flipped_bit_is_never_read_as_data() -> None:
    from atonce.errors import CorruptLogError

    batch = bytearray(encode([(b"k", b"v")], 1000))
    batch[-1] ^= 1
    with pytest.raises(CorruptLogError, match="wrong checksum"):
        list(decode(0, bytes(batch)))


def test_what_is_filled_into_a_command_reaches_it_as_one_word() -> None:
    """A database's address holds `&` and `?`, which a shell would act on."""
    values = dict.fromkeys(PLACES, "postgresql://me@h/db?a=1&options=-csearch_path%3Ds")
    assert shlex.split(_PLACE.sub(lambda found: _filled(found, values), "app {url} x"))[1] == values["url"]
    assert (
        shlex.split(_PLACE.sub(lambda found: _filled(found, values), "app --db='{url}'"))[1] == f"--db={values['url']}"
    )
    assert shlex.split(_PLACE.sub(lambda found: _filled(found, values), 'app "{url}"'))[1] == values["url"]

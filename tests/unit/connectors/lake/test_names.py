"""Whose a data file is can be read from its name, for every name that a pipeline may have."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from atonce.connectors.lake.names import attempt, epoch_in

NAMES = st.text("ab-._ /é1", min_size=1, max_size=6)


@given(NAMES, NAMES, st.integers(1, 2**31))
def test_a_file_is_found_by_its_own_pipeline_and_by_no_other(name: str, other: str, epoch: int) -> None:
    file = f"{attempt(name, epoch, 7)}-0-3-12.parquet"
    assert epoch_in(file, name) == epoch
    assert name == other or epoch_in(file, other) is None
    assert file[0] not in "._" and "/" not in file


def test_files_of_others_are_nobodys() -> None:
    for file in ("part-00000-abc.snappy.parquet", "orders-1-2-abc-0-0-0.parquet", "orders.parquet"):
        assert epoch_in(file, "orders") is None

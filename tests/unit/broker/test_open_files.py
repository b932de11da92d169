"""Descriptors are shared out so that neither files nor connections can take them all."""

from __future__ import annotations

import pytest

from atonce.broker.open_files import OpenFiles


@pytest.mark.parametrize("limit", [256, 1024, 20_000, 1_048_576])
def test_files_and_connections_together_stay_below_the_limit(limit: int) -> None:
    shared = OpenFiles.shared_out(limit)
    assert shared.files >= 64 and shared.connections >= 8
    assert shared.files + shared.connections < limit

"""What a run's line says of a refusal."""

from __future__ import annotations

from atonce.verify.audit.judge import end_of


def test_words_that_are_too_long_begin_with_a_whole_word() -> None:
    assert end_of("short enough") == "short enough"
    assert end_of("one two three", most=9) == "… three"

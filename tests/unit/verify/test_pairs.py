"""Two faults in one run: which can be paired, what they may show together, and that the seed decides."""

from __future__ import annotations

import pytest

from atonce.errors import UsageError
from atonce.guarantee import Guarantee
from atonce.verify.faults.pairs import OF_ALL
from atonce.verify.faults.variants import VARIANTS
from atonce.verify.select import chosen, pairs_among


def test_a_pair_is_named_by_its_two_faults_and_can_be_asked_for_by_that_name() -> None:
    for name in ("F7/written-not-committed+F3/ack-lost", "F7/written-not-committed..F3/ack-lost"):
        (made,), asked = chosen(name)
        assert (made.title, asked) == (name, {"F7"})
        assert [each.title for each in made.of] == ["F7/written-not-committed", "F3/ack-lost"]
        assert made.slug == "F7-written-not-committed-F3-ack-lost", "a topic is named after it"


def test_a_pair_needs_what_both_need_and_may_show_what_either_may() -> None:
    (made,), _ = chosen("F6/committed-not-written+F3/ack-lost")
    (first,), _ = chosen("F6/committed-not-written")
    (second,), _ = chosen("F3/ack-lost")
    assert made.needs == first.needs | second.needs
    assert [made.fault.may_show(level) for level in Guarantee] == ["DL", "L", "D", "-"]


def test_only_a_fault_that_strikes_by_itself_can_be_the_second() -> None:
    with pytest.raises(UsageError, match=r"F7/written-not-committed does not; these do: .*F3/ack-lost"):
        chosen("F3/ack-lost+F7/written-not-committed")
    with pytest.raises(UsageError, match="a pair names two variants"):
        chosen("F7+F3")


def test_the_seed_decides_which_pairs_are_drawn_and_no_fault_is_paired_with_itself() -> None:
    drawn = [pair.title for pair in pairs_among(VARIANTS, "all", 30, 7)]
    assert drawn == [pair.title for pair in pairs_among(VARIANTS, "all", 30, 7)]
    assert drawn != [pair.title for pair in pairs_among(VARIANTS, "all", 30, 8)]
    assert len(set(drawn)) == 30
    for pair in pairs_among(VARIANTS, "all", 200, 7):
        first, second = pair.of
        assert first.fault is not second.fault and second.arm is not None


def test_all_faults_have_some_pairs_beside_them_and_a_default_run_has_none() -> None:
    assert len(pairs_among(VARIANTS, "all", None, 1)) == OF_ALL
    assert pairs_among(VARIANTS, "default", None, 1) == []
    assert len(pairs_among(VARIANTS, "default", 3, 1)) == 3


def test_the_second_of_a_pair_may_be_one_that_was_not_chosen_and_must_apply() -> None:
    chosen_, _ = chosen("F7/written-not-committed")
    drawn = pairs_among(chosen_, "F7/written-not-committed", 3, 1, lambda v: v.fault.name in ("F7", "F31"))
    assert {variant.of[1].fault.name for variant in drawn} == {"F31"}

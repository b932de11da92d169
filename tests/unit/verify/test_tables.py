"""The table of faults, the table of allowed anomalies and the list of scenarios agree with each other."""

from __future__ import annotations

import pytest

from atonce.errors import UsageError
from atonce.guarantee import Guarantee
from atonce.verify.checks.allowed import ALLOWED, BITES, Anomaly, allowed, strongest
from atonce.verify.faults.catalogue import FAULTS
from atonce.verify.faults.variants import VARIANTS
from atonce.verify.select import chosen


def test_each_fault_can_be_injected() -> None:
    assert list(FAULTS) == [f"F{number}" for number in range(1, 36)]
    assert {variant.fault.name for variant in VARIANTS} == set(FAULTS)


def test_variants_have_names_of_their_own() -> None:
    titles = [variant.title for variant in VARIANTS]
    assert len(titles) == len(set(titles))


def test_effectively_once_may_show_nothing_under_any_fault() -> None:
    assert {fault.may_show(Guarantee.EFFECTIVELY_ONCE) for fault in FAULTS.values()} == {"-", None}


def test_no_cell_allows_what_its_level_forbids() -> None:
    """A cell with D at most once, or L at least once, would contradict the level itself."""
    for fault in FAULTS.values():
        assert "D" not in (fault.may_show(Guarantee.AT_MOST_ONCE) or "")
        assert "L" not in (fault.may_show(Guarantee.AT_LEAST_ONCE) or "")


def test_a_level_that_must_show_something_may_show_it() -> None:
    for level, must in BITES.items():
        assert must <= ALLOWED[level]


def test_aborted_reads_and_hanging_transactions_are_allowed_nowhere() -> None:
    for level in Guarantee:
        assert not {Anomaly.ABORTED_READ, Anomaly.HANGING, Anomaly.STUCK, Anomaly.PRECOMMITTED_READ} & ALLOWED[level]


def test_a_retry_may_overtake_at_least_once_only_without_idempotence() -> None:
    """F17."""
    assert Anomaly.REORDERED in allowed(Guarantee.AT_LEAST_ONCE, idempotent=False)
    assert Anomaly.REORDERED not in allowed(Guarantee.AT_LEAST_ONCE, idempotent=True)
    assert Anomaly.REORDERED not in allowed(Guarantee.EFFECTIVELY_ONCE, idempotent=False)


@pytest.mark.parametrize(
    ("seen", "level"),
    [
        (set(), Guarantee.EFFECTIVELY_ONCE),
        ({Anomaly.DUPLICATE}, Guarantee.AT_LEAST_ONCE),
        ({Anomaly.LOST}, Guarantee.AT_MOST_ONCE),
        ({Anomaly.LOST, Anomaly.DUPLICATE}, Guarantee.NONE),
        ({Anomaly.ABORTED_READ}, None),
    ],
)
def test_the_strongest_level_is_read_off_what_was_seen(seen: set[Anomaly], level: Guarantee | None) -> None:
    assert strongest(seen) is level


def test_faults_are_chosen_by_number_or_by_variant() -> None:
    picked, asked = chosen("f3,F14/prepared")
    assert {variant.fault.name for variant in picked} == {"F3", "F14"}
    assert [variant.name for variant in picked if variant.fault.name == "F14"] == ["prepared"]
    assert asked == {"F3", "F14"}


def test_a_fault_that_does_not_exist_is_refused_with_a_hint() -> None:
    with pytest.raises(UsageError, match=r"no fault 'F36'.*--list"):
        chosen("F36")
    with pytest.raises(UsageError, match=r"F14 has no variant 'sideways'.*prepared"):
        chosen("F14/sideways")

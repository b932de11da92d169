"""The demo's picture and page say what was counted, and nothing else."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from atonce.demo.picture import page, svg
from atonce.demo.scenario import Result
from atonce.guarantee import Guarantee

LOST = {Guarantee.NONE: 400, Guarantee.AT_MOST_ONCE: 800}
TWICE = {Guarantee.NONE: 300, Guarantee.AT_LEAST_ONCE: 700}


def result(level: Guarantee, *, lost: int, duplicated: int, sent: int = 2_400) -> Result:
    delivered = sent - lost + duplicated
    return Result(
        guarantee=level, sent=sent, delivered=delivered, lost=lost, duplicated=duplicated, kills=2, seconds=9.0
    )


RESULTS = [result(level, lost=LOST.get(level, 0), duplicated=TWICE.get(level, 0)) for level in Guarantee]


def test_picture_is_xml_and_names_every_level_with_its_counts() -> None:
    drawn = svg(RESULTS)
    words = [element.text for element in ElementTree.fromstring(drawn).iter() if element.tag.endswith("text")]
    assert {level.value for level in Guarantee} <= set(words)
    assert {"400 lost · 300 twice", "800 lost", "700 twice", "✓ every record, once"} <= set(words)
    assert any(word and word.startswith("2,400 orders") and "SIGKILLed twice" in word for word in words)


def test_bars_are_as_long_as_their_counts() -> None:
    drawn = svg(RESULTS)
    once = [float(width) for width in re.findall(r'class="bar" x="176" y="\d+" width="([\d.]+)" height="28"', drawn)]
    assert len(once) == 4
    assert once[1] / once[3] == pytest.approx(1_600 / 2_400, abs=0.01)
    assert once[2] == once[3]


def test_picture_and_page_are_readable_on_dark_screens_too() -> None:
    assert "prefers-color-scheme: dark" in svg(RESULTS)
    assert page(RESULTS).count("prefers-color-scheme: dark") == 2


def test_page_tells_where_each_level_was_killed_and_where_the_promise_ends() -> None:
    text = page(RESULTS)
    assert text.count("killed while") == 8
    assert "read_committed" in text and "<td>1,600</td>" in text


@pytest.mark.parametrize(
    ("level", "lost", "duplicated", "expected"),
    [
        (Guarantee.NONE, 1, 1, True),
        (Guarantee.NONE, 1, 0, False),
        (Guarantee.AT_MOST_ONCE, 1, 0, True),
        (Guarantee.AT_MOST_ONCE, 1, 1, False),
        (Guarantee.AT_LEAST_ONCE, 0, 1, True),
        (Guarantee.AT_LEAST_ONCE, 1, 1, False),
        (Guarantee.EFFECTIVELY_ONCE, 0, 0, True),
        (Guarantee.EFFECTIVELY_ONCE, 0, 1, False),
        (Guarantee.EFFECTIVELY_ONCE, 1, 0, False),
    ],
)
def test_a_level_must_show_its_own_weakness_and_no_other(
    level: Guarantee, lost: int, duplicated: int, expected: bool
) -> None:
    """S24: a demo whose weak levels do not fail proves nothing."""
    assert result(level, lost=lost, duplicated=duplicated).as_promised is expected

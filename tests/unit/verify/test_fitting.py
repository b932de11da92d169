"""What a subject cannot take is left out by name, and what it can take is fed all the same."""

from __future__ import annotations

import pytest

from atonce.connectors.contract import Feature, Feed, Topic
from atonce.verify.ground.fitting import Unclean, fitted, possible

ALL = frozenset(Feature)


class Subject:
    """Fails whenever its input has one of these."""

    def __init__(self, *cannot: Feature, broken: bool = False) -> None:
        self.cannot, self.broken = set(cannot), broken
        self.runs: list[frozenset[Feature]] = []

    def run(self, features: frozenset[Feature]) -> str:
        self.runs.append(features)
        bad = sorted(self.cannot & features)
        return "it never works" if self.broken else f"Traceback\nValueError: {bad[0]}" if bad else ""


def test_a_subject_that_takes_everything_runs_once() -> None:
    subject = Subject()
    assert fitted(ALL, subject.run) == {}
    assert subject.runs == [ALL]


@pytest.mark.parametrize(
    "cannot",
    [
        {Feature.NULL_VALUE},
        {Feature.NULL_VALUE, Feature.EMPTY_VALUE, Feature.INVALID_UTF8},
        {Feature.NULL_KEY},
        {Feature.NULL_KEY, Feature.CODECS, Feature.INVALID_UTF8},
        set(Feature),
    ],
)
def test_exactly_what_it_cannot_take_is_left_out_and_its_words_are_kept(cannot: set[Feature]) -> None:
    subject = Subject(*cannot)
    left_out = fitted(ALL, subject.run)
    assert set(left_out) == cannot
    assert all("ValueError" in words for words in left_out.values())
    assert subject.runs[-1] == ALL - cannot, "the run that counts is the last one"


def test_a_subject_that_parses_json_is_known_after_a_few_runs() -> None:
    subject = Subject(Feature.NULL_VALUE, Feature.EMPTY_VALUE, Feature.INVALID_UTF8)
    fitted(ALL, subject.run)
    assert len(subject.runs) <= 8


def test_a_subject_that_does_not_work_at_all_is_told_with_its_plain_error() -> None:
    subject = Subject(broken=True)
    with pytest.raises(Unclean, match="it never works"):
        fitted(ALL, subject.run)
    assert len(subject.runs) == 3


class Lines(Feed):
    takes = frozenset({Feature.NON_ASCII})


def test_a_way_in_is_fed_what_it_can_carry_and_the_rest_is_named() -> None:
    features, why = possible(Lines(), generated=True, ours=True, endless=False)
    assert features == {Feature.NON_ASCII}
    assert set(why) == ALL - features


def test_one_topic_gets_everything_but_a_second_one() -> None:
    features, why = possible(Topic("in"), generated=True, ours=True, endless=False)
    assert {Feature.SECOND_TOPIC, Feature.NEW_TOPIC} <= set(why)
    assert {Feature.ABORTED, Feature.OPEN, Feature.NEW_PARTITION, Feature.NULL_VALUE} <= features


def test_a_pattern_gets_a_topic_that_appears_midway_and_a_list_has_it_from_the_start() -> None:
    pattern, _ = possible(Topic("in", beside=("b",), found_later=True), generated=True, ours=True, endless=False)
    several, _ = possible(Topic("in", beside=("b",)), generated=True, ours=True, endless=False)
    assert Feature.NEW_TOPIC in pattern and Feature.SECOND_TOPIC not in pattern
    assert Feature.SECOND_TOPIC in several and Feature.NEW_TOPIC not in several


def test_a_broker_of_the_users_gets_no_transactions_and_given_records_stay_as_they_are() -> None:
    features, why = possible(Topic("in"), generated=False, ours=False, endless=True)
    assert features == {Feature.CODECS}
    assert why[Feature.NULL_VALUE] == "the records are yours"
    assert "broker of yours" in why[Feature.ABORTED]

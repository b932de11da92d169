"""Which features a run's input can have: what its way in carries, what subject and broker allow. Nothing is left out
without its name and the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from atonce.connectors.contract import Feature, Feed, Topic
from atonce.errors import UsageError
from atonce.verify.ground.nasty import MAKE

OFTEN_REFUSED = (Feature.EMPTY_VALUE, Feature.NULL_VALUE, Feature.INVALID_UTF8)
"""What a subject that parses its input cannot take."""
_TRANSACTIONS = (Feature.ABORTED, Feature.OPEN)


class Unclean(UsageError):
    """A clean run did not come to its end: there is nothing to compare with."""


def possible(
    given: Feed | Topic, *, generated: bool, ours: bool, endless: bool
) -> tuple[frozenset[Feature], dict[Feature, str]]:
    """What can be fed, and why the rest cannot."""
    why: dict[Feature, str] = {}
    takes = frozenset(Feature) if isinstance(given, Topic) else given.takes
    for feature in Feature:
        if feature not in takes:
            why[feature] = "its way in has none"
        elif feature in MAKE and not generated:
            why[feature] = "the records are yours"
        elif feature in (*_TRANSACTIONS, Feature.NEW_PARTITION, Feature.GAPS) and not ours:
            why[feature] = "on a broker of yours verify only makes topics and appends"
        elif feature is Feature.NEW_PARTITION and endless:
            why[feature] = "a consumer looks for new partitions every few minutes, longer than a run lasts"
        elif isinstance(given, Topic) and feature is Feature.SECOND_TOPIC and (given.found_later or not given.beside):
            why[feature] = "" if given.found_later else "the subject reads one topic"
        elif isinstance(given, Topic) and feature is Feature.NEW_TOPIC and not (given.found_later and given.beside):
            why[feature] = "the subject names its topics"
        elif feature is Feature.GAPS:
            why[feature] = "they are in large runs on the embedded broker alone"
    return frozenset(Feature) - set(why), {feature: words for feature, words in why.items() if words}


def fitted(wanted: frozenset[Feature], attempt: Callable[[frozenset[Feature]], str]) -> dict[Feature, str]:
    """What of `wanted` the subject cannot take, and what it said; the last attempt was the one with all the others.

    `attempt` runs the subject with these features: empty when it came to its end, else its words.
    """
    attempt = _Attempts(attempt)
    if not attempt(wanted):
        return {}
    suspects = [feature for feature in OFTEN_REFUSED if feature in wanted]
    rest = wanted - set(suspects)
    left_out: dict[Feature, str] = {}
    if not suspects or attempt(rest):
        if plain := attempt(frozenset()):
            raise Unclean(plain)
        rest = frozenset()
        suspects = [feature for feature in Feature if feature in wanted]
    taken = _grown(rest, suspects, attempt, left_out)
    if attempt.last != taken and (words := attempt(taken)):
        raise Unclean(words)
    return left_out


class _Attempts:
    """No failure is tried twice."""

    def __init__(self, attempt: Callable[[frozenset[Feature]], str]) -> None:
        self._attempt = attempt
        self._failed: dict[frozenset[Feature], str] = {}
        self.last: frozenset[Feature] | None = None
        """With what it came to its end, if the last attempt did."""

    def __call__(self, features: frozenset[Feature]) -> str:
        if features in self._failed:
            return self._failed[features]
        words = self._attempt(features)
        if words:
            self._failed[features] = words
        self.last = None if words else features
        return words


def _grown(
    taken: frozenset[Feature],
    candidates: Sequence[Feature],
    attempt: Callable[[frozenset[Feature]], str],
    left_out: dict[Feature, str],
) -> frozenset[Feature]:
    """As many of the candidates as go together, found by halves."""
    if not candidates:
        return taken
    words = attempt(taken | set(candidates))
    if not words:
        return taken | set(candidates)
    if len(candidates) == 1:
        left_out[candidates[0]] = f"the clean run does not take them: {words.strip().splitlines()[-1][:200]}"
        return taken
    middle = len(candidates) // 2
    taken = _grown(taken, candidates[:middle], attempt, left_out)
    return _grown(taken, candidates[middle:], attempt, left_out)

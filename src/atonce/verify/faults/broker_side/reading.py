"""F31: answers that say less than was asked. The broker holds everything; only what it says is less, for a while."""

from __future__ import annotations

from atonce.verify.faults.registry import armed
from atonce.verify.scene import Scene
from atonce.verify.wire.decode import Facts, Request
from atonce.verify.wire.fabricate import empty_fetch, failed_fetch, in_remote_storage, throttled
from atonce.verify.wire.rules import Action, Rule

OFFSET_NOT_AVAILABLE = 78
SOME_ANSWERS = 3
THROTTLE_MS = 150


def _of_input(scene: Scene, change: object, times: int = SOME_ANSWERS) -> Rule:
    def reads_input(_: Request, facts: Facts) -> bool:
        return scene.names.input in facts.topics

    return scene.rule("fetch", action=Action.CHANGE, change=change, times=times, only_if=reads_input)


@armed("F31", "empty-answers", short=True, exact=True)
def empty_answers(scene: Scene) -> Rule:
    """Fetches below the last stable offset come back without records, a few times in a row."""
    return _of_input(scene, empty_fetch)


@armed("F31", "remote-storage", exact=True)
def remote_storage(scene: Scene) -> Rule:
    """What is wanted stands in remote storage, which is slow: the leader says so, and answers without records."""
    scene.rule("list_offsets", action=Action.CHANGE, change=in_remote_storage, times=1000, helps=True)
    return _of_input(scene, empty_fetch, times=8)


@armed("F31", "throttled", exact=True)
def throttled_answers(scene: Scene) -> Rule:
    """A quota is used up: answers without a single partition, and a time to wait."""
    return _of_input(scene, throttled(THROTTLE_MS))


@armed("F31", "offset-not-available", exact=True)
def not_available(scene: Scene) -> Rule:
    """A new leader does not know yet how far it may let readers go."""
    return _of_input(scene, failed_fetch(OFFSET_NOT_AVAILABLE), times=4)

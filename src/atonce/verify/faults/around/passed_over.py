"""F34: what a source could pass over without a word. It is read, or the pipeline stops and names it."""

from __future__ import annotations

from atonce.connectors.contract import NotFired, TouchesFiles
from atonce.delivery.events import Step
from atonce.verify.faults.around.running import while_it_stands
from atonce.verify.faults.registry import scenario
from atonce.verify.scene import Scene


def _files(scene: Scene) -> TouchesFiles:
    if not isinstance(scene.feed, TouchesFiles):
        raise NotFired("the source's files cannot be touched")
    return scene.feed


@scenario("F34", "rewritten-file", may_refuse=True)
def rewritten_file(scene: Scene) -> None:
    """A file that was read gets longer while the pipeline is down."""
    held = scene.hold_at(Step.DELIVERED, 1)
    scene.start()
    scene.strike(held)
    scene.kill()
    scene.notes.append(f"rewritten: {_files(scene).rewrite(scene.workload.tail)}")
    scene.tail_sent = True


@scenario("F34", "rewritten-while-running", may_refuse=True)
def rewritten_while_running(scene: Scene) -> None:
    """A file that was read gets longer under the running pipeline."""

    def rewrite() -> None:
        scene.notes.append(f"rewritten: {_files(scene).rewrite(scene.workload.tail)}")
        scene.tail_sent = True

    while_it_stands(scene, rewrite, nth=1)


@scenario("F34", "aged-file", exact=True, short=True)
def aged_file(scene: Scene) -> None:
    """A file arrives that is decades old, as an archive that is unpacked leaves it."""

    def arrive() -> None:
        _files(scene).give_aged(scene.workload.tail)
        scene.tail_sent = True

    while_it_stands(scene, arrive)


@scenario("F34", "hidden-file")
def hidden_file(scene: Scene) -> None:
    """A file appears under a name that Spark passes over: the pipeline must say so."""

    def hide() -> None:
        _files(scene).give_hidden(scene.workload.head[:1])
        scene.must_say = Step.PASSED_OVER

    while_it_stands(scene, hide, nth=1)

"""The black-box examples, each with its expected verdict: real programs, really killed (FAULTS F3, F6, F7, F16)."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from atonce.guarantee import Guarantee
from atonce.verify.checks.allowed import Anomaly
from atonce.verify.results import State, Verdict
from atonce.verify.session import Options, verify_command

EXAMPLES = Path(__file__).parents[3] / "examples" / "verify"


def command(example: str) -> str:
    words = f"{shlex.quote(sys.executable)} {shlex.quote(str(EXAMPLES / example))}"
    return f"{words} {{servers}} {{input}} {{output}} {{group}}"


def verified(example: str, level: Guarantee | None, faults: str, **more: object) -> Verdict:
    return verify_command(command(example), Options(faults=faults, seed=7, records=100, **more), expect=level)  # type: ignore[arg-type]


def told(verdict: Verdict) -> str:
    """For a failed assertion: every run, and the seed that replays it."""
    runs = "\n".join(f"{r.name}: {r.state.value}, {r.findings}, {r.why}, {r.notes}" for r in verdict.results)
    return f"seed {verdict.seed}\n{runs}"


@pytest.mark.timeout(280)
@pytest.mark.parametrize(
    ("example", "level", "faults", "shows"),
    [
        ("auto_commit.py", Guarantee.NONE, "F6,F7/written-not-committed", {Anomaly.LOST, Anomaly.DUPLICATE}),
        (
            "commit_before.py",
            Guarantee.AT_MOST_ONCE,
            "F4/cut-before-arrival,F6,F7/written-not-committed",
            {Anomaly.LOST},
        ),
        ("commit_after.py", Guarantee.AT_LEAST_ONCE, "F3/ack-lost,F6,F7/written-not-committed", {Anomaly.DUPLICATE}),
        ("transactional.py", Guarantee.EFFECTIVELY_ONCE, "F3/ack-lost,F6,F7/written-not-committed,F16,F25", set()),
    ],
)
def test_an_example_shows_what_its_level_may_show_and_nothing_else(
    example: str, level: Guarantee, faults: str, shows: set[Anomaly]
) -> None:
    verdict = verified(example, level, faults)
    assert verdict.exit_code(strict=True) == 0, told(verdict)
    assert verdict.found == shows, told(verdict)
    assert not verdict.never_fired, told(verdict)


@pytest.mark.timeout(120)
def test_a_command_that_promises_too_much_is_found_out() -> None:
    """The at-least-once example sold as effectively once: exit code 1, with the offending records."""
    verdict = verified("commit_after.py", Guarantee.EFFECTIVELY_ONCE, "F7/written-not-committed")
    assert verdict.exit_code() == 1, told(verdict)
    (broken,) = verdict.broken
    assert broken.count(Anomaly.DUPLICATE) > 0
    assert "@" in broken.findings[0].examples[0]


@pytest.mark.timeout(120)
def test_a_command_that_loses_records_without_any_fault_is_found_out(tmp_path: Path) -> None:
    """The measure is measured: its own clean run is held against the input."""
    lossy = tmp_path / "lossy.py"
    good = (EXAMPLES / "commit_after.py").read_text()
    lossy.write_text(good.replace("producer.produce(", 'b"7" in message.value()[:16] or producer.produce('))
    assert lossy.read_text() != good
    words = f"{shlex.quote(sys.executable)} {shlex.quote(str(lossy))} {{servers}} {{input}} {{output}} {{group}}"
    options = Options(faults="F7/written-not-committed", seed=7, records=60, one_to_one=True)
    verdict = verify_command(words, options, expect=Guarantee.AT_LEAST_ONCE)
    assert verdict.exit_code() == 1, told(verdict)
    assert verdict.results[0].count(Anomaly.LOST) > 0, told(verdict)
    assert "ao-000007" in verdict.results[0].findings[0].examples[0]


@pytest.mark.soak
@pytest.mark.timeout(120)
def test_without_a_promise_the_strongest_level_that_was_seen_is_reported() -> None:
    verdict = verified("commit_after.py", None, "F7/written-not-committed")
    assert verdict.observed is Guarantee.AT_LEAST_ONCE, told(verdict)
    assert verdict.exit_code() == 0


@pytest.mark.soak
@pytest.mark.timeout(120)
def test_a_fault_that_does_not_apply_is_not_called_passed() -> None:
    """F22 needs a database; the transactional example has none, so it must not count as kept."""
    verdict = verified("transactional.py", Guarantee.EFFECTIVELY_ONCE, "F22")
    assert {r.state for r in verdict.results if r.fault == "F22"} == {State.NOT_APPLICABLE}
    assert not [r for r in verdict.ran if r.fault == "F22"]


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("broker", ["embedded", "apache"])
def test_the_transactional_example_keeps_effectively_once_under_all_faults(broker: str) -> None:
    """F30 is left out: with auto.offset.reset=earliest a consumer goes on in silence, on any broker."""
    from atonce.verify.select import chosen

    faults = ",".join(v.title for v in chosen("all")[0] if v.fault.name != "F30")
    verdict = verified("transactional.py", Guarantee.EFFECTIVELY_ONCE, faults, broker=broker)
    assert not verdict.broken, told(verdict)


TO_A_FILE = """
import json, sys
from confluent_kafka import Consumer
servers, source, group, path = sys.argv[1:5]
consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest",
                     "enable.auto.commit": False, "session.timeout.ms": 6000})
consumer.subscribe([source])
while True:
    batch = [message for message in consumer.consume(20, timeout=0.3) if not message.error()]
    if batch:
        with open(path, "a") as file:
            for message in batch:
                row = {"id": json.loads(message.value())["id"], "offset": message.offset()}
                file.write(json.dumps(row) + "\\n")
        consumer.commit(asynchronous=False)
"""


@pytest.mark.timeout(280)
def test_an_output_that_only_its_own_command_can_read_is_audited_and_what_the_program_cannot_take_is_named(
    tmp_path: Path,
) -> None:
    """It parses JSON, so that nulls and what is no text end it: the clean run finds that out."""
    program = tmp_path / "to_a_file.py"
    program.write_text(TO_A_FILE)
    words = f"{shlex.quote(sys.executable)} {program} {{servers}} {{input}} {{group}} {tmp_path}/{{output}}"
    verdict = verify_command(
        words,
        Options(faults="F7/written-not-committed", seed=7, records=60),
        expect=Guarantee.AT_LEAST_ONCE,
        output_command=f"cat {tmp_path}/{{output}} 2>/dev/null || true",
    )
    assert verdict.exit_code(strict=True) == 0, told(verdict)
    assert verdict.found == {Anomaly.DUPLICATE}, told(verdict)
    refused = {name for name, why in verdict.not_fed.items() if "does not take" in why}
    assert refused == {"empty values", "null values (tombstones)", "bytes that are no UTF-8"}
    assert "null keys" in verdict.fed

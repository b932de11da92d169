"""Settling a Kafka sink: what was delivered becomes visible; what never began has nothing to wait for."""

from __future__ import annotations

from atonce.connectors.kafka.open import KafkaOpenSink


def test_sink_that_was_stopped_before_its_claim_has_nothing_to_settle() -> None:
    """A restart opens a sink anew; a stop may come while its claim still fails."""
    sink = KafkaOpenSink.__new__(KafkaOpenSink)
    sink._claiming = False
    sink.settle()

"""Every variant of every fault, found by importing the files that register them."""

from __future__ import annotations

from atonce.verify.faults.around import ledger, passed_over, publishing, running, sink
from atonce.verify.faults.broker_side import broker, killed, late, reading, transaction, wire
from atonce.verify.faults.process import engine, instances, kills
from atonce.verify.faults.registry import VARIANTS, Variant

__all__ = [
    "VARIANTS",
    "Variant",
    "broker",
    "engine",
    "instances",
    "killed",
    "kills",
    "late",
    "ledger",
    "passed_over",
    "publishing",
    "reading",
    "running",
    "sink",
    "transaction",
    "wire",
]

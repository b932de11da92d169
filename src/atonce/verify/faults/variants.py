"""Every variant of every fault, found by importing the files that register them."""

from __future__ import annotations

from atonce.verify.faults import broker, engine, instances, kills, ledger, publishing, sink, transaction, wire
from atonce.verify.faults.registry import VARIANTS, Variant

__all__ = [
    "VARIANTS",
    "Variant",
    "broker",
    "engine",
    "instances",
    "kills",
    "ledger",
    "publishing",
    "sink",
    "transaction",
    "wire",
]

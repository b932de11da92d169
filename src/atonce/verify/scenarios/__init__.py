"""How each fault is injected: one function per variant, registered under its fault's number."""

from __future__ import annotations

from atonce.verify.scenarios import broker, engine, instances, kills, ledger, publishing, sink, transaction, wire
from atonce.verify.scenarios.registry import VARIANTS, Variant

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

"""The broker's mutants by name; what each does stands in `broker_mutants.py`."""

from __future__ import annotations

from .catalogue import MUTANTS, Family, Mutant, On

BREAKS: dict[str, tuple[str, str]] = {
    "no-duplicate-detection": ("F3/ack-lost", "A batch that is sent again is appended again."),
    "no-epoch-fencing": ("F15/late-produce", "Whoever knows the producer id may write and end, whatever its epoch."),
    "last-stable-is-high-watermark": (
        "F25/aborted-data-in-the-log",
        "Readers of committed data are given what is still open.",
    ),
    "ack-before-append": ("F14/open", "Acknowledged from memory, written later: a kill in between takes it away."),
    "lost-marker": ("F3/commit-answer-lost", "One partition never gets the marker that ends its transaction."),
    "endtxn-without-epoch-check": ("F15/late-end", "A late EndTxn ends the transaction of a newer epoch."),
    "producers-forgotten-on-restart": (
        "F11/after-append-before-ack",
        "A broker that was killed does not know any more what it has appended for whom.",
    ),
    "empty-aborted-list": ("F25/aborted-data-in-the-log", "Readers are not told which transactions were aborted."),
}

for _name, (_fault, _breaks) in BREAKS.items():
    MUTANTS[_name] = Mutant(
        name=_name,
        family=Family.BROKER,
        breaks=_breaks,
        fault=_fault,
        on=On.COPIER,
        level="effectively-once",
        partitions=2,
    )

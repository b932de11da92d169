"""What a source or a sink of your own keeps to: the public door to the contract, whatever room it moves to.

`Source` and `Sink` are what a user writes down, `OpenSink` is what delivers; each method says what is asked of it.
`Progress` is what a ledger keeps; `to_text` and `from_text` write and read it with a version. What a system can do
besides is one of `abilities`: nobody has to have any.
"""

from __future__ import annotations

from atonce.delivery import abilities as abilities
from atonce.delivery.contract import Batch, Identity, OpenSink, Sink, Source
from atonce.delivery.events import Event, Observer
from atonce.delivery.format import from_text, to_text
from atonce.delivery.progress import Plan, Positions, Progress
from atonce.guarantee import Guarantee, SinkTraits, SourceTraits

__all__ = [
    "Batch",
    "Event",
    "Guarantee",
    "Identity",
    "Observer",
    "OpenSink",
    "Plan",
    "Positions",
    "Progress",
    "Sink",
    "SinkTraits",
    "Source",
    "SourceTraits",
    "abilities",
    "from_text",
    "to_text",
]

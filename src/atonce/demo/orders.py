"""The demo's input: a file of orders, one JSON object a line, each with a number of its own."""

from __future__ import annotations

import json
import random
from pathlib import Path

_ITEMS = ("kettle", "lamp", "notebook", "teapot", "umbrella")


def write_orders(folder: Path, count: int) -> Path:
    """Orders 0 to count-1. Written under another name first: Spark must not read half a file."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(7)
    lines = [
        json.dumps({"order": number, "item": chance.choice(_ITEMS), "cents": chance.randrange(100, 20_000)})
        for number in range(count)
    ]
    hidden, file = folder / ".orders.json", folder / "orders.json"
    hidden.write_text("\n".join(lines) + "\n")
    return hidden.rename(file)

"""One folder per system: what the user writes, its source, its sink, its ledger."""

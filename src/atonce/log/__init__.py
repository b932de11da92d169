"""One partition's durable log: segments, indexes, producer state, transaction index, recovery."""

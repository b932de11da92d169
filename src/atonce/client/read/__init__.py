"""Reading records: ranges of partitions, each to its end on positive proof."""

"""The cluster as Spark's driver and tasks see it: metadata, fetch, produce, transaction, offsets."""

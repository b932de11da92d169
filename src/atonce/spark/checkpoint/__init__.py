"""Spark's checkpoint: what is planned, as the delivery reads it."""

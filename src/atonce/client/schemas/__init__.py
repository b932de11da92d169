"""Kafka messages that kafka-python does not know yet, in its form: one JSON file each, after Kafka's own schemas."""

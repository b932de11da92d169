"""Fetches and runs Apache Kafka itself, one node or three, and a Spark standalone cluster."""

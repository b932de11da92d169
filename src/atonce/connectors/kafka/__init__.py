"""Kafka: topics as source and sink, and the ledger in a consumer group."""

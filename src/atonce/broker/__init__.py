"""The embedded broker in one process: server, router, and one handler file per Kafka API."""

"""Between client and broker: the verifier's own Kafka, its proxy and its history."""

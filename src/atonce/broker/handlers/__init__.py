"""One file per Kafka API. Each opens with its key, its versions and how it behaves."""

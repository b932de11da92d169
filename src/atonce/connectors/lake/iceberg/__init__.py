"""Apache Iceberg: the ledger is the summary of a snapshot that the pipeline's own tag names."""

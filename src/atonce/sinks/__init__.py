"""What a pipeline writes: Kafka, PostgreSQL, SQLite. One file each, one narrow contract."""

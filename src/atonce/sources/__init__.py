"""What a pipeline reads: Kafka, files, a SQL table. One file each, one narrow contract."""

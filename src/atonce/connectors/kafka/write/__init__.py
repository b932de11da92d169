"""Writing topics from Spark's tasks, in one transaction that the driver ends."""

"""Reading topics in Spark's tasks, as columns."""

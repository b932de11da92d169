"""Files that Spark's own file source reads, watched from outside."""

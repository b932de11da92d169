"""PostgreSQL as sink, and its tables as source."""

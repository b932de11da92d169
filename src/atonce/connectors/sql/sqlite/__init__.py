"""SQLite as sink, and its tables as source."""

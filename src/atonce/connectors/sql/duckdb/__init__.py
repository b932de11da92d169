"""DuckDB as sink."""

"""Delta Lake: what its tables are to a lake sink."""

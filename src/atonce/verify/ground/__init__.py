"""What a run stands on: its broker, the servers its parts asked for, and its input."""

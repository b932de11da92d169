"""The `atonce` command: one file per command."""

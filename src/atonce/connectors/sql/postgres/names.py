"""PostgreSQL's names of tables and columns, quoted."""

from __future__ import annotations


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def qualified(name: str) -> str:
    """`schema.table` or `table`, each part quoted."""
    return ".".join(quoted(part) for part in name.split(".", 1))


def beside(table: str, name: str) -> str:
    """A table of ours in the same schema as `table`."""
    schema, dot, _ = table.rpartition(".")
    return f"{quoted(schema)}.{quoted(name)}" if dot else quoted(name)

"""Tables of programs that are not pipelines, by their address: `--output-table URL#TABLE`."""

from __future__ import annotations

from atonce.connectors.contract import AuditsTables, EmptiedTable
from atonce.errors import UsageError
from atonce.plugins import plugins


def table_at(address: str) -> EmptiedTable:
    url, found, name = address.rpartition("#")
    if not found or not name:
        raise UsageError(f"--output-table {address!r} is not URL#TABLE, such as postgresql://host/db#orders")
    known = []
    for plugin in plugins("sink").values():
        sink = plugin.load()
        if isinstance(sink, AuditsTables):
            known.append(sink.address)
            if (table := sink.table_at(url, name)) is not None:
                return table
    raise UsageError(f"--output-table {address!r}: only tables at {' and '.join(known)} can be audited")

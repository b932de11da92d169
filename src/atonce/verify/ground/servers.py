"""The servers that a pipeline's source and sink asked for: started by verify, or the user's, if he agrees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from atonce.connectors.contract import NeedsServer, ScratchServer, ServerKind
from atonce.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """One for each side; the same one where both asked for the same kind."""

    source: ScratchServer | None = None
    sink: ScratchServer | None = None

    def fresh(self, run: str) -> None:
        if self.source is not None:
            self.source.fresh(run)
        if self.sink is not None and self.sink is not self.source:
            self.sink.fresh(run)


def servers_for(source: object, sink: object, started: Callable[[ServerKind], ScratchServer]) -> Servers:
    kinds = [part.scratch_server() if isinstance(part, NeedsServer) else None for part in (source, sink)]
    found = {kind: started(kind) for kind in dict.fromkeys(kinds) if kind is not None}
    of_source, of_sink = (None if kind is None else found[kind] for kind in kinds)
    return Servers(source=of_source, sink=of_sink)


def opened(kind: ServerKind, given: str | None, *, agreed: bool) -> ScratchServer:
    if given and not agreed:
        raise UsageError(
            "--database is a database of yours. Verify would make a scratch schema there and remove it again; it "
            "touches nothing else and never stops it. Next: add --allow-external to agree, or leave --database out to "
            "use one of verify's own."
        )
    return kind(given)

"""Services that speak Kafka's protocol with limits of their own, which no request of the protocol tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from atonce.errors import UsageError

PROPERTY = "broker.profile"
"""A client property of ours: names the service where its host name does not (a private address, a gateway)."""
_FRAME = 4_096
"""Of a request, what is not its record batch: header, names, transactional id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    name: str
    hosts: str = ""
    """How the names of its hosts end."""
    max_request_bytes: int = 1 << 30
    idle_ms: int | None = None
    """Connections are given up by us before the service cuts them."""
    needs: str = ""
    """The security.protocol without which it never answers."""

    @property
    def max_batch_bytes(self) -> int:
        return self.max_request_bytes - _FRAME


KAFKA = Profile(name="kafka")
EVENT_HUBS = Profile(
    name="event-hubs",
    hosts=".servicebus.windows.net",
    max_request_bytes=1_046_528,
    idle_ms=180_000,
    needs="SASL_SSL",
)
KNOWN = {profile.name: profile for profile in (KAFKA, EVENT_HUBS)}


def profile_of(servers: str, properties: Mapping[str, str]) -> Profile:
    named = properties.get(PROPERTY)
    if named is not None and named not in KNOWN:
        raise UsageError(f"{PROPERTY}={named!r} is not one of: {', '.join(KNOWN)}")
    hosts = [part.strip().rpartition(":")[0] for part in servers.split(",")]
    by_host = next((p for p in KNOWN.values() if p.hosts and any(h.endswith(p.hosts) for h in hosts)), KAFKA)
    found = KNOWN[named] if named is not None else by_host
    said = properties.get("security.protocol", "PLAINTEXT").upper()
    if found.needs and said != found.needs and found is by_host:
        raise UsageError(
            f"{servers} is {found.name}, which answers with security.protocol={found.needs} alone; got {said}. Next: "
            "security.protocol=SASL_SSL, sasl.mechanism=PLAIN, sasl.username=$ConnectionString and sasl.password=the "
            "connection string; or OAUTHBEARER."
        )
    return found

"""Free ports on loopback."""

from __future__ import annotations

import socket


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Distinct ports that were free a moment ago (held open together, so that none is given twice)."""
    held = [socket.create_server((host, 0)) for _ in range(count)]
    ports = [int(server.getsockname()[1]) for server in held]
    for server in held:
        server.close()
    return ports


def free_port() -> int:
    return free_ports(1)[0]

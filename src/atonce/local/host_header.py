"""Whether a request to a small web server of ours was meant for it.

A page in a browser on this machine can make any name point to 127.0.0.1 (DNS rebinding), but it cannot hide the name:
it stands in the Host header. A server that only this machine reaches answers to this machine's own names and to
addresses. One that others reach has names that we cannot know, and everybody who reaches it may read it anyway.
"""

from __future__ import annotations

import ipaddress
import socket


def is_meant_for_us(header: str | None, listening_on: str) -> bool:
    if not _is_loopback(listening_on):
        return True
    name = _name(header or "")
    return name == listening_on.lower() or name == socket.gethostname().lower() or _is_loopback(name)


def _name(header: str) -> str:
    """HOST, HOST:PORT or [HOST]:PORT without the port."""
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text if text.count(":") > 1 else text.partition(":")[0]


def _is_loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False

"""Who is at the other end of a connection, and whether that has been proven yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from atonce.broker.sasl import Login

ANONYMOUS = "User:ANONYMOUS"


@dataclass(slots=True)
class Peer:
    principal: str = ANONYMOUS
    login: Login | None = None  # what still has to be proven; None: nothing
    is_shaking_hands: bool = False  # TLS
    turned_away: bool = False  # told so, and closed as soon as the answer is out

    @property
    def is_stranger(self) -> bool:
        return self.login is not None or self.is_shaking_hands

    def enter(self, user: str) -> None:
        self.principal, self.login = f"User:{user}", None

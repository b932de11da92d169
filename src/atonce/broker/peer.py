"""Who is at the other end of a connection, and whether that has been proven yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from atonce.broker.acls import CLUSTER_NAME, Operation, Resource

if TYPE_CHECKING:
    from atonce.broker.acls import Acls
    from atonce.broker.sasl import Login

ANONYMOUS = "User:ANONYMOUS"


@dataclass(slots=True)
class Peer:
    acls: Acls | None = None  # None: there is no authorizer, and everything is allowed
    host: str = ""
    principal: str = ANONYMOUS
    login: Login | None = None  # what still has to be proven; None: nothing
    is_shaking_hands: bool = False  # TLS
    turned_away: bool = False  # told so, and closed as soon as the answer is out

    @property
    def is_stranger(self) -> bool:
        return self.login is not None or self.is_shaking_hands

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        return self.acls is None or self.acls.allows(self.principal, self.host, operation, resource, name)

    def may_in_cluster(self, operation: Operation) -> bool:
        return self.may(operation, Resource.CLUSTER, CLUSTER_NAME)

    def may_somewhere(self, operation: Operation, resource: Resource) -> bool:
        return self.acls is None or self.acls.allows_some(self.principal, self.host, operation, resource)

    def enter(self, user: str) -> None:
        self.principal, self.login = f"User:{user}", None

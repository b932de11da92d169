"""What ACLs allow, for every API in one place: a guard stands before each handler and knows what it must be asked.

A guard takes out of the request what is not allowed, lets the handler do the rest, and puts the refusals into its
answer; or it hides from the answer what may not be seen. Which operation on which resource is Kafka's choice (the
table of its security documentation). Produce and Fetch ask for themselves, as their answers are bytes.
"""

from __future__ import annotations

from atonce.broker.access import cluster, groups, topics, transactions
from atonce.broker.access.guard import Guard

GUARDS: dict[int, Guard] = {**topics.GUARDS, **groups.GUARDS, **transactions.GUARDS, **cluster.GUARDS}

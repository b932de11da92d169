"""ListTransactions: key 66, versions 0-2.

Filtered by state and producer id, from version 1 by how long they run, from 2 by a pattern of their ids.
"""

from __future__ import annotations

from typing import Any

from atonce.broker.context import Context
from atonce.broker.messages import ErrorCode
from atonce.coordinator.groups.patterns import BadPattern, compiled
from atonce.coordinator.groups.states import TransactionState

API_KEY = 66
MIN_VERSION = 0
MAX_VERSION = 2

_STATES = {state.label: state for state in TransactionState}


async def handle(broker: Any, context: Context, request: Any) -> Any:
    unknown = [name for name in request.state_filters if name not in _STATES]
    states = frozenset(_STATES[name] for name in request.state_filters if name in _STATES)
    pattern = request.transactional_id_pattern
    try:
        found_by = compiled(pattern) if pattern else None
    except BadPattern:
        return context.reply(error_code=ErrorCode.invalid_regular_expression)
    only_unknown = bool(unknown) and not states
    found = broker.coordination.transactions.list_transactions(
        broker.clock_ms(),
        producer_ids=frozenset(request.producer_id_filters),
        states=states,
        longer_than_ms=request.duration_filter,
        pattern=found_by,
    )
    return context.reply(
        error_code=ErrorCode.none,
        unknown_state_filters=unknown,
        transaction_states=[
            {
                "transactional_id": metadata.transactional_id,
                "producer_id": metadata.producer_id,
                "transaction_state": metadata.state.label,
            }
            for metadata in ([] if only_unknown else found)
        ],
    )

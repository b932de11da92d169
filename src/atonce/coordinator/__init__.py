"""Transactions, groups and offsets as plain state machines: decide, journal, apply.

A coordinator *decides* from its state and a request and returns a `Decision` (answer, records, effects). Only
`apply(record)` changes journaled state, and recovery is the same `apply` over the journal. Nothing here knows sockets,
event loops or clocks: time is a parameter, and timers are `next_deadline_ms()` plus `expire(now_ms)`.

The order every caller keeps (`atonce.broker.coordination` does, and so do the tests):

1. `decision = coordinator.something(now_ms, ...)`
2. append `decision.records` to the journal (nothing was written: answer COORDINATOR_NOT_AVAILABLE, stop here)
3. `coordinator.apply(record)` for each of them, with no other decision in between
4. wait until the journal is durable
5. start `decision.effects`, give `decision.answer`

Step 4 holds for answers without records too: an answer may tell of state that another request has just journaled.
"""

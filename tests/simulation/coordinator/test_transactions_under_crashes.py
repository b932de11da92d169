"""Atomicity through any interleaving and any crash: all of a transaction or nothing, and nothing left hanging.

S10, S12, F14, F15, F16, F19, F26. A failure prints the command that replays it.
"""

from __future__ import annotations

import os

import pytest
from kio.schema.errors import ErrorCode

from atonce.coordinator.groups.states import TransactionState
from tests.simulation.coordinator.actors import client
from tests.simulation.coordinator.world import INPUT, World

SEEDS = int(os.environ.get("ATONCE_SEEDS", "120"))
FIRST = int(os.environ.get("ATONCE_SEED", "0"))


def play(seed: int) -> World:
    world = World(seed)
    clients = {f"c{number}": world.random.choice([1, 2]) for number in range(world.random.randint(1, 3))}
    crashes = world.random.randint(0, 4)

    def launch(transactions: int) -> None:
        for name, version in clients.items():
            world.spawn(client(world, name, version, transactions))
            if world.random.random() < 0.3:  # F16: two instances under one name
                world.spawn(client(world, name, version, 2))

    for _ in range(crashes):
        launch(6)
        for _ in range(world.random.randint(1, 400)):
            if not world.tasks:
                break
            world.step()
            if world.random.random() < 0.01:
                world.now_ms += 5_001
                world.run_timers()
        world.crashes += 1
        world.restart()
    launch(6)
    world.drain()
    # After the faults: whoever is gone for good is timed out.
    world.now_ms += 60_000
    world.run_timers()
    world.drain()
    return world


def check(world: World) -> None:
    for metadata in world.transactions.list_transactions(world.now_ms):
        assert metadata.state not in (
            TransactionState.ONGOING,
            TransactionState.PREPARE_COMMIT,
            TransactionState.PREPARE_ABORT,
        ), f"{metadata.transactional_id} hangs in {metadata.state.label}"
    visible: set[str] = set()
    for partition, model in world.partitions.items():
        assert model.undecided() == [], f"hanging-txn in {partition}: the last stable offset is stuck"
        committed = [value for value in model.committed() if not value.startswith("late:")]
        assert len(committed) == len(set(committed)), f"duplicate in {partition}"
        visible |= set(committed)
    for transaction in world.history:
        seen = {value for value in transaction.values.values() if value in visible}
        if transaction.outcome == "committed":
            assert seen == set(transaction.values.values()), f"lost or torn: {transaction}, seen {seen}"
        elif transaction.outcome == "aborted":
            assert not seen, f"aborted-read: {transaction}"
        elif seen:
            # Its commit was decided and the answer lost; then all of it was produced, and all of it is there.
            assert seen == set(transaction.values.values()), f"torn-txn: {transaction}, seen {seen}"
    check_offsets(world, visible)


def check_offsets(world: World, visible: set[str]) -> None:
    """S12: the group's offset is that of the last transaction that committed one."""
    for name in {t.client for t in world.history}:
        committed = [
            t.offset
            for t in world.history
            if t.client == name and t.offset is not None and set(t.values.values()) <= visible and t.values
        ]
        answer = world.groups.fetch_offsets(name, [INPUT], require_stable=True).answer
        assert isinstance(answer, tuple)
        fetched = answer[1][INPUT]
        assert fetched.error is ErrorCode.none, "an offset that stays unstable"
        allowed = {max(committed, default=-1), 0}  # 0 is what late copies commit
        assert fetched.committed.offset in allowed, f"{name}: offset {fetched.committed.offset}, expected {allowed}"


@pytest.mark.parametrize("block", range(10))
def test_transactions_are_atomic_under_any_interleaving_and_crash(block: int) -> None:
    for seed in range(FIRST + block, FIRST + SEEDS, 10):
        try:
            check(play(seed))
        except BaseException:
            print(f"replay: ATONCE_SEED={seed} ATONCE_SEEDS=1 pytest {__file__} -k 'crash and [0]'")
            raise


def test_recovery_is_the_same_apply_over_the_journal() -> None:
    """What was decided live and what a restart reads back are the same state."""
    for seed in range(20):
        world = play(seed)
        transactions, _ = world.recovered()
        live = sorted(world.transactions.list_transactions(world.now_ms), key=lambda m: m.transactional_id)
        read = sorted(transactions.list_transactions(world.now_ms), key=lambda m: m.transactional_id)
        assert live == read
        assert live, "the world did nothing"


def test_the_worlds_really_commit_abort_and_crash() -> None:
    """The checks above would pass on a world in which nothing happens."""
    worlds = [play(seed) for seed in range(20)]
    outcomes = [t.outcome for world in worlds for t in world.history]
    assert min(outcomes.count(o) for o in ("committed", "aborted", "unknown")) > 50
    assert sum(world.crashes for world in worlds) > 10
    late = [e for w in worlds for m in w.partitions.values() for e in m.entries if (e.value or "").startswith("late:")]
    assert late, "no late request was ever accepted into an open transaction"

"""Clients of the simulated world: well-behaved transactional producers, and requests that the network brings twice."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from atonce.coordinator.decision import OFFSETS_PARTITION, ProducerIdAndEpoch, TopicPartition
from tests.simulation.coordinator.world import FENCED, OK, Task, Transaction, World

_WAIT = frozenset({ErrorCode.concurrent_transactions})


class Died(Exception):
    """This instance is fenced, or its transaction cannot go on; another one takes over."""


def client(world: World, name: str, version: int, transactions: int) -> Task:
    """Transactions one after another; whenever it cannot go on, it starts anew, as a restarted process would."""
    left = transactions
    while left > 0:
        try:
            producer = yield from _start(world, name)
            while left > 0:
                left -= 1
                producer = yield from _one(world, name, producer, version)
        except Died:
            yield


def _start(world: World, name: str) -> Task:
    while True:
        answer = yield from world.init(name)
        if answer.error is OK:
            return ProducerIdAndEpoch(answer.producer_id, answer.epoch)
        assert answer.error in _WAIT, answer
        yield


def _retried(ask: object) -> Task:
    """Ask again while the last transaction is still completing."""
    while True:
        answer = yield from ask()  # type: ignore[operator]
        error = getattr(answer, "error", answer)
        if error not in _WAIT:
            return answer
        yield


def _one(world: World, name: str, producer: ProducerIdAndEpoch, version: int) -> Task:
    serial = sum(t.client == name for t in world.history) + 1
    transaction = Transaction(name, serial)
    world.history.append(transaction)
    partitions = world.random.sample(sorted(world.partitions), world.random.randint(1, 3))
    with_offset = world.random.random() < 0.6
    if version < 2:
        added = [*partitions, OFFSETS_PARTITION] if with_offset else partitions
        _check((yield from _retried(lambda: world.add(name, producer, added, version))))
    for partition in partitions:
        value = f"{name}:{serial}:{partition.partition}"
        transaction.values[partition] = value
        _check((yield from _retried(lambda p=partition, v=value: world.produce(name, producer, p, v, version))))
        _maybe_late_produce(world, name, producer, partition, version)
    if with_offset:
        transaction.offset = serial
        _check((yield from _retried(lambda: world.commit_offset(name, producer, serial, version))))
    if world.random.random() < 0.1:
        world.now_ms += world.random.choice([1, 5_001])  # its time may be over
        world.run_timers()
    commit = world.random.random() < 0.7
    answer = yield from _retried(lambda: world.end(name, producer, commit, version))
    _check(answer.error)
    transaction.outcome = "committed" if commit else "aborted"
    # Under protocol v1 a late EndTxn can end the producer's next transaction, in Apache Kafka too: why there is a v2.
    if version >= 2 and world.random.random() < 0.3:
        world.spawn(_later(world, _late_end(world, name, producer, commit)))
    return producer if version < 2 else ProducerIdAndEpoch(answer.producer_id, answer.epoch)


def _check(error: ErrorCode) -> None:
    if error is OK:
        return
    # Fenced by a successor or by time; what happened to the transaction is the coordinator's to say.
    assert error in FENCED or error in (ErrorCode.invalid_txn_state, ErrorCode.transaction_abortable), error
    raise Died


def _maybe_late_produce(
    world: World, name: str, producer: ProducerIdAndEpoch, partition: TopicPartition, version: int
) -> None:
    """F15: a copy of a request that was held up somewhere. Whatever becomes of it, it may not hang."""
    if world.random.random() < 0.3:
        world.spawn(_later(world, world.produce(name, producer, partition, f"late:{name}", version)))
    if world.random.random() < 0.2:
        world.spawn(_later(world, world.commit_offset(name, producer, 0, version)))


def _later(world: World, task: Task) -> Task:
    """Held up on its way: whatever it belongs to may be long over when it arrives."""
    for _ in range(world.random.randint(0, 40)):
        yield
    yield from task


def _late_end(world: World, name: str, producer: ProducerIdAndEpoch, commit: bool) -> Task:
    """F15: EndTxn in the other direction, when everything is over. It must never change the outcome."""
    answer = yield from world.end(name, producer, not commit, 2)
    assert answer.error is not OK, f"{name}: an ended transaction ended the other way"

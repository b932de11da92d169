"""Crash states of a whole node: data, markers, transaction journal and offsets in four logs on one disk.

SPEC S9 to S11; FAULTS F11, F14, F16, F26. Before every storage operation the power is cut on copies (any subset of what
was not synced is lost), the node is started again, old producers are fenced, and transactions must be whole.
"""

from __future__ import annotations

import asyncio

import pytest

from atonce.broker.journal import PartitionJournal
from tests.simulation.log.crash_states import crash_images
from tests.simulation.log.forgetful import ForgetfulStorage
from tests.simulation.log.node import OUTPUTS, Ledger, Node, Transaction

IDS = ("first", "second")


async def transactions_of(node: Node, ledger: Ledger, transactional_id: str, outcomes: list[str], serial: int) -> None:
    """One client: transactions over both partitions and the group's offset, one after the other."""
    producer = await node.init_producer(transactional_id)
    for number, outcome in enumerate(outcomes):
        transaction = Transaction()
        ledger.transactions.append(transaction)
        for key in OUTPUTS:
            for index in range(2):
                value = b"%s-%d-%d-%d-%d" % (transactional_id.encode(), serial, number, key.partition, index)
                transaction.values[key] = transaction.values.get(key, b"") + value + b" "
                await node.produce(key, value, transactional_id, producer, index)
        if transactional_id == IDS[0]:
            transaction.offset = serial * 100 + number + 1
            await node.commit_offset(transactional_id, producer, transaction.offset)
        if outcome == "open":
            return
        transaction.asked = outcome
        producer = await node.end(transactional_id, producer, outcome == "commit")
        transaction.answered = True


async def plain_records(node: Node, ledger: Ledger) -> None:
    for index in range(4):
        value = b"plain-%d" % index
        offset = await node.produce_plain(OUTPUTS[index % 2], value)
        ledger.plain[value] = (OUTPUTS[index % 2], offset)


async def load(storage: ForgetfulStorage, ledger: Ledger) -> None:
    """Two clients at once, a clean restart in the middle, compacted journals, a transaction left open at the end."""
    node = Node(storage)
    await asyncio.gather(
        transactions_of(node, ledger, IDS[0], ["commit", "abort"], 1),
        transactions_of(node, ledger, IDS[1], ["commit", "open"], 1),
        plain_records(node, ledger),
    )
    assert node.compact_journals() >= 1
    await node.close()
    node = Node(storage)
    await transactions_of(node, ledger, IDS[0], ["commit", "open"], 2)
    for _ in range(2):
        assert node.compact_journals() >= 1


async def check(image: ForgetfulStorage, ledger: Ledger) -> None:
    node = Node(image)
    for transactional_id in IDS:
        await node.init_producer(transactional_id)  # fences, and ends what was left open
    for _ in range(1_000):
        if not node.coordination.transactions.unfinished():
            break
        await asyncio.sleep(0)
    visible = {key: set(node.committed(key)) for key in OUTPUTS}
    everything = {key: node.everything(key) for key in OUTPUTS}
    for key in OUTPUTS:
        log = node.partitions[key].log
        assert log.last_stable_offset == log.high_watermark, f"{key} stays behind an open transaction"
    for value, (key, offset) in ledger.plain.items():
        assert everything[key].get(value) == offset and value in visible[key], f"{value!r} was acknowledged"
    offsets = [-1]
    for transaction in ledger.transactions:
        shown = [value in visible[key] for key, values in transaction.values.items() for value in values.split()]
        if transaction.answered and transaction.asked == "commit":
            assert all(shown), f"committed and not there: {transaction}"
        elif transaction.asked != "commit":
            assert not any(shown), f"aborted or open, and visible: {transaction}"
        assert all(shown) or not any(shown), f"torn: {transaction}"
        if any(shown) and transaction.offset >= 0:
            offsets.append(transaction.offset)
    assert node.offset() == max(offsets), f"the group's offset is {node.offset()}, the output says {max(offsets)}"
    await node.close()


def every_crash_state(subsets: int) -> int:
    storage, ledger = ForgetfulStorage(), Ledger()
    cases: list[tuple[int, str, ForgetfulStorage, Ledger]] = []

    def before_step(operation: int) -> None:
        seen = ledger.copy()
        images = crash_images(storage, operation, subsets)
        if subsets == 1 and len(images) == 3:  # the short run takes one of the three in turn
            images = [images[operation % 3]]
        cases.extend((operation, name, image, seen) for name, image in images)

    storage.before_step = before_step
    asyncio.run(load(storage, ledger))
    before_step(storage.operations + 1)
    assert [t.asked for t in ledger.transactions].count("commit") == 3
    for operation, name, image, seen in cases:
        try:
            asyncio.run(check(image, seen))
        except Exception as error:
            what = storage.history[operation - 1] if operation <= storage.operations else "end"
            raise AssertionError(
                f"operation {operation} ({what}), subset {name}: {type(error).__name__}: {error}; "
                f"replay with ATONCE_CRASH_STATE={operation}:{name}"
            ) from error
    return storage.operations


def test_transactions_and_offsets_at_every_operation() -> None:
    """F14: prepared, half the markers, complete: what was decided happens, what was not is aborted, never torn."""
    assert every_crash_state(1) > 200


@pytest.mark.parametrize("broken", ["flush", "append"])
def test_the_checks_bite(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """A journal that is answered for before it is synced, or that is not written at all, is found out."""

    async def no_flush(self: PartitionJournal) -> None:
        return None

    def no_marker(self: PartitionJournal, *args: object, **kwargs: object) -> None:
        return None

    if broken == "flush":
        monkeypatch.setattr(PartitionJournal, "flush", no_flush)
    else:
        monkeypatch.setattr(PartitionJournal, "append_marker", no_marker)
    with pytest.raises(AssertionError, match="operation"):
        every_crash_state(1)


@pytest.mark.soak
def test_many_subsets_of_transactions_and_offsets() -> None:
    """The same with many more subsets."""
    every_crash_state(8)

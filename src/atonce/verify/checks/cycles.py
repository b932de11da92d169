"""Checks on transactions as a graph: who wrote before whom (ww), and who read what another wrote (wr).

A transaction is a producer id and an epoch: transaction protocol 2 gives each its own. Epochs that hold several are
left out, because their parts in different partitions cannot be matched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from atonce.verify.checks.allowed import Anomaly
from atonce.verify.checks.findings import Finding, found
from atonce.verify.wire.batches import COMMIT_MARKER, Record
from atonce.verify.wire.history import History


@dataclass(frozen=True, slots=True, order=True)
class Txn:
    producer: int
    epoch: int

    def __str__(self) -> str:
        return f"producer {self.producer} epoch {self.epoch}"


@dataclass(slots=True)
class _Graph:
    edges: dict[Txn, set[Txn]] = field(default_factory=dict)

    def add(self, before: Txn, after: Txn) -> None:
        if before != after:
            self.edges.setdefault(before, set()).add(after)
            self.edges.setdefault(after, set())

    def cycles(self) -> list[list[Txn]]:
        """The strongly connected components of more than one transaction (Tarjan, without recursion)."""
        index: dict[Txn, int] = {}
        low: dict[Txn, int] = {}
        held: list[Txn] = []
        out: list[list[Txn]] = []
        for root in self.edges:
            if root in index:
                continue
            index[root] = low[root] = len(index)
            held.append(root)
            work = [(root, iter(sorted(self.edges[root])))]
            while work:
                node, children = work[-1]
                child = next(children, None)
                if child is None:
                    work.pop()
                    if work:
                        low[work[-1][0]] = min(low[work[-1][0]], low[node])
                    if low[node] == index[node]:
                        at = held.index(node)
                        if len(held) - at > 1:
                            out.append(sorted(held[at:]))
                        del held[at:]
                elif child not in index:
                    index[child] = low[child] = len(index)
                    held.append(child)
                    work.append((child, iter(sorted(self.edges[child]))))
                elif child in held:
                    low[node] = min(low[node], index[child])
        return out


def writers(log: Sequence[Record]) -> dict[tuple[int, int], Txn]:
    """(partition, offset) → the transaction that wrote it, of those that committed."""
    out: dict[tuple[int, int], Txn] = {}
    pending: dict[tuple[int, int], list[Record]] = {}
    ended: set[tuple[int, Txn]] = set()
    several: set[Txn] = set()
    for record in sorted(log, key=lambda one: (one.partition, one.offset)):
        mine = (record.partition, record.producer_id)
        if record.control:
            held = pending.pop(mine, [])
            if record.marker == COMMIT_MARKER:
                out.update({(one.partition, one.offset): Txn(one.producer_id, one.epoch) for one in held})
            for txn in {Txn(one.producer_id, one.epoch) for one in held}:
                if (record.partition, txn) in ended:
                    several.add(txn)
                ended.add((record.partition, txn))
        elif record.transactional:
            pending.setdefault(mine, []).append(record)
    return {where: txn for where, txn in out.items() if txn not in several}


def write_cycles(topic: str, log: Sequence[Record]) -> list[Finding]:
    """G0: two transactions stand in one order here and in the other there. Legal in Kafka's model."""
    graph = _Graph()
    wrote = writers(log)
    last: dict[int, Txn] = {}
    for (partition, _), txn in sorted(wrote.items()):
        if partition in last:
            graph.add(last[partition], txn)
        last[partition] = txn
    return found(Anomaly.G0, (f"{topic}: {_told(cycle)} wrote around each other" for cycle in graph.cycles()))


def information_cycles(topic: str, log: Sequence[Record], history: History) -> list[Finding]:
    """G1c: transactions that each read what the other wrote. Their reads are the offsets that they committed."""
    graph = _Graph()
    wrote = writers(log)
    for reader, partition, first, end in _reads(topic, history):
        for offset in range(first, end):
            writer = wrote.get((partition, offset))
            if writer is not None:
                graph.add(writer, reader)
    return found(Anomaly.G1C, (f"{topic}: {_told(cycle)} read each other's writes" for cycle in graph.cycles()))


def _reads(topic: str, history: History) -> list[tuple[Txn, int, int, int]]:
    """(transaction, partition, first, end) of what it took from `topic`, by the offsets that it committed."""
    committed = _committed(history)
    at: dict[tuple[str | None, int], int] = {}
    out = []
    for entry in history.of("txn_offset_commit"):
        facts = entry.facts
        if not entry.acknowledged or facts.producer_id is None or facts.epoch is None:
            continue
        txn = Txn(facts.producer_id, facts.epoch)
        for name, partition, offset in facts.offsets:
            if name == topic and txn in committed:
                place = (facts.group, partition)
                out.append((txn, partition, at.get(place, 0), offset))
                at[place] = max(at.get(place, 0), offset)
    return out


def _committed(history: History) -> set[Txn]:
    """Epochs whose one end was a commit that was acknowledged."""
    ends: dict[Txn, list[bool]] = {}
    for entry in history.of("end_txn"):
        facts = entry.facts
        if entry.acknowledged and facts.producer_id is not None and facts.epoch is not None:
            ends.setdefault(Txn(facts.producer_id, facts.epoch), []).append(bool(facts.committed))
    return {txn for txn, kinds in ends.items() if kinds == [True]}


def _told(cycle: Sequence[Txn]) -> str:
    return ", ".join(str(txn) for txn in cycle[:4]) + (" …" if len(cycle) > 4 else "")

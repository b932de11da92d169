"""The way after an abortable error, answer by answer: the embedded broker moves ids and epochs as Apache Kafka does.

Every request that a producer may send is sent to a transaction in every state, with the epoch before, the current one,
the one after, and the id of somebody else; then the producer recovers (InitProducerId with its id and epoch) and goes
on. Kept of each answer: the error, and how far id and epoch moved from where they began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.serial.errors import OutOfBoundValue

from tests.interop.coordinator_calls import Calls, Producer, eventually, fresh

ENDING = frozenset({"PrepareCommit", "PrepareAbort"})
# So many partitions that the markers are still being written when the next request is decided.
MANY = 40
OTHERS_ID = 1_000_000


class Path:
    """One transactional id on one broker, and what it was answered, in words that are the same on every broker."""

    def __init__(self, calls: Calls, topic: str, group: str, timeout_ms: int = 60_000) -> None:
        self.calls, self.topic, self.group, self.timeout_ms = calls, topic, group, timeout_ms
        self.id = fresh("txn")
        self.began = self.producer = calls.start_producer(self.id)
        self.answers: list[str] = []
        self.send("InitProducerId 5", self.producer)  # so that there is an epoch before

    def note(self, what: str, error: ErrorCode, moved_to: Producer | None = None) -> None:
        place = ""
        if moved_to is not None and moved_to.producer_id != -1:
            same = "id" if moved_to.producer_id == self.began.producer_id else "new id"
            place = f" {same} epoch{moved_to.epoch - self.began.epoch:+d}"
        self.answers.append(f"{what}: {error.name}{place}")

    def settle(self) -> None:
        """Until the markers are written; then where it stands."""
        try:
            found = eventually(
                lambda: self.calls.transaction_state(self.id), lambda state: state.transaction_state not in ENDING
            )
        except OutOfBoundValue:
            # kio reads no time before 1970, and Kafka says -1 where no transaction has begun.
            self.answers.append("no transaction")
            return
        self.note(found.transaction_state, found.error_code, Producer(found.producer_id, found.producer_epoch))

    # -- what a producer sends ----------------------------------------------------------------------------------

    def fields(self, producer: Producer) -> dict[str, Any]:
        producer_id, epoch = producer
        return {"transactional_id": self.id, "producer_id": producer_id, "producer_epoch": epoch}

    def request(self, what: str, producer: Producer) -> tuple[int, int, dict[str, Any]]:
        fields = self.fields(producer)
        match what.split():
            case ["EndTxn", version, way]:
                return 26, int(version), fields | {"committed": way == "commit"}
            case ["InitProducerId", version]:
                return 22, int(version), fields | {"transaction_timeout": self.timeout_ms}
            case ["AddOffsetsToTxn", version]:
                return 25, int(version), fields | {"group_id": self.group}
            case ["AddPartitionsToTxn", version]:
                topics = [{"name": self.topic, "partitions": [0]}]
                if int(version) >= 4:
                    return 24, int(version), {"transactions": [fields | {"verify_only": False, "topics": topics}]}
                older = {f"v3_and_below_{name}": value for name, value in fields.items()}
                return 24, int(version), older | {"v3_and_below_topics": topics}
        raise AssertionError(what)

    def begin(self, what: str, producer: Producer) -> tuple[int, int, int]:
        """Without waiting for the answer."""
        api_key, version, fields = self.request(what, producer)
        return self.calls.send(api_key, version, **fields)

    def add(self, partitions: int) -> None:
        """So many of its topic, to the transaction."""
        fields = {f"v3_and_below_{name}": value for name, value in self.fields(self.producer).items()}
        topics = [{"name": self.topic, "partitions": list(range(partitions))}]
        self.answer("AddPartitionsToTxn 3", self.calls.call(24, 3, **fields, v3_and_below_topics=topics))

    def send(self, what: str, producer: Producer) -> None:
        match what.split():
            case ["Produce", version]:
                error = self.calls.produce(self.id, producer, self.topic, sequence=0, version=int(version))
                self.note(what, error)
            case ["TxnOffsetCommit", version]:
                error = self.calls.commit_offset_in_transaction(
                    self.id, producer, self.group, self.topic, 7, version=int(version)
                )
                self.note(what, error)
            case _:
                api_key, version, fields = self.request(what, producer)
                self.answer(what, self.calls.call(api_key, version, **fields))

    def answer(self, what: str, answer: Any) -> ErrorCode:
        """Noted; a producer that was given an id and an epoch uses them from now on."""
        match what.split():
            case ["EndTxn", "5", _] | ["InitProducerId", _]:
                moved_to = Producer(answer.producer_id, answer.producer_epoch)
                self.note(what, answer.error_code, moved_to)
                if answer.error_code is ErrorCode.none:
                    self.producer = moved_to
                error = answer.error_code
            case ["AddPartitionsToTxn", "3"]:
                error = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
                self.note(what, error)
            case ["AddPartitionsToTxn", _]:
                results = answer.results_by_transaction[0].topic_results
                error = results[0].results_by_partition[0].partition_error_code
                self.note(what, error)
            case _:
                error = answer.error_code
                self.note(what, error)
        found: ErrorCode = error
        return found

    def recover(self) -> None:
        """As a producer does after an abortable error; what it then does has to work, and to be told once more."""
        self.send("InitProducerId 5", self.producer)
        self.settle()
        self.send("InitProducerId 5", self.producer)
        self.send("Produce 12", self.producer)
        before = self.producer
        for way in ("commit", "abort"):
            self.send(f"EndTxn 5 {way}", before)
            self.settle()
        self.send("EndTxn 5 commit", before)


def begin(path: Path, version: int) -> None:
    if version == 1:
        path.send("AddPartitionsToTxn 3", path.producer)
        path.send("Produce 11", path.producer)
    else:
        path.send("Produce 12", path.producer)


def ended(version: int, way: str) -> Callable[[Path], None]:
    def reach(path: Path) -> None:
        begin(path, version)
        path.send(f"EndTxn {5 if version == 2 else 4} {way}", path.producer)
        path.settle()

    return reach


def fenced(path: Path) -> None:
    """By another instance, which was told to ask again and did not."""
    begin(path, 2)
    path.send("InitProducerId 5", Producer(-1, -1))
    path.settle()


def replaced(path: Path) -> None:
    """By another instance, which has the id now. The old one goes on with what it knows."""
    own = path.producer
    fenced(path)
    path.send("InitProducerId 5", Producer(-1, -1))
    path.producer = own


STATES: dict[str, Callable[[Path], None]] = {
    "empty": lambda path: None,
    "ongoing under protocol 1": lambda path: begin(path, 1),
    "ongoing under protocol 2": lambda path: begin(path, 2),
    "committed under protocol 1": ended(1, "commit"),
    "committed under protocol 2": ended(2, "commit"),
    "aborted under protocol 1": ended(1, "abort"),
    "aborted under protocol 2": ended(2, "abort"),
    "fenced": fenced,
    "replaced": replaced,
    "timed out": lambda path: begin(path, 2),
}
WHO = {
    "the epoch before": lambda own: Producer(own.producer_id, own.epoch - 1),
    "the current epoch": lambda own: own,
    "the next epoch": lambda own: Producer(own.producer_id, own.epoch + 1),
    "another id": lambda own: Producer(own.producer_id + OTHERS_ID, own.epoch),
}
REQUESTS = [
    "InitProducerId 3",
    "InitProducerId 5",
    "AddPartitionsToTxn 3",
    "AddPartitionsToTxn 5",
    "AddOffsetsToTxn 3",
    "TxnOffsetCommit 3",
    "TxnOffsetCommit 5",
    "Produce 11",
    "Produce 12",
    "EndTxn 4 commit",
    "EndTxn 4 abort",
    "EndTxn 5 commit",
    "EndTxn 5 abort",
]


@pytest.fixture(params=[("embedded", "apache_kafka"), ("embedded_v1", "kafka_4_3_v1")], ids=["v2", "v1"])
def brokers(request: pytest.FixtureRequest) -> Iterator[list[Calls]]:
    """Both answer by the version of a request, whatever their feature `transaction.version` says."""
    ours, theirs = (request.getfixturevalue(name) for name in request.param)
    with Calls(ours) as embedded, Calls(theirs) as kafka:
        yield [embedded, kafka]


def played(calls: Calls, state: str, steps: list[tuple[str, str]]) -> dict[str, list[str]]:
    topic, group = calls.topic(), fresh("group")
    calls.coordinator(group, 0)
    is_short = state == "timed out"
    heard = {}
    paths = [(what, who, Path(calls, topic, group, 200 if is_short else 60_000)) for what, who in steps]
    for _, _, path in paths:
        STATES[state](path)
    for what, who, path in paths:
        if is_short:
            calls.wait_for_state(path.id, "CompleteAbort", timeout_s=40)
            path.timeout_ms = 60_000
        path.send(what, WHO[who](path.producer))
        path.settle()
        path.recover()
        heard[f"{state}, {what} with {who}"] = path.answers
    return heard


def same(brokers: list[Calls], state: str, steps: list[tuple[str, str]]) -> None:
    ours, theirs = (played(calls, state, steps) for calls in brokers)
    assert len(ours) == len(steps), "a step is named twice"
    assert differences(ours, theirs) == []


@pytest.mark.parametrize("state", STATES)
def test_recovery_from_every_state_is_answered_as_by_apache_kafka(brokers: list[Calls], state: str) -> None:
    steps = {(what, "the current epoch"): None for what in REQUESTS} | {("InitProducerId 5", who): None for who in WHO}
    same(brokers, state, list(steps))


@pytest.mark.soak
@pytest.mark.parametrize("state", STATES)
def test_recovery_after_a_request_of_anybody_is_answered_as_by_apache_kafka(brokers: list[Calls], state: str) -> None:
    same(brokers, state, [(what, who) for what in REQUESTS for who in WHO])


IN_FLIGHT = [what for what in REQUESTS if what.split()[0] not in ("Produce", "TxnOffsetCommit")]


@pytest.mark.parametrize("way", ["commit", pytest.param("abort", marks=pytest.mark.soak)])
@pytest.mark.parametrize("version", [4, 5])
def test_request_that_comes_while_a_transaction_ends_is_answered_as_by_apache_kafka(
    brokers: list[Calls], version: int, way: str
) -> None:
    """Sent right behind EndTxn: decided while the markers are written, CONCURRENT_TRANSACTIONS, or when they are."""
    ours, theirs = (in_flight(calls, f"EndTxn {version} {way}") for calls in brokers)
    busy = {f"{what}: concurrent_transactions" for what in IN_FLIGHT}
    assert ours - busy <= theirs
    assert len(theirs) > len(IN_FLIGHT)  # each once the markers are there, and some before


def in_flight(calls: Calls, end: str) -> set[str]:
    """Every answer that was heard: while the markers are written, and once they are."""
    heard = set()
    topic = calls.topic(MANY)
    for what in IN_FLIGHT:
        for waits in (False, False, True):
            path = Path(calls, topic, "a group")
            own = path.producer
            path.add(MANY)
            ending = path.begin(end, own)
            if waits:
                path.answer(end, calls.receive(ending))
                path.settle()
            asked = path.begin(what, own)
            if not waits:
                path.answer(end, calls.receive(ending))
            path.answer(what, calls.receive(asked))
            heard.add(path.answers[-1])
            path.settle()
    return heard


def differences(ours: dict[str, list[str]], theirs: dict[str, list[str]]) -> list[str]:
    return [
        f"{what}\n    embedded {ours[what]}\n    apache   {theirs[what]}" for what in ours if ours[what] != theirs[what]
    ]

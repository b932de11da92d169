"""Reading wrongly: ranges, gaps, isolation, new partitions, another log."""

from __future__ import annotations

from typing import Any

from .catalogue import CLEAN, Family, On, mutant

LARGE = 2_000
"""Rows: more than a small workload gives one range."""


@mutant(
    Family.READING,
    "What one fetch gave loses its last row when it is large.",
    fault=CLEAN,
    at="atonce.client.read.fetch",
)
def large_fetch_loses_its_last_row(fetch: Any) -> None:
    real = fetch._decoded

    def decoded(*words: Any) -> Any:
        for batch in real(*words):
            yield batch.slice(0, batch.num_rows - 1) if batch.num_rows > LARGE else batch

    fetch._decoded = decoded


@mutant(
    Family.READING,
    "A range is cut into tasks that leave out the offset between two of them.",
    fault=CLEAN,
    at="atonce.connectors.kafka.read.ranges",
    on=On.ROWS,
)
def cut_ranges_do_not_meet(ranges: Any) -> None:
    real = ranges.cut

    def cut(parts: Any, **words: Any) -> Any:
        pieces = real(parts, **words)
        whole = {(part.tp, part.start) for part in parts}
        return [
            piece
            if (piece.tp, piece.start) in whole or piece.size < 2
            else ranges.Range(piece.tp, piece.start + 1, piece.end)
            for piece in pieces
        ]

    ranges.cut = cut


@mutant(
    Family.READING,
    "A plan ends one offset before the end of a partition, for good.",
    fault=CLEAN,
    at="atonce.connectors.kafka.read.watch",
)
def last_offset_is_never_planned(watch: Any) -> None:
    real = watch.Watch.latest

    def latest(self: Any, *words: Any) -> Any:
        found = real(self, *words)
        self.last = {place: max(0, at - 1) for place, at in found.items()}
        return self.last

    watch.Watch.latest = latest


@mutant(
    Family.READING,
    "Offsets without a record (compacted away, or a marker) end what is read of a fetch.",
    fault=CLEAN,
    at="atonce.records.columns",
)
def gap_ends_the_fetch(columns: Any) -> None:
    real = columns.settle

    def settle(data: Any, source: Any, table: Any, *words: Any) -> Any:
        unpacked = real(data, source, table, *words)
        control = (table[:, columns.ATTRIBUTES] & columns.CONTROL) != 0
        holes = table[1:, columns.BASE_OFFSET] != table[:-1, columns.LAST_OFFSET] + 1
        for number in range(1, len(table)):
            if control[number] or holes[number - 1]:
                table[number:, columns.SKIP] = 1
                break
        return unpacked

    columns.settle = settle


@mutant(
    Family.READING,
    "Records of aborted transactions of the input are delivered.",
    fault=CLEAN,
    at="atonce.records.columns",
)
def aborted_input_is_delivered(columns: Any) -> None:
    columns._skip_aborted = lambda *_: None


@mutant(
    Family.READING,
    "Plans and fetches go up to the high watermark: what is still open in the input is delivered.",
    fault=CLEAN,
    at=["atonce.client.offsets", "atonce.client.read.reader"],
)
def open_input_is_delivered(module: Any) -> None:
    module.isolation_level = lambda _isolation: 0


@mutant(
    Family.READING,
    "A partition that was added is read from its latest offset on.",
    fault=CLEAN,
    at="atonce.connectors.kafka.read.watch",
)
def new_partitions_begin_at_their_end(watch: Any) -> None:
    watch.EARLIEST = watch.LATEST


@mutant(
    Family.READING,
    "One empty answer proves that nothing is left of a range.",
    fault="F31/empty-answers",
    at="atonce.client.read.reader",
)
def empty_answer_is_believed(reader: Any) -> None:
    reader.Reader._nothing_left = lambda self, answer: not answer.records


@mutant(
    Family.READING,
    "What retention took before it was read is passed over in silence.",
    fault="F30/retention-overtakes",
    at=["atonce.client.read.reader", "atonce.connectors.kafka.read.watch"],
)
def retention_is_passed_over(module: Any) -> None:
    if module.__name__.endswith("watch"):
        module.data_loss = lambda *_: None
        return
    real = module.Reader._out_of_range

    def out_of_range(self: Any) -> None:
        self._fail_on_data_loss = False
        real(self)

    module.Reader._out_of_range = out_of_range


@mutant(
    Family.READING,
    "A topic is known by its name alone, also when it was deleted and made again.",
    fault="F32/topic-made-again",
    at=[
        "atonce.connectors.kafka.read.offsets",
        "atonce.connectors.kafka.source",
        "atonce.delivery.resume",
        "atonce.client.identity",
    ],
    on=On.SQLITE,  # a Kafka ledger goes with the topic that it names
)
def topics_are_known_by_name(module: Any) -> None:
    if module.__name__.endswith("offsets"):
        module.ids_of = lambda topics: {}
    elif module.__name__.endswith("source"):
        module.KafkaSource.source_ids = lambda self: {}
    elif module.__name__.endswith("resume"):
        module.refuse_made_again = lambda *_: None
    else:
        real = module.Identity.__init__

        def init(self: Any, cluster: Any, wanted: Any) -> None:
            real(self, cluster, wanted._replace(topic_id=None, epoch=-1))

        module.Identity.__init__ = init

"""The options of the `atonce` source: the names, the defaults and the rules of Spark's Kafka connector.

Differences, all on purpose: reading is `read_committed`; a micro-batch is bounded by bytes (`maxBytesPerTrigger`);
partitions that `startingOffsets` does not name begin at the earliest offset instead of being an error.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from atonce.client.config import Properties, connection_settings
from atonce.client.offsets import EARLIEST, LATEST, TopicPartition, isolation_level
from atonce.errors import UsageError

DEFAULT_MAX_BYTES_PER_TRIGGER = 512 << 20
DEFAULT_FETCH_BYTES = 4 << 20
DEFAULT_MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000

OPTIONS = {
    "subscribe": "Topics, separated by commas. Exactly one of `subscribe`, `subscribePattern` and `assign` is given.",
    "subscribePattern": "A regular expression over whole topic names; topics that appear later are read too.",
    "assign": 'Exact partitions, as JSON: `{"orders":[0,1]}`.',
    "startingOffsets": 'Where a new query begins: `earliest`, `latest`, or JSON such as `{"orders":{"0":23,"1":-2}}`, '
    "where -2 is the earliest and -1 the latest offset. Default: latest for streams, earliest for batch reads.",
    "endingOffsets": "Where a batch read ends, in the same form. Default: latest. Streams have no end.",
    "startingTimestamp": "Begin at the first record not older than this, on all partitions; milliseconds since 1970.",
    "endingTimestamp": "End a batch read there.",
    "startingOffsetsByTimestamp": 'The same per partition, as JSON: `{"orders":{"0":1700000000000}}`.',
    "endingOffsetsByTimestamp": "The same, for the end of a batch read.",
    "startingOffsetsByTimestampStrategy": "When no record is as young as a starting timestamp: `error` (default), or "
    "`latest` to begin at the end.",
    "maxOffsetsPerTrigger": "At most so many offsets in one micro-batch, shared out over the partitions.",
    "minOffsetsPerTrigger": "Wait until there are so many, but no longer than `maxTriggerDelay`.",
    "maxTriggerDelay": "Such as `30s`, `15m`, `1h`. Default: 15m.",
    "maxBytesPerTrigger": "About so many bytes in one micro-batch, so that it fits a transaction: `64m`, `1g`, `none`. "
    "Default: 512m. Spark's connector does not have it.",
    "minPartitions": "Split the offset ranges into at least so many Spark tasks. Default: one task a partition; short "
    "ranges share one.",
    "maxRecordsPerPartition": "Split them so that no task has more offsets than this.",
    "failOnDataLoss": "`true` (default): stop when offsets that should be read are gone. `false`: go on, and say what "
    "is missing.",
    "includeHeaders": "`true` adds the column `headers`. Default: false.",
}
# What a pipeline hands to its source: what runs in its tasks, where it begins, which logs it knows, whom to tell what
# was read. Nothing that a user writes.
INTERNAL = (
    "atonce.function", "atonce.schema", "atonce.first", "atonce.until", "atonce.next", "atonce.drain",
    "atonce.topicIds", "atonce.accounts", "atonce.accounts.secret",
)  # fmt: skip
# Known to Spark's connector, without a meaning here: there is no consumer, no group and no poll.
WITHOUT_MEANING = (
    "groupIdPrefix", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
)  # fmt: skip
CONSUMER_TUNING = frozenset(
    {
        "group.id", "fetch.min.bytes", "fetch.max.wait.ms", "max.poll.records", "max.poll.interval.ms",
        "session.timeout.ms", "heartbeat.interval.ms", "receive.buffer.bytes", "send.buffer.bytes",
        "metadata.max.age.ms", "check.crcs", "default.api.timeout.ms", "retry.backoff.ms",
    }
)  # fmt: skip
REFUSED = {
    "auto.offset.reset": "set startingOffsets instead; Spark keeps where to resume",
    "enable.auto.commit": "the source commits no offsets",
    "key.deserializer": "keys are binary; cast them in the DataFrame",
    "value.deserializer": "values are binary; cast them in the DataFrame",
    "interceptor.classes": "there is no consumer to intercept",
}
DELAY = re.compile(r"\s*(\d+)\s*(ms|s|m|min|h|d)?\s*")
DELAY_UNITS = {None: 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
SIZE = re.compile(r"\s*(\d+)\s*([kmg]?)b?\s*")
SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Where reading begins or ends: one rule for all partitions, or one per partition."""

    everywhere: int = EARLIEST
    """EARLIEST, LATEST, or a timestamp in ms when `by_time`."""
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Per partition; the same special values. Empty: `everywhere` holds for all."""
    by_time: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Parsed and checked. Picklable; its text shows no secrets."""

    servers: str
    config: Properties
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()
    starting: Bound
    ending: Bound
    no_match: str = "error"
    """What to do when no record is as young as a starting timestamp: "error" or "latest"."""
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = DEFAULT_MAX_TRIGGER_DELAY_MS
    max_bytes: int | None = DEFAULT_MAX_BYTES_PER_TRIGGER
    min_partitions: int | None = None
    max_records: int | None = None
    fail_on_data_loss: bool = True
    headers: bool = False
    isolation: str = "read_committed"
    fetch_bytes: int = DEFAULT_FETCH_BYTES
    function: str | None = None
    """A cloudpickled `Iterator[RecordBatch] -> Iterator[RecordBatch]`, in base64, to run inside the source's tasks."""
    schema: str | None = None
    """What that function gives, as DDL."""
    first: Mapping[TopicPartition, int] | None = None
    """Exactly where a new query begins; partitions that it does not name are found later, as new ones are."""
    until: Mapping[TopicPartition, int] | None = None
    """Where a backfill ends: nothing beyond is read, and nothing of other partitions."""
    topic_ids: Mapping[str, str] | None = None
    """Topic → id of the log that positions belong to. None: nobody keeps them, only this process does."""
    accounts: str | None = None
    """HOST:PORT that tasks tell what they read."""
    accounts_secret: str = field(default="", repr=False)

    def selects(self, tp: TopicPartition) -> bool:
        """Whether this partition is asked for, be it there or not."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, tp.topic) is not None
        return tp in self.assigned if self.assigned else tp.topic in self.topics


def parse(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    given = {name.lower(): str(value) for name, value in options.items()}
    _refuse_unknown(given)
    servers = given.get("kafka.bootstrap.servers", "").strip()
    if not servers:
        raise UsageError('option "kafka.bootstrap.servers" is missing: HOST:PORT[,HOST:PORT…]')
    kafka = {name.removeprefix("kafka."): value for name, value in given.items() if name.startswith("kafka.")}
    config = _client_config(kafka)
    topics, pattern, assigned = _what_to_read(given)
    starting = _bound(given, "starting", LATEST if streaming else EARLIEST)
    ending = _bound(given, "ending", LATEST)
    if not streaming:
        _check_batch(starting, ending)
    elif any(name.startswith("ending") for name in given):
        raise UsageError("endingOffsets, endingTimestamp and endingOffsetsByTimestamp are for batch reading only")
    no_match = given.get("startingoffsetsbytimestampstrategy", "error").lower()
    if no_match not in ("error", "latest"):
        raise UsageError(f"startingOffsetsByTimestampStrategy={no_match!r} is not one of: error, latest")
    if ("atonce.function" in given) != ("atonce.schema" in given):
        raise UsageError("atonce.function and atonce.schema come together")
    isolation = kafka.get("isolation.level", "read_committed")
    isolation_level(isolation)
    fetch_bytes = _count(kafka, "max.partition.fetch.bytes") or _count(kafka, "fetch.max.bytes") or DEFAULT_FETCH_BYTES
    min_offsets, max_offsets = _count(given, "minOffsetsPerTrigger"), _count(given, "maxOffsetsPerTrigger")
    if min_offsets is not None and max_offsets is not None and min_offsets > max_offsets:
        raise UsageError(f"minOffsetsPerTrigger={min_offsets} is more than maxOffsetsPerTrigger={max_offsets}")
    return SourceOptions(
        servers=servers,
        config=config,
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        starting=starting,
        ending=ending,
        no_match=no_match,
        max_offsets=max_offsets,
        min_offsets=min_offsets,
        max_delay_ms=_delay_ms(given.get("maxtriggerdelay")),
        max_bytes=_bytes(given.get("maxbytespertrigger")),
        min_partitions=_count(given, "minPartitions"),
        max_records=_count(given, "maxRecordsPerPartition"),
        fail_on_data_loss=_flag(given, "failOnDataLoss", True),
        headers=_flag(given, "includeHeaders", False),
        isolation=isolation,
        fetch_bytes=fetch_bytes,
        function=given.get("atonce.function"),
        schema=given.get("atonce.schema"),
        first=offsets_from_json(given["atonce.first"], "atonce.first") if "atonce.first" in given else None,
        until=offsets_from_json(given["atonce.until"], "atonce.until") if "atonce.until" in given else None,
        topic_ids=json.loads(given["atonce.topicids"]) if "atonce.topicids" in given else None,
        accounts=given.get("atonce.accounts"),
        accounts_secret=given.get("atonce.accounts.secret", ""),
    )


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in (*OPTIONS, *INTERNAL, *WITHOUT_MEANING)}
    for name in given:
        if name in known or name.startswith("kafka."):
            continue
        near = difflib.get_close_matches(name, [*known, "kafka.bootstrap.servers"], 1)
        hint = f' Did you mean "{known.get(near[0], near[0])}"?' if near else ""
        raise UsageError(
            f'option "{name}" is not known to format("atonce").{hint} Options: {", ".join(OPTIONS)}, kafka.*'
        )


def _client_config(kafka: Mapping[str, str]) -> Properties:
    ours = ("bootstrap.servers", "isolation.level", "max.partition.fetch.bytes", "fetch.max.bytes")
    for name in kafka:
        if name in REFUSED:
            raise UsageError(f'option "kafka.{name}" cannot be set: {REFUSED[name]}')
    config = Properties({k: v for k, v in kafka.items() if k not in ours and k not in CONSUMER_TUNING})
    connection_settings(config)  # a wrong property is refused here, by name, before anything starts
    return config


def _what_to_read(given: Mapping[str, str]) -> tuple[tuple[str, ...], str | None, tuple[TopicPartition, ...]]:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in given]
    if len(ways) != 1:
        found = f"got {' and '.join(ways)}" if ways else "got none of them"
        raise UsageError(f"exactly one of subscribe, subscribePattern and assign must be given; {found}")
    value = given[ways[0].lower()]
    if ways[0] == "subscribe":
        topics = tuple(topic.strip() for topic in value.split(",") if topic.strip())
        if not topics:
            raise UsageError("subscribe names no topic")
        return topics, None, ()
    if ways[0] == "subscribePattern":
        if not value.strip():
            raise UsageError("subscribePattern is empty")
        return (), value, ()
    try:
        assigned = sorted(TopicPartition(t, int(p)) for t, partitions in json.loads(value).items() for p in partitions)
    except (ValueError, AttributeError, TypeError):
        raise UsageError(f'assign={value!r} is not JSON of the form {{"topic":[0,1]}}') from None
    if not assigned:
        raise UsageError("assign names no partition")
    return (), None, tuple(assigned)


def _bound(given: Mapping[str, str], which: str, default: int) -> Bound:
    """Kafka connector's precedence: one timestamp, timestamps per partition, then offsets."""
    moment = given.get(f"{which}timestamp")
    if moment is not None:
        if not moment.strip().isdigit():
            raise UsageError(f"{which}Timestamp={moment!r} is not a time in milliseconds since 1970")
        return Bound(everywhere=int(moment), by_time=True)
    text = given.get(f"{which}offsetsbytimestamp")
    if text is not None:
        return Bound(offsets=offsets_from_json(text, f"{which}OffsetsByTimestamp"), by_time=True)
    text = given.get(f"{which}offsets", "").strip()
    if not text:
        return Bound(everywhere=default)
    if text.lower() in ("earliest", "latest"):
        return Bound(everywhere=EARLIEST if text.lower() == "earliest" else LATEST)
    return Bound(offsets=offsets_from_json(text, f"{which}Offsets"))


def offsets_from_json(text: str, name: str) -> dict[TopicPartition, int]:
    try:
        nested = json.loads(text)
        found = {
            TopicPartition(topic, int(p)): int(at)
            for topic, partitions in nested.items()
            for p, at in partitions.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise UsageError(f'{name}={text!r} is not earliest, latest, or JSON like {{"topic":{{"0":12}}}}') from None
    wrong = next((tp for tp, at in found.items() if at < EARLIEST), None)
    if wrong is not None:
        raise UsageError(f"{name}: {found[wrong]} of {wrong} is neither an offset nor -1 (latest) nor -2 (earliest)")
    return found


def _check_batch(starting: Bound, ending: Bound) -> None:
    if not starting.by_time and LATEST in (starting.offsets.values() or (starting.everywhere,)):
        raise UsageError("startingOffsets=latest reads nothing in a batch query; give earliest or offsets")
    if not ending.by_time and EARLIEST in (ending.offsets.values() or (ending.everywhere,)):
        raise UsageError("endingOffsets=earliest reads nothing in a batch query; give latest or offsets")


def _count(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdigit() or int(text) < 1:
        raise UsageError(f"{name}={text!r} is not a whole number above zero")
    return int(text)


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise UsageError(f"{name}={text!r} is not true or false")
    return text == "true"


def _delay_ms(text: str | None) -> int:
    if text is None:
        return DEFAULT_MAX_TRIGGER_DELAY_MS
    found = DELAY.fullmatch(text.lower())
    if not found:
        raise UsageError(f"maxTriggerDelay={text!r} is not a duration such as 30s, 15m or 1h")
    return int(found[1]) * DELAY_UNITS[found[2]]


def _bytes(text: str | None) -> int | None:
    if text is None:
        return DEFAULT_MAX_BYTES_PER_TRIGGER
    if text.strip().lower() in ("none", "unlimited"):
        return None
    found = SIZE.fullmatch(text.lower())
    if not found or int(found[1]) == 0:
        raise UsageError(f"maxBytesPerTrigger={text!r} is not a size such as 64m or 1g, or none")
    return int(found[1]) * SIZE_UNITS[found[2]]

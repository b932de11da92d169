"""Every setting of the broker and of a topic, under Kafka's own names: type, default, limits, meaning.

`atonce broker --set`, CreateTopics, AlterConfigs, DescribeConfigs and the docs all read this table. Defaults are Apache
Kafka 4.3's, except where the description says so.
"""

# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from enum import Enum

from atonce.errors import UsageError

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1

Value = bool | int | float | str | None


class Kind(Enum):
    """Values are Kafka's type numbers in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


class BadSetting(UsageError):
    """An unknown name, or a value that the setting cannot take."""


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    kind: Kind
    default: Value
    doc: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    # For a topic setting: the broker setting that is its default. For a broker setting: may it change while running?
    broker_name: str | None = None
    dynamic: bool = False

    def parse(self, text: str) -> Value:
        """The typed value, or BadSetting with what would be accepted."""
        text = text.strip()
        try:
            value = self._typed(text)
        except ValueError:
            raise BadSetting(f"{self.name}={text}: not {self._wanted()}") from None
        if not self._within_limits(value):
            raise BadSetting(f"{self.name}={text}: not {self._wanted()}")
        return value

    def read(self, text: str) -> Value:
        """A value that was stored: it was right when it was set, whatever the limits are today."""
        return self._typed(text)

    def _within_limits(self, value: Value) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return True
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def _typed(self, text: str) -> Value:
        match self.kind:
            case Kind.BOOLEAN:
                if text.lower() not in ("true", "false"):
                    raise ValueError(text)
                return text.lower() == "true"
            case Kind.INT | Kind.LONG:
                value = int(text)
                limit = MAX_INT if self.kind is Kind.INT else MAX_LONG
                if not -limit - 1 <= value <= limit:
                    raise ValueError(text)
                return value
            case Kind.DOUBLE:
                return float(text)
            case Kind.LIST:
                words = [word.strip() for word in text.split(",") if word.strip()]
                if not words or len(set(words)) != len(words) or (self.choices and not set(words) <= {*self.choices}):
                    raise ValueError(text)
                return ",".join(words)
            case Kind.PASSWORD:
                return text
            case Kind.STRING:
                if self.choices and text not in self.choices:
                    raise ValueError(text)
                return text

    def _wanted(self) -> str:
        if self.kind is Kind.BOOLEAN:
            return "true or false"
        if self.choices:
            return ("a list of " if self.kind is Kind.LIST else "one of ") + ", ".join(self.choices)
        limits = [f"at least {self.low:.15g}"] if self.low is not None else []
        limits += [f"at most {self.high:.15g}"] if self.high is not None else []
        return f"a {self.kind.name.lower()}" + (f", {' and '.join(limits)}" if limits else "")


def text_of(value: Value) -> str | None:
    """As Kafka writes it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _int(
    name: str,
    default: int | None,
    doc: str,
    low: int | None = None,
    high: int | None = None,
    dynamic: bool = False,
) -> Setting:
    return Setting(name, Kind.INT, default, doc, low, high, dynamic=dynamic)


def _long(
    name: str,
    default: int | None,
    doc: str,
    low: int | None = None,
    high: int | None = None,
    dynamic: bool = False,
) -> Setting:
    return Setting(name, Kind.LONG, default, doc, low, high, dynamic=dynamic)


def _bool(name: str, default: bool, doc: str, dynamic: bool = False) -> Setting:
    return Setting(name, Kind.BOOLEAN, default, doc, dynamic=dynamic)


INTERNAL_SEGMENT_BYTES = "internal.segment.bytes"
_CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_TIMESTAMPS = ("CreateTime", "LogAppendTime")

BROKER = (
    # The node and its topics.
    _int("node.id", 1, "The id of this node in metadata.", 0),
    _int("num.partitions", 4, "Partitions of a topic that is created without a number. Kafka's default is 1.", 1),
    _int("max.partitions", 50_000, "Ours: partitions in all.", 1, dynamic=True),
    _int("default.replication.factor", 1, "Replicas of a topic that is created without a number.", 1),
    _bool("allow.any.replication.factor", False, "Ours: accept any replication factor and keep one copy."),
    _bool("auto.create.topics.enable", True, "Create a topic when a client asks for its metadata."),
    _bool("delete.topic.enable", True, "Allow DeleteTopics."),
    _int("min.insync.replicas", 1, "Copies that acks=all waits for, as far as there are so many: one here.", 1, dynamic=True),
    # The log.
    _int("message.max.bytes", 1048588, "Largest record batch, compressed.", 0, dynamic=True),
    Setting("compression.type", Kind.STRING, "producer", "Codec of what is stored: `producer` keeps batches as they were sent, others are compressed again.", choices=_CODECS, dynamic=True),
    Setting("log.cleanup.policy", Kind.LIST, "delete", "What happens to old segments.", choices=("delete", "compact"), dynamic=True),
    _int("log.segment.bytes", 1073741824, "A segment is closed when it would grow beyond this.", 1048576, dynamic=True),
    _int(INTERNAL_SEGMENT_BYTES, None, "As in Kafka, for tests: a segment's size without the lower limit.", 14, dynamic=True),
    _long("log.roll.ms", None, "A segment is closed at this age; unset: log.roll.hours.", 1, dynamic=True),
    _int("log.roll.hours", 168, "A segment is closed at this age.", 1),
    _long("log.roll.jitter.ms", 0, "Taken off a segment's greatest age, at random.", 0, dynamic=True),
    _long("log.retention.ms", None, "Records older than this are removed; unset: log.retention.minutes.", -1, dynamic=True),
    _int("log.retention.minutes", None, "Records older than this are removed; unset: log.retention.hours.", -1),
    _int("log.retention.hours", 168, "Records older than this are removed.", -1),
    _long("log.retention.bytes", -1, "A partition is kept below this size; -1: no limit.", -1, dynamic=True),
    _long("log.retention.check.interval.ms", 300000, "How often retention looks.", 1),
    _long("log.flush.interval.messages", 1, "fsync after so many records. 1: before every acknowledgement (Kafka's default is never).", 1, dynamic=True),
    _long("log.flush.interval.ms", None, "fsync at least this often when log.flush.interval.messages is above 1.", 1, dynamic=True),
    _int("log.index.interval.bytes", 4096, "Bytes of log between two entries of the offset index.", 0, dynamic=True),
    _int("log.index.size.max.bytes", 10485760, "Largest index file.", 4, dynamic=True),
    _bool("log.preallocate", False, "Accepted; segments are never allocated ahead.", dynamic=True),
    _long("log.segment.delete.delay.ms", 60000, "Accepted; a file that is being read stays readable until closed.", 0, dynamic=True),
    Setting("log.message.timestamp.type", Kind.STRING, "CreateTime", "Whose clock stamps a record.", choices=_TIMESTAMPS, dynamic=True),
    _long("log.message.timestamp.before.max.ms", MAX_LONG, "How far a record's time may lie in the past.", 0, dynamic=True),
    _long("log.message.timestamp.after.max.ms", 3600000, "How far a record's time may lie in the future.", 0, dynamic=True),
    _bool("unclean.leader.election.enable", False, "Accepted; there is one copy.", dynamic=True),
    # Compaction.
    _bool("log.cleaner.enable", True, "Compact topics whose cleanup.policy says so."),
    _long("log.cleaner.backoff.ms", 15000, "How often compaction looks.", 0),
    Setting("log.cleaner.min.cleanable.ratio", Kind.DOUBLE, 0.5, "Share of uncompacted bytes that starts compaction.", 0, 1, dynamic=True),
    _long("log.cleaner.delete.retention.ms", 86400000, "How long tombstones and markers stay readable.", 0, dynamic=True),
    _long("log.cleaner.min.compaction.lag.ms", 0, "Younger records are not compacted.", 0, dynamic=True),
    _long("log.cleaner.max.compaction.lag.ms", MAX_LONG, "Older records are compacted whatever the ratio.", 1, dynamic=True),
    # Connections.
    Setting("listeners", Kind.LIST, None, "Where to listen: NAME://HOST:PORT, separated by commas. Unset: `--listen`, as PLAINTEXT."),
    Setting("advertised.listeners", Kind.LIST, None, "What clients are told to connect to, for those listeners whose own address they cannot use."),
    Setting("listener.security.protocol.map", Kind.LIST, "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL", "The security protocol of each listener, by its name."),
    _int("socket.request.max.bytes", 104857600, "Largest request.", 1),
    _int("control.request.max.bytes", 8388608, "Ours: largest request other than Produce.", 1024),
    _int("first.request.max.bytes", 65536, "Ours: largest first request of a connection.", 512),
    _int("socket.send.buffer.bytes", -1, "SO_SNDBUF; -1: the system's. Kafka's default is 102400.", -1),
    _int("socket.receive.buffer.bytes", -1, "SO_RCVBUF; -1: the system's. Kafka's default is 102400.", -1),
    _int("socket.listen.backlog.size", 128, "Connections that may wait to be accepted. Kafka's default is 50.", 1),
    _int("max.connections", 10000, "Connections in all. Kafka has no limit by default.", 0),
    _int("max.connections.per.ip", 2000, "Connections per address; above it the one used least goes. Kafka refuses, and has no limit by default.", 0),
    _long("connections.max.idle.ms", 600000, "Idle connections are closed."),
    _int("request.receive.timeout.ms", 30000, "Ours: a request that has begun to arrive must be there by then.", 100),
    _int("response.send.timeout.ms", 60000, "Ours: a client that reads nothing of its answers for so long is disconnected.", 1000),
    _long("queued.max.request.bytes", 134217728, "Bytes of requests held at once; above it nothing more is read, above twice as much not even the rest of one. Kafka has no limit.", 1048576),
    _long("queued.max.response.bytes", 33554432, "Ours: bytes of answers held at once. Above half of it a fetch gets 1 MB at most; above it fetches wait in turn, and clients that do not take their answers are disconnected.", 4194304),
    _int("queued.max.requests", 500, "Requests of one connection held at once.", 1),
    _int("fetch.max.bytes", 57671680, "Largest answer to a fetch.", 1024),
    _int("max.incremental.fetch.session.cache.slots", 1000, "Fetch sessions kept.", 0),
    # Who may come in.
    Setting("sasl.enabled.mechanisms", Kind.LIST, "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN", "How users log in on `SASL_` listeners. Kafka's default is GSSAPI.", choices=("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")),
    _int("connection.failed.authentication.delay.ms", 100, "A failed login is answered, and closed, after this.", 0),
    Setting("ssl.keystore.location", Kind.STRING, None, "For `SSL` and `SASL_SSL` listeners: a PEM file with the private key and its chain of certificates."),
    Setting("ssl.keystore.type", Kind.STRING, "PEM", "Kafka's default is JKS; `openssl pkcs12` makes PEM files of others.", choices=("PEM",)),
    Setting("ssl.key.password", Kind.PASSWORD, None, "Of the private key, as `${NAME}` or `${file:PATH}`."),
    Setting("ssl.truststore.location", Kind.STRING, None, "A PEM file with the certificates that clients' certificates must come from."),
    Setting("ssl.truststore.type", Kind.STRING, "PEM", "Kafka's default is JKS.", choices=("PEM",)),
    Setting("ssl.client.auth", Kind.STRING, "none", "Whether `SSL` listeners ask clients for a certificate; its name is then the user.", choices=("none", "requested", "required")),
    Setting("ssl.enabled.protocols", Kind.LIST, "TLSv1.2,TLSv1.3", "Versions of TLS.", choices=("TLSv1.2", "TLSv1.3")),
    Setting("authorizer.class.name", Kind.STRING, "", "Empty: whoever can connect may do everything. `org.apache.kafka.metadata.authorizer.StandardAuthorizer`: what ACLs allow.", choices=("", "org.apache.kafka.metadata.authorizer.StandardAuthorizer")),
    Setting("super.users", Kind.STRING, "", "Users who may do everything: `User:alice;User:bob`."),
    _bool("allow.everyone.if.no.acl.found", False, "Whether what no ACL names is open to everybody who can connect."),
    _int("authentication.timeout.ms", 10000, "Ours: handshake and login must be done by then.", 100),
    _int("max.unauthenticated.connections", 256, "Ours: connections that have not logged in yet; above it the oldest of the address with most of them goes.", 1),
    # Groups and offsets.
    _int("group.initial.rebalance.delay.ms", 0, "Wait for more members before a new group's first rebalance. 0 as in Kafka's server.properties; its default is 3000.", 0),
    _int("group.min.session.timeout.ms", 6000, "Smallest session time-out of a member.", 0),
    _int("group.max.session.timeout.ms", 1800000, "Largest session time-out of a member.", 0),
    _int("group.max.size", MAX_INT, "Most members of a group.", 1),
    _int("group.consumer.session.timeout.ms", 45000, "Session time-out, new protocol.", 1),
    _int("group.consumer.min.session.timeout.ms", 45000, "Its lower limit.", 1),
    _int("group.consumer.max.session.timeout.ms", 60000, "Its upper limit.", 1),
    _int("group.consumer.heartbeat.interval.ms", 5000, "Heartbeat interval, new protocol.", 1),
    _int("group.consumer.min.heartbeat.interval.ms", 5000, "Its lower limit.", 1),
    _int("group.consumer.max.heartbeat.interval.ms", 15000, "Its upper limit.", 1),
    _int("group.consumer.max.size", MAX_INT, "Most members of a group, new protocol.", 1),
    Setting("group.consumer.assignors", Kind.LIST, "uniform,range", "Server-side assignors, the default first.", choices=("uniform", "range")),
    Setting("group.consumer.migration.policy", Kind.STRING, "bidirectional", "Whether groups with members may change over to the new protocol, or back.", choices=("disabled", "upgrade", "downgrade", "bidirectional")),
    _int("offsets.retention.minutes", 10080, "Offsets of a group without members are kept this long.", 1),
    _long("offsets.retention.check.interval.ms", 600000, "How often expired offsets are looked for.", 1),
    _int("offset.metadata.max.bytes", 4096, "Longest metadata of an offset.", 0),
    _int("offsets.topic.num.partitions", 1, "Fixed: one process, one coordinator.", 1, 1),
    _int("offsets.topic.replication.factor", 1, "Fixed: one copy.", 1, 1),
    _int("offsets.topic.segment.bytes", 8388608, "`segment.bytes` of `__consumer_offsets`, when it is made.", 1024),
    # Transactions and producers.
    _int("transaction.max.timeout.ms", 900000, "Longest transaction.timeout.ms of a producer.", 1),
    _int("transactional.id.expiration.ms", 604800000, "Unused transactional ids are forgotten.", 1),
    _int("transaction.abort.timed.out.transaction.cleanup.interval.ms", 10000, "Longest delay before an expired transaction is aborted.", 1),
    _int("transaction.remove.expired.transaction.cleanup.interval.ms", 3600000, "How often unused transactional ids are looked for.", 1),
    _int("transaction.version", 2, "The feature's finalized level, which Kafka keeps with its metadata (`kafka-storage.sh format --feature`). Below 2 clients use the first transaction protocol.", 0, 2),
    _bool("transaction.partition.verification.enable", True, "Verify that a produce of protocol v1 belongs to an open transaction."),
    _int("transaction.state.log.num.partitions", 1, "Fixed: one process, one coordinator.", 1, 1),
    _int("transaction.state.log.replication.factor", 1, "Fixed: one copy.", 1, 1),
    _int("transaction.state.log.min.isr", 1, "Fixed: one copy.", 1, 1),
    _int("transaction.state.log.segment.bytes", 8388608, "`segment.bytes` of `__transaction_state`, when it is made.", 1024),
    _int("producer.id.expiration.ms", 86400000, "State of a quiet producer is forgotten.", 1, dynamic=True),
    _int("producer.id.expiration.check.interval.ms", 600000, "How often quiet producers are looked for.", 1),
)  # fmt: skip


def _topic(name: str, broker_name: str, doc: str = "", **limits: float) -> Setting:
    """A topic setting with type, limits and default of the broker setting behind it."""
    behind = next(setting for setting in BROKER if setting.name == broker_name)
    low = limits.get("low", behind.low)
    return Setting(name, behind.kind, behind.default, doc or behind.doc, low, behind.high, behind.choices, broker_name)


TOPIC = (
    _topic("cleanup.policy", "log.cleanup.policy"),
    _topic("compression.type", "compression.type"),
    _topic("delete.retention.ms", "log.cleaner.delete.retention.ms"),
    _topic("file.delete.delay.ms", "log.segment.delete.delay.ms"),
    _topic("flush.messages", "log.flush.interval.messages"),
    _topic("flush.ms", "log.flush.interval.ms"),
    _topic("index.interval.bytes", "log.index.interval.bytes"),
    _topic("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    _topic("max.message.bytes", "message.max.bytes"),
    _topic("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms"),
    _topic("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms"),
    _topic("message.timestamp.type", "log.message.timestamp.type"),
    _topic("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"),
    _topic("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"),
    _topic("min.insync.replicas", "min.insync.replicas"),
    _topic("preallocate", "log.preallocate"),
    _topic("retention.bytes", "log.retention.bytes"),
    _topic("retention.ms", "log.retention.ms"),
    _topic("segment.bytes", "log.segment.bytes"),
    _topic(INTERNAL_SEGMENT_BYTES, INTERNAL_SEGMENT_BYTES),
    _topic("segment.index.bytes", "log.index.size.max.bytes"),
    _topic("segment.jitter.ms", "log.roll.jitter.ms"),
    _topic("segment.ms", "log.roll.ms"),
    _topic("unclean.leader.election.enable", "unclean.leader.election.enable"),
)

BROKER_BY_NAME = {setting.name: setting for setting in BROKER}
TOPIC_BY_NAME = {setting.name: setting for setting in TOPIC}


def is_shown(setting: Setting, overrides: Container[str]) -> bool:
    """Kafka's internal settings are not described unless someone has set them."""
    return setting.name != INTERNAL_SEGMENT_BYTES or setting.name in overrides

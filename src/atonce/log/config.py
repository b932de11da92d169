"""The settings of one partition log, by Kafka's topic configuration names (dots become underscores)."""

from __future__ import annotations

from dataclasses import dataclass, field

FOREVER = -1
LONG_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Values only; whoever reads text from a user checks it before it gets here."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 3600 * 1000
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = FOREVER
    cleanup_policy: frozenset[str] = field(default_factory=lambda: frozenset({"delete"}))
    max_message_bytes: int = 1024 * 1024 + 12
    compression_type: str = "producer"
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = 3600 * 1000
    # 1 = every append is synced before it is acknowledged or served; Kafka's own default is LONG_MAX.
    flush_messages: int = 1
    flush_ms: int = LONG_MAX
    index_interval_bytes: int = 4096
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    delete_retention_ms: int = 24 * 3600 * 1000
    producer_id_expiration_ms: int = 24 * 3600 * 1000
    # Not Kafka's: how often the producer state and the indexes are saved, which bounds what a restart has to scan.
    checkpoint_bytes: int = 32 * 1024 * 1024
    checkpoint_batches: int = 65_536

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def flush_before_ack(self) -> bool:
        """Whether a record may be acknowledged, or served, only once it is synced."""
        return self.flush_messages <= 1

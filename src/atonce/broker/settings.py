"""The values in force: what was set when the broker started, what was changed since, what a topic says for itself."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from atonce.broker.config import BROKER_BY_NAME, MAX_LONG, TOPIC_BY_NAME, BadSetting, Setting, Value, text_of

_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000


class Source(IntEnum):
    """Where a value comes from; numbers as in DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class InForce:
    """A value, where it stands, and all places where it could have come from."""

    setting: Setting
    value: Value
    source: Source
    synonyms: tuple[tuple[str, Value, Source], ...]


def known_setting(name: str, table: Mapping[str, Setting], what: str) -> Setting:
    setting = table.get(name)
    if setting is None:
        near = difflib.get_close_matches(name, table, n=3, cutoff=0.4)
        hint = f" Nearest: {', '.join(near)}." if near else ""
        raise BadSetting(f"{name}: no such {what} setting.{hint}")
    return setting


def parse_assignments(words: Iterable[str]) -> dict[str, str]:
    """`key=value` words of the command line. A topic's name for a setting stands for the broker's default of it."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise BadSetting(f"{word}: expected key=value, as in num.partitions=8")
        found[name.strip()] = value
    return found


def checked_broker_settings(texts: Mapping[str, str]) -> dict[str, Value]:
    """Typed; topic names are translated to the broker's. Raises BadSetting for the first that is wrong."""
    both = {**TOPIC_BY_NAME, **BROKER_BY_NAME}
    values: dict[str, Value] = {}
    for name, text in texts.items():
        setting = known_setting(name, both, "broker or topic")
        values[setting.broker_name or name] = setting.parse(str(text))
    low, high = (values.get(f"group.{end}.session.timeout.ms") for end in ("min", "max"))
    if isinstance(low, int) and isinstance(high, int) and low > high:
        raise BadSetting(f"group.min.session.timeout.ms={low} is above group.max.session.timeout.ms={high}")
    return values


def checked_topic_settings(texts: Mapping[str, str | None]) -> dict[str, str]:
    """The overrides of one topic as they are stored, each checked."""
    checked: dict[str, str] = {}
    for name, text in texts.items():
        setting = known_setting(name, TOPIC_BY_NAME, "topic")
        if text is None:
            raise BadSetting(f"{name}: null is no value")
        checked[name] = text_of(setting.parse(text)) or ""
    low, high = checked.get("min.compaction.lag.ms"), checked.get("max.compaction.lag.ms")
    if low is not None and high is not None and int(low) > int(high):
        raise BadSetting(f"min.compaction.lag.ms={low} is above max.compaction.lag.ms={high}")
    return checked


@dataclass(slots=True)
class Settings:
    """The broker's own: `static` from the command line, `dynamic` from AlterConfigs and kept with the topics."""

    static: dict[str, Value] = field(default_factory=dict)
    dynamic: dict[str, Value] = field(default_factory=dict)

    def describe(self, name: str) -> InForce:
        setting = BROKER_BY_NAME[name]
        places = [(name, values[name], source) for values, source in self._layers() if name in values]
        places.append((name, setting.default, Source.DEFAULT))
        return InForce(setting, places[0][1], places[0][2], tuple(places))

    def _layers(self) -> tuple[tuple[dict[str, Value], Source], ...]:
        return ((self.dynamic, Source.DYNAMIC_BROKER), (self.static, Source.STATIC_BROKER))

    def value(self, name: str) -> Value:
        for values, _ in self._layers():
            if name in values:
                return values[name]
        return BROKER_BY_NAME[name].default

    def number(self, name: str) -> int:
        value = self.value(name)
        if not isinstance(value, int):
            raise BadSetting(f"{name}={value}: not a number")
        return value

    def flag(self, name: str) -> bool:
        return self.value(name) is True

    def text(self, name: str) -> str:
        return str(self.value(name))

    def describe_topic(self, name: str, overrides: Mapping[str, str]) -> InForce:
        """A topic's setting: its own value, else the broker's, else the default."""
        setting = TOPIC_BY_NAME[name]
        broker = self.describe(setting.broker_name or name)
        synonyms = broker.synonyms
        default = self._derived_default(name)
        if default is not None and broker.value is None:
            synonyms = ((setting.broker_name or name, default, Source.DEFAULT),)
        if name in overrides:
            value = setting.read(overrides[name])
            return InForce(setting, value, Source.TOPIC, ((name, value, Source.TOPIC), *synonyms))
        return InForce(setting, synonyms[0][1], synonyms[0][2], synonyms)

    def _derived_default(self, name: str) -> int | None:
        """What an unset time in milliseconds means: Kafka has the same time in coarser units too."""
        match name:
            case "retention.ms":
                minutes = self.value("log.retention.minutes")
                if isinstance(minutes, int):
                    return -1 if minutes < 0 else minutes * _MINUTE_MS
                hours = self.number("log.retention.hours")
                return -1 if hours < 0 else hours * _HOUR_MS
            case "segment.ms":
                return self.number("log.roll.hours") * _HOUR_MS
            case "flush.ms":
                return MAX_LONG
        return None

    def topic_value(self, name: str, overrides: Mapping[str, str]) -> Value:
        return self.describe_topic(name, overrides).value

    def topic_number(self, name: str, overrides: Mapping[str, str]) -> int:
        value = self.topic_value(name, overrides)
        return value if isinstance(value, int) else 0

"""Runs the same requests on two brokers and keeps the answers, with everything that must differ made equal."""

from __future__ import annotations

import dataclasses
import re
import time
from typing import Any

from tests.interop.coordinator_calls import fresh
from tests.interop.group_calls import GroupCalls

# Values that are each broker's own: ids, ports, times; and the words of error messages.
_OWN_FIELDS = frozenset(
    {"cluster_id", "node_id", "port", "producer_id", "throttle_time", "error_message", "transaction_start_time"}
)
# A coordinator that is loading, not there yet, or not known to be here: real clients ask again.
_LOADING = re.compile(r"'error_code': '1[456]'")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class Script(GroupCalls):
    def __init__(self, servers: str) -> None:
        super().__init__(servers)
        self.answers: list[tuple[str, Any]] = []
        self._names: dict[str, str] = {}

    def name(self, kind: str) -> str:
        """A fresh name that both scripts remember under the same word."""
        made = fresh(kind)
        self.remember(made, f"{kind}#{len(self._names)}")
        return made

    def remember(self, value: str, word: str) -> None:
        self._names[value] = word

    def note(self, what: str, api_key: int, version: int, **fields: Any) -> Any:
        deadline = time.monotonic() + 30
        while _LOADING.search(str(plain := self._plain(answer := self.call(api_key, version, **fields)))):
            assert time.monotonic() < deadline, f"{what}: the coordinator still loads after 30 s: {plain}"
            time.sleep(0.02)
        self.answers.append((f"{what} v{version}", plain))
        return answer

    def _plain(self, value: Any) -> Any:
        if dataclasses.is_dataclass(value):
            return {
                field.name: self._plain(getattr(value, field.name))
                for field in dataclasses.fields(value)
                if field.name not in _OWN_FIELDS
            }
        if isinstance(value, tuple):
            return sorted((self._plain(v) for v in value), key=repr)  # the order of answers means nothing
        text = str(value)
        for known, word in self._names.items():
            text = text.replace(known, word)
        return _UUID.sub("<id>", text)


def differences(ours: Script, theirs: Script) -> list[str]:
    assert [what for what, _ in ours.answers] == [what for what, _ in theirs.answers]
    return [
        f"{what}\n    embedded {mine}\n    apache   {other}"
        for (what, mine), (_, other) in zip(ours.answers, theirs.answers, strict=True)
        if mine != other
    ]

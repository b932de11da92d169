"""Any command as a subject: started in a shell, killed with everything it started, started again when it dies."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from atonce.connectors.contract import Feed, ScratchServer, Topic, Written
from atonce.delivery.events import Step
from atonce.errors import UsageError
from atonce.guarantee import Guarantee
from atonce.local.child import Child
from atonce.verify.checks.oracle import Look
from atonce.verify.faults.catalogue import Need
from atonce.verify.ground.workload import Workload
from atonce.verify.subject.contract import Ending, Hold, Names
from atonce.verify.wire.history import History

PLACES = ("servers", "input", "output", "group", "url", "table")

_PLACE = re.compile(r"""(?P<quote>['"]?)\{(?P<name>""" + "|".join(PLACES) + r""")\}""")


def _filled(found: re.Match[str], values: Mapping[str, str]) -> str:
    """Safe for the shell: an address may hold `&` and `?`. Where the user has put quotes, theirs are enough."""
    value = values[found["name"]]
    return found["quote"] + value if found["quote"] else shlex.quote(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTable:
    """The user's own table, emptied before every run, or a copy of it on scratch, where `server` is set."""

    name: str
    url: str
    written: Written
    emptied: Callable[[], None] = lambda: None
    server: ScratchServer | None = None

    @property
    def address(self) -> str:
        return self.url if self.server is None else self.server.url


class CommandSubject:
    """`command` may hold {servers} {input} {output} {group} {url} {table}; the same stand in ATONCE_* variables."""

    steps = False
    endless = True

    def __init__(self, command: str, level: Guarantee | None, logs: Path, table: OutputTable | None = None) -> None:
        self.command, self.level, self.title = command, level, command
        self._table = table
        self._logs = logs
        self._children: dict[int, Child] = {}
        self._endings: dict[int, Ending] = {}
        self._names: Names | None = None
        self._history = History()
        if not shlex.split(command):
            raise UsageError("--app is empty: give the command that runs your application")

    @property
    def names_its_topics(self) -> bool:
        """True when the command takes topic names from us, so that every run can have fresh ones."""
        return "{input}" in self.command

    @property
    def server(self) -> ScratchServer | None:
        return self._table.server if self._table is not None else None

    def needs_met(self) -> set[Need]:
        return set()

    def prepare(self, names: Names, history: History) -> None:
        self.finish()
        self._names, self._history = names, history
        self._endings.clear()
        if self.server is not None:
            self.server.fresh(names.run)

    def _prepared(self) -> Names:
        if self._names is None:
            raise UsageError("the subject was started before its run was prepared")
        return self._names

    def input(self) -> Feed | Topic:
        return Topic(self._prepared().input)

    def output(self) -> Written | Topic:
        if self._table is None:
            return Topic(self._prepared().output)
        self._table.emptied()
        return self._table.written

    def _values(self) -> Mapping[str, str]:
        names, table = self._prepared(), self._table
        return {
            "servers": names.servers,
            "input": names.input,
            "output": names.output,
            "group": names.group,
            "url": table.address if table is not None else "",
            "table": table.name if table is not None else "",
        }

    def filled(self, command: str) -> str:
        """With the names of the present run in its places."""
        values = self._values()
        return _PLACE.sub(lambda found: _filled(found, values), command)

    def start(self, number: int = 0) -> None:
        values = self._values()
        command = self.filled(self.command)
        env = {**os.environ, **{f"ATONCE_{place.upper()}": value for place, value in values.items()}}
        log = self._log(number)
        # Its output goes to a file: an application that prints much must not stop because nobody reads.
        self._children[number] = Child(["/bin/sh", "-c", f"{command} >>{shlex.quote(str(log))} 2>&1"], env=env)
        self._endings.pop(number, None)
        self._history.mark("started", f"instance {number}")

    def _log(self, number: int) -> Path:
        run = self._names.run if self._names else "none"
        return self._logs / f"{run}-{number}.log"

    def kill(self, number: int = 0) -> None:
        child = self._children.pop(number, None)
        if child is not None:
            child.kill()
            self._history.mark("killed", f"instance {number}")

    def _signal(self, number: int, what: int) -> None:
        child = self._children.get(number)
        if child is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(child.leash_pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(what)

    def pause(self, number: int = 0) -> None:
        self._signal(number, signal.SIGSTOP)
        self._history.mark("paused", f"instance {number}")

    def resume(self, number: int = 0) -> None:
        self._signal(number, signal.SIGCONT)
        self._history.mark("resumed", f"instance {number}")

    def running(self, number: int = 0) -> bool:
        child = self._children.get(number)
        if child is None:
            return False
        if child.running:
            return True
        code = child.wait(1)
        self._children.pop(number).stop()
        words = self.last_words()
        self._endings[number] = Ending(code, words)
        self._history.mark("ended", f"instance {number} by itself, code {code}")
        return False

    def ending(self, number: int = 0) -> Ending | None:
        self.running(number)
        return self._endings.get(number)

    def finish(self) -> None:
        for number in list(self._children):
            self._signal(number, signal.SIGCONT)
            self._children.pop(number).kill()

    def close(self) -> None:
        self.finish()

    def hold_at(self, step: Step, nth: int, number: int = 0) -> Hold:
        raise UsageError("a command has no steps to be held at; its faults come from the wire")

    def batches_of(self, records: int) -> None:
        return None

    def kill_driver(self, number: int = 0) -> None:
        raise UsageError("a command has no driver and tasks of its own; it is killed as a whole")

    def larger_batches(self) -> None:
        return None

    def workers(self) -> list[int]:
        return []

    def look(self, workload: Workload, sent_from_ms: int) -> Look | None:
        return None

    def last_words(self) -> str:
        log = self._log(0)
        return log.read_text(errors="replace")[-1500:].strip() if log.exists() else ""

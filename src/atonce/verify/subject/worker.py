"""The process in which an AtOnce pipeline runs while it is being verified: `python -m atonce.verify.subject.worker`.

It connects to the verifier, warms Spark up, and then does as told, one JSON line at a time: run a pipeline until all
its input is delivered, and, at every step of every delivery, report and wait for leave to go on. So the verifier can
hold it, kill it or replace it between any two steps. Nothing in the pipeline knows about this: it has an observer.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from atonce.delivery.events import Event
from atonce.errors import AtOnceError, RefusedError, ReplacedError

MASTER = "local[2,4]"
"""Two cores, and four attempts for a task: a lost worker is retried as on a cluster."""


class Control:
    """The line to the verifier."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._socket.settimeout(None)
        self._lines = self._socket.makefile("r", encoding="utf-8")
        self._lock = threading.RLock()

    def send(self, **message: Any) -> None:
        with self._lock:
            self._socket.sendall(json.dumps(message, default=str).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        line = self._lines.readline()
        if not line:
            os._exit(0)  # the verifier is gone, and with it any reason to go on
        message: dict[str, Any] = json.loads(line)
        return message

    def ask(self, **message: Any) -> dict[str, Any]:
        with self._lock:
            self.send(**message)
            return self.receive()


class Reporter:
    """An observer that stands still at each step until the verifier says go."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def on_event(self, event: Event) -> None:
        self._control.ask(
            event="step",
            step=event.step.value,
            batch=event.batch_id,
            rows=event.details().get("rows"),
            facts={key: str(value)[:2000] for key, value in event.details().items()},
        )


def warm(master: str, conf: dict[str, str]) -> None:
    """Start the JVM and the first Python workers, so that the run itself need not."""
    from atonce.spark.session import session
    from atonce.spark.start import warm as engine

    # A run has a few hundred records: a JVM that starts sooner is worth more than one that computes faster.
    engine.warm(session(master, conf, sees_rows=False))


def run(control: Control, order: dict[str, Any]) -> None:
    from pyspark import cloudpickle

    pipeline: Any = cloudpickle.loads(Path(order["pipeline"]).read_bytes())
    pipeline = replace(
        pipeline,
        observer=Reporter(control),
        say=lambda words: print(words, flush=True),
    )
    try:
        pipeline.run(available_now=True)
    except AtOnceError as error:
        control.send(
            event="failed",
            kind=type(error).__name__,
            code=error.exit_code,
            refused=isinstance(error, RefusedError),
            replaced=isinstance(error, ReplacedError),
            message=str(error),
        )
    except Exception as error:
        traceback.print_exc()
        control.send(
            event="failed", kind=type(error).__name__, code=1, refused=False, replaced=False, message=str(error)
        )
    else:
        control.send(event="done")


def look(control: Control, order: dict[str, Any]) -> None:
    from pyspark import cloudpickle

    from atonce.verify.subject.look import look as looked

    try:
        pipeline = cloudpickle.loads(Path(order["pipeline"]).read_bytes())
        control.send(event="looked", **looked(pipeline, Path(order["records"]), Path(order["result"]), order["only"]))
    except Exception as error:
        traceback.print_exc()
        control.send(event="looked", failed=str(error).splitlines()[0][:300] if str(error) else type(error).__name__)


def main() -> None:
    address, token, master = sys.argv[1:4]
    conf: dict[str, str] = json.loads(sys.argv[4]) if len(sys.argv) > 4 else {}
    control = Control(address)
    control.send(event="hello", token=token, pid=os.getpid())
    warm(master, conf)
    control.send(event="warm")
    while True:
        order = control.receive()
        {"run": run, "look": look}[order["order"]](control, order)


if __name__ == "__main__":
    main()

"""A child process that dies with its parent, whatever kills the parent, and takes its own children along."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import psutil

from atonce.errors import AtOnceError
from atonce.local.leash import readable

_POLL_S = 0.02
_LEASH = str(Path(__file__).with_name("leash.py"))


class ChildFailed(AtOnceError):
    """A child process ended before it was ready; its last words are in the message."""


class Child:
    """One running child. Use as a context manager, or call `stop`."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        log: Path | None = None,
        scratch: Path | None = None,
        listens: bool = False,
    ) -> None:
        """`scratch` is removed when the parent dies without having stopped this child. `listens`: see `tell`."""
        self.command = list(command)
        self.log = log
        leash_read, self._leash_write = os.pipe()
        self._log_file = log.open("ab") if log else None
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", _LEASH, str(leash_read), str(scratch or ""), *command],
                env=dict(env) if env is not None else None,
                cwd=cwd,
                stdin=subprocess.PIPE if listens else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._log_file or None,
                pass_fds=(leash_read,),
                start_new_session=True,  # Ctrl-C reaches us alone; we stop our children in order
            )
        finally:
            os.close(leash_read)

    @property
    def leash_pid(self) -> int:
        return self._process.pid

    @property
    def pid(self) -> int:
        """The command's own process id (the leash's only direct child that it started)."""
        while self._process.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):
                offspring = psutil.Process(self._process.pid).children()
                if offspring:
                    return offspring[0].pid
            time.sleep(_POLL_S)  # the leash itself is still starting
        raise ChildFailed(f"{self.command[0]} is not running")

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def tell(self, line: str) -> None:
        """One line on its standard input."""
        stdin = self._process.stdin
        if stdin is None:
            raise ChildFailed("standard input was not kept open")
        try:
            stdin.write(line.encode() + b"\n")
            stdin.flush()
        except (OSError, ValueError) as error:  # it has ended, or we have ended it
            raise ChildFailed(f"{self.command[0]} does not listen any more: {error}{self._last_words()}") from None

    def wait_for_line(self, prefix: str, timeout_s: float) -> str:
        """The first line on standard output that starts with `prefix`."""
        stdout = self._process.stdout
        if stdout is None:
            raise ChildFailed("standard output was not captured")
        deadline = time.monotonic() + timeout_s
        buffer = b""
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise ChildFailed(
                    f"{self.command[0]} did not print {prefix!r} within {timeout_s:g} s{self._last_words()}"
                )
            if not readable([stdout.fileno()], left):
                continue
            chunk = os.read(stdout.fileno(), 65536)
            if not chunk:
                code = self._process.wait()
                raise ChildFailed(
                    f"{self.command[0]} ended with code {code} before it was ready{self._last_words(buffer)}"
                )
            buffer += chunk
            for line in buffer.splitlines(keepends=True):
                if line.startswith(prefix.encode()) and line.endswith(b"\n"):
                    return line.decode().rstrip("\n")

    def read_output(self) -> str:
        """Everything the child prints until it closes its standard output."""
        stdout = self._process.stdout
        return stdout.read().decode(errors="replace") if stdout else ""

    def wait(self, timeout_s: float | None = None) -> int:
        return self._process.wait(timeout_s)

    def send_signal(self, number: int) -> None:
        """To the command itself. SIGKILL and SIGSTOP cannot be passed on by the leash, so they go directly."""
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess, ChildFailed):
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL the command and everything it started, at once."""
        # Again and again: the leash may not have started the command yet, and what was killed may just have forked.
        while self._process.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):
                for process in psutil.Process(self._process.pid).children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.send_signal(signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_POLL_S)
        self._release()

    def stop(self, grace_s: float = 10.0) -> int:
        """SIGTERM, then SIGKILL after `grace_s`."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(grace_s)
            except subprocess.TimeoutExpired:
                self.kill()
        self._release()
        return self._process.returncode

    def _release(self) -> None:
        if self._leash_write >= 0:
            os.close(self._leash_write)
            self._leash_write = -1
        if self._process.stdout:
            self._process.stdout.close()
        if self._process.stdin:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        if self._log_file:
            self._log_file.close()

    def _last_words(self, output: bytes = b"") -> str:
        words = output
        if self.log and self.log.exists():
            words = words + self.log.read_bytes()[-2000:]
        text = words.decode(errors="replace").strip()
        return f". Its last output:\n{text}" if text else ""

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

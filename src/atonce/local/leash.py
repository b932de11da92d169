"""Runs a command so that it, and all it starts, ends when our parent ends: also when the parent is SIGKILLed.

Run as a script (`python leash.py FD SCRATCH COMMAND…`): it imports nothing of ours, so that it starts quickly.
FD is the read end of a pipe that only the parent holds open for writing; end of file on it means the parent is gone.
SCRATCH, unless empty, is a directory that is then removed: the parent cannot do it any more.
"""

import ctypes
import os
import select
import signal
import sys

PR_SET_CHILD_SUBREAPER = 36
GRACE_S = 10.0
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def children() -> "list[int]":
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as stat:
                    parent = int(stat.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue
            if parent == os.getpid():
                found.append(int(entry))
    return found


def readable(fds: list[int], timeout_s: float | None) -> list[int]:
    """By poll: select knows no descriptor above 1023, and a parent may hold thousands."""
    polled = select.poll()
    for fd in fds:
        polled.register(fd, select.POLLIN)
    return [fd for fd, _ in polled.poll(None if timeout_s is None else timeout_s * 1000)]


def main() -> int:
    fd, scratch, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    # Orphans of the command become our children, so that none escapes by starting a session of its own.
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    pending: list[int] = []
    for number in PASSED_ON:
        signal.signal(number, lambda n, _frame: pending.append(n))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # Blocked until the child has let go of our handlers: an earlier signal would be noted there and forgotten.
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        for number in (*PASSED_ON, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        os.close(fd)
        try:
            os.execvp(command[0], command)
        except OSError as error:
            os.write(2, f"cannot start {command[0]}: {error.strerror}\n".encode())
            os._exit(127)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    status = None
    parent_gone = False
    while status is None:
        ready = readable([wake_read] if parent_gone else [wake_read, fd], GRACE_S if parent_gone else None)
        if parent_gone and not ready:
            os.kill(child, signal.SIGKILL)
        if wake_read in ready:
            os.read(wake_read, 4096)
        while pending:
            os.kill(child, pending.pop(0))
        if not parent_gone and fd in ready and not os.read(fd, 1):
            parent_gone = True
            os.kill(child, signal.SIGTERM)
        while True:
            try:
                pid, code = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid == child:
                status = code
    left = children()
    while left:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            while os.waitpid(-1, 0)[0]:
                pass
        except ChildProcessError:
            pass
        left = children()
    if scratch and (parent_gone or readable([fd], 0)):
        os.spawnlp(os.P_WAIT, "rm", "rm", "-rf", "--", scratch)
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)


if __name__ == "__main__":
    sys.exit(main())

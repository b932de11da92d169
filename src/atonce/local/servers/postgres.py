"""A PostgreSQL server of our own, in a scratch directory: for the demo, the verifier and the tests.

It uses the newest PostgreSQL that the operating system has installed, listens on loopback and on a socket inside its
directory, touches no system service, and ends with the process that started it. fsync stays on: we test crashes.
Nobody else on the machine gets in: its superuser has a random password, kept in a directory that only we may enter.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from atonce.errors import UnreachableError, UsageError
from atonce.local.child import Child, ChildFailed
from atonce.local.ports import free_port
from atonce.local.private import make_private_directory, write_private
from atonce.local.scratch import scratch_directory

ROLE = "atonce"
_INSTALLED = Path("/usr/lib/postgresql")
_START_TIMEOUT_S = 60.0
_AS_USER = """
import os, sys
user, group = map(int, sys.argv[1:3])
os.setgroups([]), os.setgid(group), os.setuid(user), os.execv(sys.argv[3], sys.argv[3:])
"""


def find_binaries() -> Path:
    """The `bin` directory of the newest PostgreSQL on this machine."""
    found = [path for path in _INSTALLED.glob("*/bin") if (path / "initdb").exists() and path.parent.name.isdigit()]
    if found:
        return max(found, key=lambda path: int(path.parent.name))
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    raise UsageError(
        f"no PostgreSQL server was found in {_INSTALLED}/*/bin or on PATH. "
        "Next: install it (Debian, Ubuntu: `apt-get install postgresql`), or call `install()` as root."
    )


def install() -> Path:
    """Install Debian's package as root, without letting it create or start a system cluster."""
    try:
        return find_binaries()
    except UsageError:
        apt = shutil.which("apt-get")
        if os.geteuid() != 0 or apt is None:
            raise
    # The package would create and start a cluster; this setting of its own stops that, and touches no running one.
    settings = Path("/etc/postgresql-common/createcluster.conf")
    if not settings.exists():
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text("create_main_cluster = false\n")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    options = ["-y", "--no-install-recommends", "-o", "Dpkg::Options::=--force-confold"]
    done = subprocess.run([apt, "install", *options, "postgresql"], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise UsageError(f"apt-get install postgresql failed with code {done.returncode}: {done.stderr.strip()[-500:]}")
    return find_binaries()


def _server_user() -> pwd.struct_passwd | None:
    """PostgreSQL refuses to run as root; None when we are not root and simply run as ourselves."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise UsageError("we are root, and there is neither a user `postgres` nor `nobody` to run PostgreSQL as")


class PostgresServer:
    """One running server. Use as a context manager, or call `stop`.

    `settings` are PostgreSQL's own (`{"fsync": "off"}`). The port stays the same over `kill` and `restart`.
    """

    def __init__(self, directory: Path | None = None, *, settings: dict[str, str] | None = None) -> None:
        self._bin = find_binaries()
        self._user = _server_user()
        self._owned = directory is None
        # Short, and the server's user's own: socket paths end at 107 bytes, and test directories are often 0700.
        self.directory = directory or scratch_directory("pg")
        self._password_file = self.directory / "password"
        try:
            make_private_directory(self.directory, "data")  # the socket is in it
            if self._user:
                os.chown(self.directory, self._user.pw_uid, self._user.pw_gid)
        except OSError as error:
            raise UsageError(f"{self.directory} cannot hold PostgreSQL's data: {error.strerror}") from None
        self.data = self.directory / "data"
        self.log = self.directory / "postgres.log"
        self.port = free_port()
        self._settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.directory),
            "unix_socket_permissions": "0700",
            "password_encryption": "scram-sha-256",
            "max_connections": "60",
            "max_wal_size": "4GB",
            **(settings or {}),
        }
        self._child: Child | None = None
        try:
            if not (self.data / "PG_VERSION").exists():
                self._make_password()
                self._initdb()
            elif not self._password_file.exists():
                self._make_password()
                self._ask_for_passwords()
            self.password = self._password_file.read_text()
            self.start()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        return f"postgresql://{ROLE}:{self.password}@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int:
        if self._child is None:
            raise ChildFailed("PostgreSQL is not running")
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.running

    def start(self) -> None:
        if self.running:
            return
        options = [part for key, value in self._settings.items() for part in ("-c", f"{key}={value}")]
        self._child = Child(
            self._unprivileged([str(self._bin / "postgres"), "-D", str(self.data), *options]),
            cwd=self.directory,
            log=self.log,
            scratch=self.directory if self._owned else None,
        )
        self._wait_until_ready(self._child)

    def kill(self) -> None:
        """SIGKILL the server and all its backends: what a crash of the machine's process leaves behind."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def restart(self) -> None:
        """Start again after `kill`, or a clean stop and start."""
        self._shut_down()
        self.start()

    def stop(self) -> None:
        """Stop, and remove the directory if it is our own."""
        self._shut_down()
        if self._owned:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _shut_down(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        # SIGINT is PostgreSQL's fast shutdown; SIGTERM, which Child sends, would wait for open sessions.
        child.send_signal(signal.SIGINT)
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            pass
        child.stop()

    def _unprivileged(self, command: list[str]) -> list[str]:
        """The same command as the server's user. We drop to it ourselves: it may not be allowed to run our Python."""
        if self._user is None:
            return command
        return [sys.executable, "-I", "-S", "-c", _AS_USER, str(self._user.pw_uid), str(self._user.pw_gid), *command]

    def _make_password(self) -> str:
        password = secrets.token_urlsafe(24)
        write_private(self._password_file, password.encode())
        if self._user:
            os.chown(self._password_file, self._user.pw_uid, self._user.pw_gid)
        return password

    def _ask_for_passwords(self) -> None:
        """A database that let in everybody on this machine: its superuser gets a password, which all must give."""
        command = [str(self._bin / "postgres"), "--single", "-D", str(self.data), "postgres"]
        password = self._make_password()
        done = subprocess.run(
            self._unprivileged(command),
            cwd=self.directory,
            input=f"ALTER ROLE {ROLE} PASSWORD '{password}'\n",
            capture_output=True,
            text=True,
        )
        try:
            if done.returncode != 0 or "ERROR" in done.stderr:
                raise UsageError(
                    f"the superuser of the database in {self.data} could not be given a password: "
                    f"{done.stderr.strip()[-500:]}. Next: stop the server that runs on it, if any."
                )
            rules = ("local all all", "host all all 127.0.0.1/32", "host all all ::1/128")
            (self.data / "pg_hba.conf").write_text("".join(f"{rule} scram-sha-256\n" for rule in rules))
        except BaseException:
            self._password_file.unlink()  # so that the next start tries again
            raise

    def _initdb(self) -> None:
        command = [str(self._bin / "initdb"), "-D", str(self.data), "-U", ROLE, "-E", "UTF8", "--locale=C.UTF-8"]
        command += ["--auth=scram-sha-256", f"--pwfile={self._password_file}"]
        done = subprocess.run(
            self._unprivileged([*command, "--no-sync", "--no-instructions"]),
            cwd=self.directory,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise UsageError(
                f"initdb could not make a database in {self.data}: {done.stderr.strip()[-800:]}. "
                f"Next: give a directory that {self._user.pw_name if self._user else 'you'} may enter and write."
            )

    def _wait_until_ready(self, child: Child) -> None:
        ready = [str(self._bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        deadline = time.monotonic() + _START_TIMEOUT_S
        while subprocess.run(ready, check=False).returncode != 0:
            if not child.running or time.monotonic() > deadline:
                words = self.log.read_text(errors="replace")[-1500:].strip()
                self.kill()
                raise UnreachableError(f"PostgreSQL on port {self.port} did not become ready. Last output:\n{words}")
            time.sleep(0.02)

    def __enter__(self) -> PostgresServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

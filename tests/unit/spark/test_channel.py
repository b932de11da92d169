"""The driver's door: tasks get in, strangers do not, and they hold up nobody."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from atonce.connectors.kafka.write.lease import Lease, LeaseServer
from atonce.connectors.sql.rows_in import DATA, Feed, Intake
from atonce.errors import AttemptAborted
from atonce.spark import channel as driver_door
from atonce.spark.channel import Door, Place, knock

PLACES = [Place(), Place(encrypted=True)]


def echo(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(connection.recv(100))


@pytest.fixture(params=PLACES, ids=["plain", "encrypted"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.param
    return found


@pytest.fixture
def secret(place: Place) -> str:
    return place.new_secret()


@pytest.fixture
def door(place: Place, secret: str) -> Iterator[Door]:
    opened = Door(place, secret, echo, "test-door")
    yield opened
    opened.close()


def test_a_task_gets_in(door: Door, secret: str) -> None:
    with knock(("127.0.0.1", door.port), secret, 10) as connection:
        connection.sendall(b"hello")
        assert connection.recv(100) == b"hello"


@pytest.mark.parametrize("encrypted", [False, True])
def test_another_secret_does_not(door: Door, encrypted: bool) -> None:
    with pytest.raises(OSError):
        knock(("127.0.0.1", door.port), Place(encrypted=encrypted).new_secret(), 5)


def test_nothing_that_a_stranger_says_is_served(place: Place, secret: str) -> None:
    served = threading.Event()
    door = Door(place, secret, lambda _: served.set(), "test-door")
    with socket.create_connection(("127.0.0.1", door.port), 10) as stranger:
        stranger.sendall(os.urandom(4096))
        with contextlib.suppress(ConnectionResetError):
            while stranger.recv(4096):
                pass
    assert not served.is_set()
    door.close()


def test_who_says_nothing_is_closed(place: Place, secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_door, "GREETING_S", 0.2)
    door = Door(place, secret, echo, "test-door")
    with socket.create_connection(("127.0.0.1", door.port), 10) as stranger:
        with contextlib.suppress(ConnectionResetError):
            while stranger.recv(100):
                pass
    door.close()


def test_a_door_that_is_closed_hangs_up_on_its_tasks_too(place: Place, secret: str) -> None:
    """A worker process keeps its connection for the next task, and the driver would keep its end as long."""

    def answer(connection: socket.socket) -> None:
        while data := connection.recv(100):
            connection.sendall(data)

    door = Door(place, secret, answer, "test-door")
    with knock(("127.0.0.1", door.port), secret, 10) as connection:
        connection.sendall(b"hello")
        assert connection.recv(100) == b"hello"
        door.close()
        connection.settimeout(10)
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(100) == b""


def test_a_crowd_of_strangers_keeps_no_task_out(door: Door, secret: str) -> None:
    crowd = [socket.create_connection(("127.0.0.1", door.port), 10) for _ in range(200)]
    with knock(("127.0.0.1", door.port), secret, 10) as connection:
        connection.sendall(b"hello")
        assert connection.recv(100) == b"hello"
    assert len(door._strangers) <= driver_door.MOST_STRANGERS
    for one in crowd:
        one.close()


def test_the_secret_is_not_on_the_wire(place: Place, secret: str) -> None:
    """Nor, with TLS, is anything else."""
    door = Door(place, secret, echo, "test-door")
    heard = bytearray()
    listening = socket.create_server(("127.0.0.1", 0))

    def carry(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(4096):
                heard.extend(data)
                target.sendall(data)

    def relay() -> None:
        near, _ = listening.accept()
        far = socket.create_connection(("127.0.0.1", door.port))
        threading.Thread(target=carry, args=(far, near), daemon=True).start()
        carry(near, far)

    threading.Thread(target=relay, daemon=True).start()
    with knock(listening.getsockname(), secret, 10) as connection:
        connection.sendall(b"some rows")
        assert connection.recv(100) == b"some rows"
    assert secret.encode() not in heard and secret[:64].encode() not in heard
    assert (b"some rows" in heard) is not place.encrypted
    door.close()
    listening.close()


def test_a_man_in_the_middle_with_a_certificate_of_his_own_gets_nothing() -> None:
    """He ends the task's TLS with his own certificate, and carries the proofs on to the driver."""
    place = Place(encrypted=True)
    secret = place.new_secret()
    door = Door(place, secret, echo, "test-door")
    from atonce.local.certificates import Authority

    held = Authority("in the middle").held
    mine = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    listening = socket.create_server(("127.0.0.1", 0))

    def between(folder: Any) -> None:
        near, _ = listening.accept()
        with contextlib.suppress(OSError):
            task = mine.wrap_socket(near, server_side=True)
            trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
            driver = trusting.wrap_socket(socket.create_connection(("127.0.0.1", door.port)))
            task.sendall(driver.recv(32))
            driver.sendall(task.recv(64))
            answer = driver.recv(32)
            task.sendall(answer or os.urandom(32))
            task.close()

    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "mine.pem").write_bytes(held.key + held.certificate)
        mine.load_cert_chain(Path(folder) / "mine.pem")
        threading.Thread(target=between, args=(folder,), daemon=True).start()
        with pytest.raises(OSError):
            knock(listening.getsockname(), secret, 10)
    door.close()
    listening.close()


class _Conf(dict[str, str]):
    pass


class _Session:
    def __init__(self, master: str, **conf: str) -> None:
        self.sparkContext = self
        self.master = master
        self._conf = _Conf({name.replace("_", "."): value for name, value in conf.items()})

    def getConf(self) -> _Conf:
        return self._conf


@pytest.mark.parametrize(
    ("session", "place"),
    [
        (_Session("local[2]", spark_driver_host="10.0.0.5"), Place()),
        (_Session("spark://m:7077", spark_driver_host="h"), Place("h", "h")),
        (
            _Session("spark://m:7077", spark_driver_host="h", spark_driver_bindAddress="10.0.0.5"),
            Place("10.0.0.5", "h"),
        ),
        (
            _Session("yarn", spark_driver_host="h", spark_network_crypto_enabled="true"),
            Place("h", "h", encrypted=True),
        ),
        (_Session("k8s://x", spark_driver_host="h", spark_ssl_enabled="TRUE"), Place("h", "h", encrypted=True)),
    ],
)
def test_it_listens_where_sparks_driver_does(session: _Session, place: Place) -> None:
    assert Place.of(session) == place


def test_the_lease_and_the_intake_work_over_tls() -> None:
    place = Place(encrypted=True)
    lease = LeaseServer(place)
    held = lease.open("1-0")
    first, later = Lease(held.address), Lease(held.address)
    assert first.ask("out", 0) and later.ask("out", 1)
    assert not first.broken()
    lease.revoke(held)
    lease.close()
    with pytest.raises(AttemptAborted):
        Lease(held.address)
    taken: list[bytes] = []
    secret = place.new_secret()
    intake = Intake(lambda payload: taken.append(bytes(payload)), secret, place)
    feed = Feed(intake.address, secret, 0, 7)
    feed.send(DATA, memoryview(b"x" * 3_000_000), 3)
    feed.finish()
    feed.close()
    assert intake.check([(0, 7, 3, 3_000_000)]) == 3 and len(b"".join(taken)) == 3_000_000
    intake.close()

"""A TCP proxy before PostgreSQL that cuts a connection at its COMMIT, once: before it, after it, or with it still under way."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Literal

Cut = Literal["before", "after", "delayed"]
COMMIT = b"COMMIT\x00"


class CuttingProxy:
    """`arm` it with one cut; `fired` tells that it happened. `release` lets a delayed COMMIT go on to the server."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._cut: Cut | None = None
        self.fired = threading.Event()
        self._released = threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, cut: Cut) -> None:
        self._cut = cut
        self.fired.clear()

    def release(self) -> None:
        self._released.set()

    def close(self) -> None:
        self.release()
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            try:
                upstream = socket.create_connection(self._target)
            except OSError:
                client.close()  # the server is down, and the client is to notice
                continue
            drop = threading.Event()
            threading.Thread(target=self._answers, args=(upstream, client, drop), daemon=True).start()
            threading.Thread(target=self._requests, args=(client, upstream, drop), daemon=True).start()

    def _requests(self, client: socket.socket, upstream: socket.socket, drop: threading.Event) -> None:
        try:
            while data := client.recv(65536):
                if self._cut is not None and data.endswith(COMMIT):
                    self._do_cut(client, upstream, drop, data)
                    return
                upstream.sendall(data)
        except OSError:
            pass
        finally:
            for end in (client, upstream):
                # Closing alone would not end it: the other thread still holds the socket in its recv.
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def _do_cut(self, client: socket.socket, upstream: socket.socket, drop: threading.Event, data: bytes) -> None:
        cut, self._cut = self._cut, None
        drop.set()
        if cut == "after":
            upstream.sendall(data)
            upstream.settimeout(10)
            upstream.recv(1)  # the answer is there: the commit is done, and the client will not hear of it
        self.fired.set()
        client.shutdown(socket.SHUT_RDWR)
        if cut == "delayed":
            self._released.wait(30)
            upstream.sendall(data)
            upstream.settimeout(10)
            upstream.recv(1)

    def _answers(self, upstream: socket.socket, client: socket.socket, drop: threading.Event) -> None:
        try:
            while not drop.is_set():
                # Peeked first, so that an answer that is to be dropped is left to whoever cuts.
                if not upstream.recv(1, socket.MSG_PEEK):
                    break
                if drop.is_set():
                    return
                client.sendall(upstream.recv(65536))
            if not drop.is_set():
                client.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

"""Tokens for OAUTHBEARER: fetched once, renewed before they end, and never shown."""

from __future__ import annotations

import base64
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from atonce.client import oauth
from atonce.client.config import Properties, connection_settings
from atonce.client.errors import AccessDenied
from atonce.errors import UnreachableError, UsageError

SECRET = "s3cr:t+ü"
BASE = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}


class Endpoint(HTTPServer):
    """A login server: remembers what was asked, answers what it is told to."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, str]] = []
        self.status, self.answer = 200, json.dumps({"access_token": "first", "expires_in": 100}).encode()
        self.url = f"http://127.0.0.1:{self.server_port}/token"


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked.append((self.headers["Authorization"], body))
        self.send_response(self.server.status)
        if self.server.status == 302:
            self.send_header("Location", self.server.url + "/elsewhere")
        self.end_headers()
        self.wfile.write(self.server.answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def _login(endpoint: Endpoint, **more: str) -> oauth.Login:
    return oauth.Login(endpoint=endpoint.url, client_id="me", client_secret=SECRET, **more)


def test_client_credentials_are_sent_as_oauth_wants_them(endpoint: Endpoint) -> None:
    assert oauth.fetch(_login(endpoint, scope="kafka read")) == oauth.Token("first", 100.0)
    ((basic, body),) = endpoint.asked
    assert base64.b64decode(basic.removeprefix("Basic ")).decode() == "me:s3cr%3At%2B%C3%BC"
    assert body == "grant_type=client_credentials&scope=kafka+read"


def test_a_token_is_used_until_four_fifths_of_its_life_are_over(endpoint: Endpoint) -> None:
    clock = Clock()
    tokens = oauth.Tokens(_login(endpoint), clock)
    assert [tokens.token(), tokens.token()] == ["first", "first"]
    clock.now = 79.9
    endpoint.answer = json.dumps({"access_token": "second", "expires_in": 100}).encode()
    assert tokens.token() == "first" and len(endpoint.asked) == 1
    clock.now = 80.1
    assert tokens.token() == "second" and len(endpoint.asked) == 2


def test_the_old_token_is_used_while_a_new_one_cannot_be_had(endpoint: Endpoint) -> None:
    clock = Clock()
    tokens = oauth.Tokens(_login(endpoint), clock)
    tokens.token()
    endpoint.status = 503
    clock.now = 90
    assert [tokens.token(), tokens.token()] == ["first", "first"]
    assert len(endpoint.asked) == 2  # and a login server in trouble is not asked by every call
    clock.now = 100.1
    with pytest.raises(UnreachableError, match="answered 503"):
        tokens.token()


@pytest.mark.parametrize(
    ("status", "answer", "kind", "words"),
    [
        (401, b'{"error": "invalid_client", "error_description": "hush"}', AccessDenied, "401 (invalid_client)"),
        (400, b"<html>hush</html>", AccessDenied, "answered 400 to client 'me'"),
        (302, b"", AccessDenied, "answered 302"),
        (200, b'{"token_type": "hush"}', AccessDenied, "gave no token"),
        (200, b'{"access_token": "hush', AccessDenied, "begins like JSON"),
        (200, b'{"access_token": "hush\\u0001auth=x"}', AccessDenied, "gave no token"),
        (429, b"hush", UnreachableError, "429"),
    ],
)
def test_what_the_login_server_says_is_told_in_one_line(
    endpoint: Endpoint, status: int, answer: bytes, kind: type[Exception], words: str
) -> None:
    endpoint.status, endpoint.answer = status, answer
    with pytest.raises(kind) as raised:
        oauth.fetch(_login(endpoint))
    said = str(raised.value)
    assert words in said and endpoint.url in said and "\n" not in said
    assert "hush" not in said and SECRET not in said
    assert len(endpoint.asked) == 1  # a redirect is not followed: it would carry the secret elsewhere


def test_a_login_server_that_is_away_is_named() -> None:
    with pytest.raises(UnreachableError, match=r"http://127.0.0.1:1/token cannot be reached"):
        oauth.fetch(oauth.Login(endpoint="http://127.0.0.1:1/token", client_id="me", client_secret=SECRET))


def _jwt(claims: dict[str, object]) -> str:
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({}, claims))
    return ".".join([*parts, "signature"])


def _prints(folder: Path, text: str, ending: str = "") -> oauth.Login:
    script = folder / "token command.py"
    script.write_text(f"import sys; print({text!r}); {ending}")
    return oauth.read_login({"sasl.oauthbearer.token.command": f"{sys.executable} '{script}'"})


@pytest.mark.parametrize(
    ("printed", "token", "life_s"),
    [
        ("opaque", "opaque", oauth.UNKNOWN_LIFE_S),
        ('{"access_token": "a", "expires_in": "7"}', "a", 7.0),
        ('{"accessToken": "a", "expires_on": 4102444800, "expiresOn": "in words"}', "a", 4102444800.0),
        ('{"token": "a", "expires_at_ms": 4102444800000}', "a", 4102444800.0),
        (_jwt({"exp": 4102444800}), _jwt({"exp": 4102444800}), 4102444800.0),
        (_jwt({"sub": "me"}), _jwt({"sub": "me"}), oauth.UNKNOWN_LIFE_S),
        (_jwt({"exp": 1}), _jwt({"exp": 1}), 1.0),
    ],
)
def test_a_command_prints_a_token_in_any_of_the_usual_forms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, token: str, life_s: float
) -> None:
    monkeypatch.setattr(oauth.time, "time", lambda: 0.0)
    found = oauth.fetch(_prints(tmp_path, printed))
    assert (found.text, found.life_s) == (token, life_s)


def test_a_command_that_fails_is_told_by_its_last_line_and_never_by_its_output(tmp_path: Path) -> None:
    login = _prints(tmp_path, "hush", "sys.stderr.write('first\\nno credentials found\\n'); sys.exit(3)")
    with pytest.raises(AccessDenied) as raised:
        oauth.fetch(login)
    assert "exit code 3: no credentials found" in str(raised.value) and "hush" not in str(raised.value)
    with pytest.raises(AccessDenied, match="cannot be run here"):
        oauth.fetch(oauth.Login(command="/nowhere/signer --region eu"))


def test_java_and_librdkafka_names_mean_the_same() -> None:
    url = "https://login.example.org/token"
    jaas = 'o.a.k.OAuthBearerLoginModule required clientId="me" clientSecret="s" scope="kafka" extension_cluster="lkc";'
    java = {**BASE, "sasl.oauthbearer.token.endpoint.url": url, "sasl.jaas.config": jaas}
    librdkafka = {
        **BASE,
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "s",
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.extensions": "cluster=lkc",
    }
    newer = {name.replace("bearer.client.", "bearer.client.credentials.client."): v for name, v in librdkafka.items()}
    assert connection_settings(java) == connection_settings(librdkafka) == connection_settings(newer)
    assert connection_settings(java)["sasl_oauth_token_provider"].login.extensions == (("cluster", "lkc"),)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "neither is given"),
        ({"token.command": "x", "token.endpoint.url": "https://x/"}, "both are given"),
        ({"token.endpoint.url": "https://login/"}, "needs sasl.oauthbearer.client.id"),
        ({"token.endpoint.url": "http://login/", "client.id": "a", "client.secret": "hush"}, "use https"),
        ({"token.endpoint.url": "ftp://login/", "client.id": "a", "client.secret": "hush"}, "no address"),
        ({"token.endpoint.url": "https://u:hush@login/", "client.id": "a", "client.secret": "b"}, "no address"),
        ({"token.command": "'hush"}, "cannot be split"),
        ({"token.command": "x", "extensions": "auth=hush"}, "extensions"),
        ({"token.command": "x", "method": "magic"}, "neither oidc nor default"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(given: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError) as raised:
        connection_settings({**BASE, **{f"sasl.oauthbearer.{name}": value for name, value in given.items()}})
    assert words in str(raised.value)
    assert "'hush" not in str(raised.value).replace("'auth=hush'", "")


def test_oauth_settings_without_the_mechanism_are_refused() -> None:
    with pytest.raises(UsageError, match="OAUTHBEARER only"):
        connection_settings({"sasl.mechanism": "PLAIN", "sasl.oauthbearer.scope": "x"})


def test_texts_show_neither_secret_nor_command() -> None:
    login = oauth.Login(endpoint="https://login/", client_id="me", client_secret=SECRET)
    shown = Properties(
        {
            "sasl.oauthbearer.client.secret": SECRET,
            "sasl.oauthbearer.token.command": SECRET,
            "sasl.oauthbearer.token.endpoint.url": "https://login/",
        }
    )
    assert SECRET not in f"{login!r} {login} {oauth.Token(SECRET, 1.0)!r} {shown}"
    assert "https://login/" in str(shown)

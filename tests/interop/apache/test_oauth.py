"""OAUTHBEARER against Apache Kafka's own listener, which checks signed tokens by the login server's public keys.

Sessions end after seconds (`connections.max.reauth.ms`): clients log in again, and a pipeline goes on.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic
from atonce.errors import UsageError
from atonce.local.ports import free_ports
from atonce.local.servers.kafka import ApacheKafka

pytestmark = pytest.mark.soak

CLIENT, SECRET, AUDIENCE, LIFE_S = "pipelines", "tr0ub4dor+and:3", "kafka", 6
RECORDS = 200


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class LoginServer(ThreadingHTTPServer):
    """Client credentials in, a signed token out, and the public key for whoever must check it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.key = rsa.generate_private_key(65537, 2048)
        self.issued = 0
        self.url = f"http://127.0.0.1:{self.server_port}"

    def token(self) -> str:
        now = int(time.time())
        claims = {"sub": CLIENT, "aud": AUDIENCE, "scope": "kafka", "iat": now, "exp": now + LIFE_S}
        head = {"alg": "RS256", "kid": "k", "typ": "JWT"}
        signed = ".".join(_text(json.dumps(part).encode()) for part in (head, claims))
        signature = self.key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        self.issued += 1
        return f"{signed}.{_text(signature)}"

    def keys(self) -> dict[str, object]:
        numbers = self.key.public_key().public_numbers()
        modulus = _text(numbers.n.to_bytes(256, "big"))
        return {"keys": [{"kty": "RSA", "kid": "k", "alg": "RS256", "use": "sig", "n": modulus, "e": "AQAB"}]}


class _Handler(BaseHTTPRequestHandler):
    server: LoginServer

    def _answer(self, status: int, body: dict[str, object]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self) -> None:
        self._answer(200, self.server.keys())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        basic = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        if basic != f"{CLIENT}:tr0ub4dor%2Band%3A3":
            self._answer(401, {"error": "invalid_client"})
        else:
            self._answer(200, {"access_token": self.server.token(), "expires_in": LIFE_S})

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def login_server() -> Iterator[LoginServer]:
    server = LoginServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def kafka(login_server: LoginServer) -> Iterator[str]:
    """Its OAUTHBEARER listener."""
    package, listener = "org.apache.kafka.common.security.oauthbearer", "listener.name.sasl_plaintext.oauthbearer"
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{listener}.sasl.jaas.config": f"{package}.OAuthBearerLoginModule required;",
        f"{listener}.sasl.server.callback.handler.class": f"{package}.OAuthBearerValidatorCallbackHandler",
        f"{listener}.sasl.oauthbearer.jwks.endpoint.url": f"{login_server.url}/keys",
        f"{listener}.sasl.oauthbearer.expected.audience": AUDIENCE,
        f"{listener}.connections.max.reauth.ms": "3000",
    }
    (port,) = free_ports(1)
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={login_server.url}/keys"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", allowed)
        server = ApacheKafka(settings=settings, listeners={"SASL_PLAINTEXT": port}).start()
    with server:
        yield f"127.0.0.1:{port}"


def _config(login_server: LoginServer, secret: str = SECRET) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"{login_server.url}/token",
        "sasl.oauthbearer.client.id": CLIENT,
        "sasl.oauthbearer.client.secret": secret,
    }


def _pipeline(folder: Path, servers: str, config: dict[str, str]) -> str:
    client = {**config, "sasl.oauthbearer.client.secret": "${KAFKA_SECRET}"}
    lines = "".join(f'    {key}: "{value}"\n' for key, value in client.items())
    text = "name: oauth\nguarantee: effectively-once\n"
    for side, topic in (("source", "oauth-in"), ("sink", "oauth-out")):
        text += f"{side}:\n  kafka:\n    topic: {topic}\n    servers: {servers}\n{lines}"
    (folder / "oauth.yaml").write_text(text)
    return "oauth.yaml"


def _atonce(folder: Path, *words: str, secret: str = SECRET) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "atonce.cli.main", *words],
        cwd=folder,
        env={**os.environ, "KAFKA_SECRET": secret},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def test_a_pipeline_logs_in_by_client_credentials_and_again_when_its_sessions_end(
    login_server: LoginServer, kafka: str, scratch: Path
) -> None:
    config = _config(login_server)
    lines = "".join(f"v{i}\n" for i in range(RECORDS))
    with Cluster(kafka, config) as cluster:
        for topic in ("oauth-in", "oauth-out"):
            create_topic(cluster, topic, 2)
    shown = {**config, "sasl.oauthbearer.client.secret": "${KAFKA_SECRET}"}
    words = [word for name, value in shown.items() for word in ("--config", f"{name}={value}")]
    (scratch / "lines.txt").write_text(lines)
    produced = _atonce(scratch, "produce", "oauth-in", "--servers", kafka, "--file", "lines.txt", *words)
    assert produced.returncode == 0, produced.stderr
    pipeline = _pipeline(scratch, kafka, config)
    before = login_server.issued
    run = _atonce(scratch, "run", pipeline, "--available-now")
    assert run.returncode == 0, run.stderr
    read = _atonce(
        scratch, "consume", "oauth-out", "--servers", kafka, "--from-beginning", "--max", str(RECORDS), *words
    )
    assert len(set(read.stdout.split())) == RECORDS, read.stderr
    assert login_server.issued > before
    for done in (run, read):
        assert SECRET not in done.stdout + done.stderr


def test_a_client_outlives_its_session_and_its_token(login_server: LoginServer, kafka: str) -> None:
    with Cluster(kafka, _config(login_server)) as cluster:
        issued, ends = login_server.issued, time.monotonic() + 3 * LIFE_S
        while login_server.issued < issued + 2:
            assert time.monotonic() < ends, "the token was not renewed"
            assert cluster.topic("nothing-of-the-kind") is None
            time.sleep(0.2)


def test_a_wrong_secret_is_one_line_that_does_not_show_it(login_server: LoginServer, kafka: str, scratch: Path) -> None:
    pipeline = _pipeline(scratch, kafka, _config(login_server))
    run = _atonce(scratch, "run", pipeline, "--available-now", secret="correct-horse")
    assert run.returncode == 2 and "401 (invalid_client)" in run.stderr, run.stderr
    assert "correct-horse" not in run.stdout + run.stderr and "Traceback" not in run.stderr


def test_a_token_that_the_broker_does_not_believe_is_access_denied(
    login_server: LoginServer, kafka: str, tmp_path: Path
) -> None:
    signed, _, signature = login_server.token().rpartition(".")
    script = tmp_path / "signer.py"
    script.write_text(f"print('{signed}.{signature[::-1]}')")
    config = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.command": f"{sys.executable} {script}",
    }
    with pytest.raises(UsageError, match="refused these credentials"):
        Cluster(kafka, config)

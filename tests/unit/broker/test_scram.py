"""SCRAM as RFC 7677 has it, and what must not get through."""

from __future__ import annotations

import pytest

from atonce.broker.scram import (
    Credential,
    ScramExchange,
    ScramMechanism,
    ScramRefused,
    nobody,
    read_client_first,
)

# RFC 7677, section 3.
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="
NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="


def _exchange(password: str = "pencil") -> ScramExchange:
    import base64

    credential = Credential.from_password(ScramMechanism.SHA_256, password, base64.b64decode(SALT), 4096)
    return ScramExchange(read_client_first(FIRST), credential, NONCE)


def test_the_exchange_of_the_rfc() -> None:
    exchange = _exchange()
    assert exchange.challenge == f"r=rOprNGfwEbeRWgbNEkqO{NONCE},s={SALT},i=4096".encode()
    assert exchange.finish(FINAL) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize(
    "final",
    [
        FINAL.replace(b"p=dH", b"p=eH"),  # another proof
        FINAL.replace(b"p=dHzb", b"p="),  # of another length
        FINAL.replace(b"r=rO", b"r=rP"),  # another nonce
        FINAL.replace(b"c=biws", b"c=eSws"),  # another header than the first message had
        FINAL.split(b",p=")[0],
        b"",
        b"\xff\xfe",
    ],
)
def test_a_proof_that_does_not_fit_is_refused(final: bytes) -> None:
    with pytest.raises(ScramRefused):
        _exchange().finish(final)


def test_another_password_is_refused() -> None:
    with pytest.raises(ScramRefused):
        _exchange("pencils").finish(FINAL)


@pytest.mark.parametrize(
    "first", [b"", b"p=tls-unique,,n=u,r=x", b"n,a=root,n=user,r=x", b"n,,n=a=b,r=x", b"n,,r=x", b"n,,n=u,r="]
)
def test_a_first_message_that_is_none_is_refused(first: bytes) -> None:
    with pytest.raises(ScramRefused):
        read_client_first(first)


def test_names_are_unescaped() -> None:
    assert read_client_first(b"n,,n=a=2Cb=3Dc,r=x").user == "a,b=c"


def test_who_does_not_exist_has_the_same_salt_each_time() -> None:
    one, two = (nobody(ScramMechanism.SHA_256, "ghost", b"secret") for _ in range(2))
    assert one.salt == two.salt and not one.has_password("")
    assert nobody(ScramMechanism.SHA_256, "other", b"secret").salt != one.salt

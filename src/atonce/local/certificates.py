"""A certificate authority of our own, for one broker or one run: made with `cryptography`, kept in private files.

The authority outlives the certificates that it signs: a server gets a new one when its names change or its time is half
over, and clients go on trusting it.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from atonce.extras import require
from atonce.local.private import write_private

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_AUTHORITY_DAYS = 3650
_DAYS = 730
_BACKDATED = datetime.timedelta(hours=1)  # clocks differ


@dataclass(frozen=True, slots=True, repr=False)
class Issued:
    """PEM texts."""

    key: bytes
    certificate: bytes


class Authority:
    """Signs certificates. `certificate` is what clients must trust."""

    def __init__(self, name: str, held: Issued | None = None) -> None:
        require("cryptography")
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        if held is None:
            held = _issue(name, (), None, None, _AUTHORITY_DAYS)
        self.held = held
        self._certificate = x509.load_pem_x509_certificate(held.certificate)
        key = load_pem_private_key(held.key, None)
        self._key: EllipticCurvePrivateKey = key  # type: ignore[assignment]

    @property
    def certificate(self) -> bytes:
        return self.held.certificate

    def issue(self, name: str, hosts: Sequence[str] = ()) -> Issued:
        """For a server at these names and addresses, or for a client."""
        return _issue(name, hosts, self._certificate, self._key, _DAYS)


def keep_server_certificate(folder: Path, hosts: Sequence[str]) -> tuple[Path, Path]:
    """(key and certificate, what clients trust): those in `folder`, made or renewed as needed."""
    require("cryptography")
    authority_file, trusted, keystore = (folder / name for name in ("authority.pem", "ca.pem", "server.pem"))
    if authority_file.exists():
        held = authority_file.read_bytes()
        begins = held.index(b"-----BEGIN CERTIFICATE-----")
        authority = Authority("", Issued(held[:begins], held[begins:]))
    else:
        authority = Authority(f"AtOnce broker {folder.resolve().parent.name}")
        write_private(authority_file, authority.held.key + authority.held.certificate)
    write_private(trusted, authority.certificate)
    if not keystore.exists() or _is_stale(keystore.read_bytes(), hosts):
        issued = authority.issue(hosts[0], hosts)
        write_private(keystore, issued.key + issued.certificate)
    return keystore, trusted


def _is_stale(keystore: bytes, hosts: Sequence[str]) -> bool:
    from cryptography import x509

    held = x509.load_pem_x509_certificate(keystore)
    names = held.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    known = {str(name.value) for name in names}
    half = held.not_valid_before_utc + (held.not_valid_after_utc - held.not_valid_before_utc) / 2
    return not set(hosts) <= known or datetime.datetime.now(datetime.UTC) > half


def _issue(
    name: str,
    hosts: Sequence[str],
    issuer: x509.Certificate | None,
    signing_key: EllipticCurvePrivateKey | None,
    days: int,
) -> Issued:
    """Signed by `issuer`, or by itself as an authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name[:64])])
    now = datetime.datetime.now(datetime.UTC)
    building = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer is not None else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=0 if issuer is None else None), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
    )
    signer = signing_key or key
    building = building.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False)
    building = building.add_extension(_usage(signs=issuer is None), True)
    if hosts:
        building = building.add_extension(x509.SubjectAlternativeName([_name(host) for host in hosts]), False)
    made = building.sign(signer, hashes.SHA256())
    key_text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Issued(key_text, made.public_bytes(serialization.Encoding.PEM))


def _usage(*, signs: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)

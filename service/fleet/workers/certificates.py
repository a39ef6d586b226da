"""Faults of certificates, which explain a connection that was refused."""

import datetime
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature


def faults_of(ca: Path, cert: Path) -> list[str]:
    """Return the faults of an authority's certificate and of one that it should have signed, as sentences.

    Args:
        ca: file of the authority's certificate.
        cert: file of the other certificate.
    """
    try:
        authority, own = (x509.load_pem_x509_certificate(path.read_bytes()) for path in (ca, cert))
    except (OSError, ValueError) as error:
        return [f"{ca} or {cert} is no certificate: {error}."]
    return [*_faults(ca, authority), *_faults(cert, own), *_signature_faults(ca, authority, cert, own)]


def _faults(path: Path, certificate: x509.Certificate) -> Iterator[str]:
    now = datetime.datetime.now(datetime.UTC)
    if now > certificate.not_valid_after_utc:
        yield f"{path} expired on {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC."
    if now < certificate.not_valid_before_utc:
        yield f"{path} is valid only from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC."


def _signature_faults(ca: Path, authority: x509.Certificate, cert: Path, own: x509.Certificate) -> Iterator[str]:
    try:
        own.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        yield f"{cert} is not signed by {ca}."

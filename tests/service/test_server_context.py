"""What a listener sends in a handshake."""

import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_pem_x509_certificates
from dra_extender.service.certificates import chain_to_send, server_context

from tests.support.api.tls import Issuer, authority, issuer


@pytest.fixture
def ours(tmp_path: Path) -> Issuer:
    return issuer(tmp_path / "ours")


def test_the_issuer_is_sent_behind_a_single_certificate_that_callers_trust_too(ours: Issuer) -> None:
    certificate, _ = ours.server()
    chain = load_pem_x509_certificates(
        chain_to_send(certificate.read_bytes(), ours.bundle(authority("other")).read_bytes())
    )
    assert chain == [
        *load_pem_x509_certificates(certificate.read_bytes()),
        *load_pem_x509_certificates(ours.pair.certificate),
    ]


def test_what_a_file_sends_stays_as_it_is_without_a_known_issuer(ours: Issuer) -> None:
    certificate = ours.server()[0].read_bytes()
    with_chain = certificate + ours.pair.certificate
    other = authority("other").certificate
    namesake = authority("test").certificate
    assert chain_to_send(certificate, b"") == certificate
    assert chain_to_send(certificate, other) == certificate
    assert chain_to_send(certificate, namesake) == certificate
    assert chain_to_send(with_chain, ours.pair.certificate) == with_chain
    assert chain_to_send(b"nothing of this kind", ours.pair.certificate) == b"nothing of this kind"
    assert chain_to_send(certificate, b"nothing of this kind") == certificate


def test_a_handshake_sends_the_issuer_whether_the_file_has_it_or_not(ours: Issuer) -> None:
    certificate, key = ours.server()
    context = server_context(certificate, key, ours.bundle())
    certificate.write_bytes(certificate.read_bytes() + ours.pair.certificate)
    issuers = load_pem_x509_certificates(ours.pair.certificate)
    for each in (context, server_context(certificate, key, ours.bundle())):
        assert first_flight(each).count(issuers[0].public_bytes(Encoding.DER)) == 1


def first_flight(context: ssl.SSLContext) -> bytes:
    """What a server answers to the first message of a caller, with TLS 1.2, in which certificates are readable."""
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust.check_hostname, trust.verify_mode, trust.maximum_version = False, ssl.CERT_NONE, ssl.TLSVersion.TLSv1_2
    to_server, to_caller = ssl.MemoryBIO(), ssl.MemoryBIO()
    for end in (trust.wrap_bio(to_caller, to_server), context.wrap_bio(to_server, to_caller, server_side=True)):
        with pytest.raises(ssl.SSLWantReadError):
            end.do_handshake()
    return to_caller.read()

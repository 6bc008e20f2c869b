"""Certificates that can still be used stay; others are made anew, and the authority is kept as long as it lasts."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.verification import PolicyBuilder, Store
from dra_extender.service.certificate_issuer import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    LIFETIME,
    CertificateSubjects,
    Issued,
    SecretData,
    is_authority,
    key_fits,
    names_in,
    read_certificates,
    renewed,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SUBJECTS = CertificateSubjects(("extender.ns.svc", "10.0.0.7", "fd00::7"), "system:kube-scheduler")


def made(now: datetime = NOW) -> Issued:
    return renewed(None, None, None, SUBJECTS, now)


def certificate(data: SecretData) -> x509.Certificate:
    return read_certificates(data[CERTIFICATE])[0]


def test_certificates_are_for_the_names_and_uses_that_are_wanted() -> None:
    issued = made()
    assert names_in(certificate(issued.server)) == set(SUBJECTS.names)
    assert names_in(certificate(issued.client)) == {"system:kube-scheduler"}
    for data in (issued.server, issued.client):
        found = certificate(data)
        found.verify_directly_issued_by(certificate(issued.authority))
        assert data[AUTHORITY] == issued.authority[CERTIFICATE]
        key = found.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        assert key.curve.name == "secp256r1"
    uses = [
        {
            each.dotted_string
            for each in certificate(data).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        }
        for data in (issued.server, issued.client)
    ]
    assert uses == [{"1.3.6.1.5.5.7.3.1"}, {"1.3.6.1.5.5.7.3.2"}]


def test_what_can_still_be_used_stays() -> None:
    issued = made()
    assert renewed(*issued, SUBJECTS, NOW + LIFETIME / 2) == issued


def test_a_certificate_is_renewed_when_a_third_of_its_time_is_left_and_the_authority_stays() -> None:
    issued = made()
    later = NOW + LIFETIME * 0.7
    again = renewed(*issued, SUBJECTS, later)
    assert again.authority == issued.authority
    assert certificate(again.server).not_valid_after_utc == later + LIFETIME
    assert again.client[KEY] != issued.client[KEY]


def test_other_names_need_another_certificate() -> None:
    issued = made()
    again = renewed(*issued, CertificateSubjects(("other.ns.svc",), SUBJECTS.client), NOW)
    assert names_in(certificate(again.server)) == {"other.ns.svc"}
    assert again.client == issued.client


@pytest.mark.parametrize("broken", [{}, {CERTIFICATE: b"x", KEY: b"y"}, {CERTIFICATE: b""}])
def test_what_cannot_be_read_is_made_anew(broken: dict[str, bytes]) -> None:
    issued = made()
    again = renewed(issued.authority, broken, issued.client, SUBJECTS, NOW)
    assert again.client == issued.client
    assert names_in(certificate(again.server)) == set(SUBJECTS.names)
    whole = renewed(broken, issued.server, issued.client, SUBJECTS, NOW)
    certificate(whole.server).verify_directly_issued_by(certificate(whole.authority))
    assert whole.authority != issued.authority


def test_an_authority_near_its_end_is_replaced_with_all_that_it_issued() -> None:
    issued = made()
    again = renewed(*issued, SUBJECTS, NOW + timedelta(days=3650) * 0.7)
    assert again.authority != issued.authority
    certificate(again.client).verify_directly_issued_by(certificate(again.authority))


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="A-label"):
        renewed(None, None, None, CertificateSubjects(("gerät.example",), "c"), NOW)


def encrypted(key: bytes) -> bytes:
    return serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"word"),
    )


@pytest.mark.parametrize("key", [b"no key", made().authority[KEY], encrypted(made().authority[KEY])])
def test_a_key_that_does_not_fit_its_certificate_is_made_anew_with_it(key: bytes) -> None:
    issued = made()
    again = renewed(issued.authority, {**issued.server, KEY: key}, issued.client, SUBJECTS, NOW)
    assert again.client == issued.client
    assert key_fits(certificate(again.server), again.server[KEY])
    whole = renewed({**issued.authority, KEY: key}, issued.server, issued.client, SUBJECTS, NOW)
    assert key_fits(certificate(whole.authority), whole.authority[KEY])
    certificate(whole.client).verify_directly_issued_by(certificate(whole.authority))
    assert renewed(*whole, SUBJECTS, NOW) == whole


def test_what_may_issue_no_certificates_is_no_authority() -> None:
    issued = made()
    again = renewed(issued.server, None, None, SUBJECTS, NOW)
    assert is_authority(certificate(again.authority))
    certificate(again.server).verify_directly_issued_by(certificate(again.authority))


def test_an_address_is_the_same_however_it_is_written() -> None:
    subjects = CertificateSubjects(("extender.ns.svc", "FD00:0::07"), SUBJECTS.client)
    issued = renewed(None, None, None, subjects, NOW)
    assert renewed(*issued, subjects, NOW) == issued


def test_a_name_that_is_too_long_for_a_common_name_is_among_the_other_names() -> None:
    """Release and namespace have up to 63 characters each."""
    name = f"{'r' * 63}.{'n' * 63}.svc"
    issued = renewed(None, None, None, CertificateSubjects((name,), SUBJECTS.client), NOW)
    verifier = PolicyBuilder().store(Store([certificate(issued.authority)])).time(NOW)
    verifier.build_server_verifier(x509.DNSName(name)).verify(certificate(issued.server), [])


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a DNS name or an address, got ''"):
        renewed(None, None, None, CertificateSubjects(("",), SUBJECTS.client), NOW)


@pytest.mark.parametrize("name", ["", "c" * 65])
def test_a_common_name_that_is_none_is_refused_with_its_text(name: str) -> None:
    with pytest.raises(ValueError, match=f"expected a common name of 1 to 64 characters, got '{name}'"):
        renewed(None, None, None, CertificateSubjects(SUBJECTS.names, name), NOW)

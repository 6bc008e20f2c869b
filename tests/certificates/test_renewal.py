"""Certificates that can still be used stay; others are made anew, and the authority is kept as long as it lasts."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from dra_extender.certificates.issue import first_expiry, names_in, read_certificates
from dra_extender.certificates.renewal import AUTHORITY, CERTIFICATE, KEY, LIFETIME, Issued, SecretData, Wanted, renewed

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WANTED = Wanted(("extender.ns.svc", "10.0.0.7", "fd00::7"), "system:kube-scheduler")


def made(now: datetime = NOW) -> Issued:
    return renewed(None, None, None, WANTED, now)


def certificate(data: SecretData) -> x509.Certificate:
    return read_certificates(data[CERTIFICATE])[0]


def test_certificates_are_for_the_names_and_uses_that_are_wanted() -> None:
    issued = made()
    assert names_in(certificate(issued.server)) == set(WANTED.names)
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
    assert renewed(*issued, WANTED, NOW + LIFETIME / 2) == issued


def test_a_certificate_is_renewed_when_a_third_of_its_time_is_left_and_the_authority_stays() -> None:
    issued = made()
    later = NOW + LIFETIME * 0.7
    again = renewed(*issued, WANTED, later)
    assert again.authority == issued.authority
    assert first_expiry(again.server[CERTIFICATE]) == later + LIFETIME
    assert again.client[KEY] != issued.client[KEY]


def test_other_names_need_another_certificate() -> None:
    issued = made()
    again = renewed(*issued, Wanted(("other.ns.svc",), WANTED.client), NOW)
    assert names_in(certificate(again.server)) == {"other.ns.svc"}
    assert again.client == issued.client


@pytest.mark.parametrize("broken", [{}, {CERTIFICATE: b"x", KEY: b"y"}, {CERTIFICATE: b""}])
def test_what_cannot_be_read_is_made_anew(broken: dict[str, bytes]) -> None:
    issued = made()
    again = renewed(issued.authority, broken, issued.client, WANTED, NOW)
    assert again.client == issued.client
    assert names_in(certificate(again.server)) == set(WANTED.names)
    whole = renewed(broken, issued.server, issued.client, WANTED, NOW)
    certificate(whole.server).verify_directly_issued_by(certificate(whole.authority))
    assert whole.authority != issued.authority


def test_certificates_of_another_authority_are_made_anew() -> None:
    issued, other = made(), made()
    again = renewed(issued.authority, other.server, issued.client, WANTED, NOW)
    certificate(again.server).verify_directly_issued_by(certificate(issued.authority))


def test_an_authority_near_its_end_is_replaced_with_all_that_it_issued() -> None:
    issued = made()
    again = renewed(*issued, WANTED, NOW + timedelta(days=3650) * 0.7)
    assert again.authority != issued.authority
    certificate(again.client).verify_directly_issued_by(certificate(again.authority))


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="A-label"):
        renewed(None, None, None, Wanted(("gerät.example",), "c"), NOW)

"""Certificates are taken up when their files change, and only if they fit together."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from dra_extender.config.service_settings import TlsSettings
from dra_extender.service.certificates import CertificateError, Certificates
from dra_extender.telemetry.metrics import Metrics

from tests.support.api.tls import Issuer, issuer


@pytest.fixture
def ours(tmp_path: Path) -> Issuer:
    return issuer(tmp_path / "ours")


def settings(ours: Issuer) -> TlsSettings:
    certificate, key = ours.server()
    return TlsSettings(cert_file=certificate, private_key_file=key, client_ca_file=ours.bundle())


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"dra_extender_{name}", labels)


def test_a_half_written_pair_is_not_used_until_it_is_whole(ours: Issuer) -> None:
    metrics = Metrics()
    certificates = Certificates(settings(ours), metrics)
    certificates.load()
    before = certificates.verbs()
    certificate, key = ours.folder / "server.crt", ours.folder / "server.key"
    old_key = key.read_bytes()
    ours.server()
    new_key = key.read_bytes()
    key.write_bytes(old_key)
    certificates.check()
    assert certificates.verbs() is before
    assert f"{certificate} with {key}" in certificates.notes()["certificates"]
    assert "last valid ones are in use" in certificates.notes()["certificates"]
    certificates.check()
    assert sample(metrics, "certificate_reads_total", outcome="refused") == 1
    key.write_bytes(new_key)
    certificates.check()
    assert certificates.verbs() is not before
    assert not certificates.notes()
    assert sample(metrics, "certificate_reads_total", outcome="taken") == 1


def test_files_that_do_not_change_are_not_read_again(ours: Issuer) -> None:
    certificates = Certificates(settings(ours), Metrics())
    certificates.load()
    before = certificates.verbs()
    certificates.check()
    assert certificates.verbs() is before


def test_metrics_say_when_certificates_expire(ours: Issuer) -> None:
    metrics = Metrics()
    given = settings(ours)
    certificates = Certificates(given, metrics)
    certificates.load()
    first = sample(metrics, "certificate_expiration_timestamp_seconds", certificate="server")
    assert first is not None
    ours.server(lifetime=timedelta(days=30))
    certificates.check()
    second = sample(metrics, "certificate_expiration_timestamp_seconds", certificate="server")
    assert second is not None
    assert first - second == pytest.approx(335 * 86400, abs=60)
    assert sample(metrics, "certificate_expiration_timestamp_seconds", certificate="client-ca") is not None


@pytest.mark.parametrize(("days", "word"), [(-400, "expired at"), (1, "not valid before")])
def test_a_certificate_that_callers_refuse_does_not_replace_a_valid_one(ours: Issuer, days: int, word: str) -> None:
    metrics = Metrics()
    certificates = Certificates(settings(ours), metrics)
    certificates.load()
    before = certificates.verbs()
    ours.server(now=datetime.now(UTC) + timedelta(days=days))
    certificates.check()
    assert certificates.verbs() is before
    assert (
        f"last valid ones are in use; {ours.folder / 'server.crt'}: {word} 20" in certificates.notes()["certificates"]
    )
    assert sample(metrics, "certificate_reads_total", outcome="refused") == 1
    ours.server()
    certificates.check()
    assert certificates.verbs() is not before
    assert not certificates.notes()


def test_readiness_says_that_the_certificate_in_use_has_expired(ours: Issuer) -> None:
    now = datetime.now(UTC).timestamp()
    certificates = Certificates(settings(ours), Metrics(), lambda: now)
    certificates.load()
    assert not certificates.notes()
    now += 366 * 86400
    assert certificates.notes()["certificates"].startswith(f"{ours.folder / 'server.crt'}: expired at 20")
    before = certificates.verbs()
    ours.server()
    certificates.check()
    assert certificates.verbs() is not before


@pytest.mark.parametrize("broken", ["server.crt", "server.key", "ca.crt"])
@pytest.mark.parametrize(
    "data", [None, b"", b"no certificate", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_a_file_that_cannot_be_used_is_named(ours: Issuer, broken: str, data: bytes | None) -> None:
    given = settings(ours)
    path = ours.folder / broken
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)
    with pytest.raises(CertificateError, match=broken):
        Certificates(given, Metrics()).load()


def test_without_certificates_there_is_nothing_to_do() -> None:
    certificates = Certificates(TlsSettings(), Metrics())
    certificates.load()
    certificates.check()
    assert not certificates.notes()
    with pytest.raises(CertificateError, match="no certificate is loaded"):
        certificates.verbs()

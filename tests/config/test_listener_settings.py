"""Whoever reaches the verbs can bind pods: settings that would serve them to everybody need a word of the administrator."""

from pathlib import Path
from typing import Any

import pytest
from dra_extender.config.settings import InvalidSettingsError, Settings, load_settings

TLS = {"cert_file": "/c", "private_key_file": "/k", "client_ca_file": "/ca"}


def loaded(**flags: dict[str, Any]) -> Settings:
    return load_settings(None, flags)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.3.4.5"])
def test_verbs_on_loopback_need_nothing(host: str) -> None:
    assert loaded(server={"host": host}).server.host == host


def test_verbs_are_on_loopback_unless_told_otherwise() -> None:
    assert Settings().server.host == "127.0.0.1"


@pytest.mark.parametrize("host", ["*", "0.0.0.0", "::", "10.0.0.7", "extender.example.com", "::ffff:10.0.0.7"])  # noqa: S104 - refused
def test_verbs_on_other_addresses_need_tls_or_a_word(host: str) -> None:
    with pytest.raises(InvalidSettingsError, match=r"server\.host: expected a loopback address"):
        loaded(server={"host": host})
    assert loaded(server={"host": host, "plain_http": True}).server.plain_http
    assert loaded(server={"host": host}, tls=TLS, probes={"port": 8081}).tls.serves_verbs


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"tls": TLS}, "probes.port: expected a port"),
        ({"tls": TLS, "probes": {"port": 1}, "server": {"plain_http": True}}, "server.plain_http: expected false"),
        ({"tls": {"cert_file": "/c"}}, "cert_file and private_key_file belong together"),
        ({"tls": {"client_ca_file": "/ca"}}, "client_ca_file is set, but cert_file is not"),
        ({"probes": {"metrics": "authorized", "port": 1}}, "authorized needs probes.port, tls.cert_file"),
        (
            {"probes": {"metrics": "authorized"}, "tls": {"cert_file": "/c", "private_key_file": "/k"}},
            "needs probes.port",
        ),
    ],
)
def test_listeners_that_would_not_work_are_refused(flags: dict[str, dict[str, Any]], said: str) -> None:
    with pytest.raises(InvalidSettingsError, match=said):
        load_settings(None, flags)


def test_authorized_metrics_need_no_authority_of_clients() -> None:
    given = loaded(probes={"metrics": "authorized", "port": 8081}, tls={"cert_file": "/c", "private_key_file": "/k"})
    assert given.tls.cert_file == Path("/c")
    assert not given.tls.serves_verbs

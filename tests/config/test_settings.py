import io
import re
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
from dra_extender.allocator.state.features import Features
from dra_extender.config.scheduling_settings import FeatureSettings
from dra_extender.config.settings import InvalidSettingsError, Settings, load_settings
from dra_extender.scheduling.ports.options import Options
from pydantic import BaseModel

COUNTS = ("port", "connections", "offered_nodes", "result_cache_entries")
GROUPS = {name: type(getattr(Settings(), name)) for name in Settings.model_fields}


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os  # noqa: PLC0415 - only here

    for name in list(os.environ):
        if name.upper().startswith("DRA_EXTENDER_"):
            monkeypatch.delenv(name)


def complaint(**arguments: Any) -> str:
    with pytest.raises(InvalidSettingsError) as caught:
        load_settings(**arguments)
    return str(caught.value)


def test_nothing_given_means_the_defaults() -> None:
    assert load_settings() == Settings()


@pytest.mark.parametrize("group", GROUPS.values())
def test_every_setting_is_described(group: type[BaseModel]) -> None:
    assert all(field.description for field in group.model_fields.values())


def test_times_and_sizes_carry_their_unit() -> None:
    numbers = [
        name
        for group in GROUPS.values()
        for name, field in group.model_fields.items()
        if field.annotation in (int, float) and name not in COUNTS
    ]
    assert numbers
    assert all(name.endswith(("_seconds", "_bytes", "_weight", "_share")) for name in numbers)


def test_defaults_agree_with_the_use_cases_and_the_allocator() -> None:
    """One default, stated twice for readers, kept equal here; and every option can be set."""
    assert asdict(Settings().scheduling.options()) == asdict(Options())
    assert Settings().features.features() == Features()
    off = Settings(features=FeatureSettings(extended_resources=False))
    assert not off.scheduling.options(extended_resources=off.features.extended_resources).extended_resources
    off = Settings(features=FeatureSettings(pod_group_claims=False))
    assert not off.scheduling.options(pod_group_claims=off.features.pod_group_claims).pod_group_claims
    assert set(GROUPS["features"].model_fields) == {each.name for each in fields(Features)} | {
        "extended_resources",
        "pod_group_claims",
    }


@pytest.mark.parametrize(
    ("group", "old", "new"),
    [
        ("cluster", "patience_seconds", "startup_timeout_seconds"),
        ("scheduling", "device_cool_down_seconds", "device_backoff_seconds"),
        ("scheduling", "remembered_answers", "result_cache_entries"),
        ("scheduling", "settle_wait_seconds", "hold_wait_seconds"),
    ],
)
def test_a_renamed_setting_is_refused_with_its_new_name(
    monkeypatch: pytest.MonkeyPatch, group: str, old: str, new: str
) -> None:
    assert f"setting {group}.{old} (command line): is called {group}.{new} now" in complaint(flags={group: {old: 1}})
    variable = f"DRA_EXTENDER_{group}__{old}".upper()
    monkeypatch.setenv(variable, "1")
    assert complaint() == f"setting {group}.{old} ({variable}): is called {group}.{new} now"


def test_keep_alive_outlasts_the_idle_connections_of_go() -> None:
    assert Settings().server.keep_alive_seconds > 90
    assert "server.keep_alive_seconds" in complaint(flags={"server": {"keep_alive_seconds": 90}})


def test_flags_win_over_environment_over_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("server: {host: file, port: 1, body_limit_bytes: 4096}\nlog:\nfeatures: {device_taints: false}\n")
    monkeypatch.setenv("DRA_EXTENDER_SERVER__PORT", "2")
    monkeypatch.setenv("DRA_EXTENDER_SERVER__HOST", "environment")
    settings = load_settings(file, {"server": {"host": "flag", "plain_http": True}})
    server = settings.server
    assert (server.host, server.port, server.body_limit_bytes) == ("flag", 2, 4096)
    assert not settings.features.device_taints
    assert settings.features.prioritized_list


def test_variables_of_a_service_with_our_name_are_not_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes sets them in every pod beside a Service named dra-extender."""
    monkeypatch.setenv("DRA_EXTENDER_PORT", "tcp://10.0.0.1:8080")
    monkeypatch.setenv("DRA_EXTENDER_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("DRA_EXTENDER_PORT_8080_TCP_ADDR", "10.0.0.1")
    monkeypatch.setenv("DRA_EXTENDER_SERVICE_PORT_HTTP", "8080")
    monkeypatch.setenv("DRA_EXTENDER_METRICS_SERVICE_HOST", "10.0.0.2")
    monkeypatch.setenv("DRA_EXTENDER_METRICS_PORT", "tcp://10.0.0.2:8080")
    monkeypatch.setenv("DRA_EXTENDER_METRICS_PORT_8080_TCP", "tcp://10.0.0.2:8080")
    assert load_settings() == Settings()


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("DRA_EXTENDER_LOG_LEVEL", "did you mean DRA_EXTENDER_LOG__LEVEL?"),
        ("DRA_EXTENDER_LOG_LEVLE", "did you mean DRA_EXTENDER_LOG__LEVEL?"),
        ("DRA_EXTENDER_SERVER_PORT", "did you mean DRA_EXTENDER_SERVER__PORT?"),
        ("dra_extender_log_format", "did you mean DRA_EXTENDER_LOG__FORMAT?"),
        ("DRA_EXTENDER_XYZ", "a setting is DRA_EXTENDER_GROUP__NAME"),
    ],
)
def test_a_variable_that_is_no_setting_is_named_and_not_ignored(
    monkeypatch: pytest.MonkeyPatch, variable: str, hint: str
) -> None:
    monkeypatch.setenv(variable, "9090")
    assert complaint() == f"environment variable {variable}: there is no such setting; {hint}"


@pytest.mark.parametrize(
    ("variable", "text", "said"),
    [
        ("SERVER__PORT", "99999", "{server.port}: expected at most 65535, got '99999'"),
        ("SERVER__PORT", "http", "{server.port}: expected a whole number, got 'http'"),
        ("SERVER__PROT", "1", "{server.prot} does not exist"),
        (
            "SRVER__PORT",
            "1",
            "environment variable DRA_EXTENDER_SRVER__PORT: there is no group 'srver'; the groups are",
        ),
        (
            "RECORDING__FILE",
            "x",
            "environment variable DRA_EXTENDER_RECORDING__FILE: there is no group 'recording' any more: the service makes no",
        ),
        (
            "SERVER",
            "x",
            "environment variable DRA_EXTENDER_SERVER: expected a JSON object with the settings of the group",
        ),
        ("SCHEDULING__FILTER_BUDGET_SECONDS", "5", "{scheduling.filter_budget_seconds}: expected less than 5"),
        ("SCHEDULING__HOLD_SECONDS", "inf", "{scheduling.hold_seconds}: expected a finite number"),
        ("SCHEDULING__BINDING_TIMEOUT_SECONDS", "0.5", "{scheduling.binding_timeout_seconds}: expected at least 1"),
        ("LOG__FORMAT", "xml", "{log.format}: expected 'json' or 'text', got 'xml'"),
        ("FEATURES__DEVICE_TAINTS", "perhaps", "{features.device_taints}: expected true or false, got"),
    ],
)
def test_a_bad_variable_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, text: str, said: str) -> None:
    monkeypatch.setenv(f"DRA_EXTENDER_{variable}", text)
    named = re.sub(r"\{(\w+)\.(\w+)\}", _setting, said)
    assert complaint().startswith(named)


def _setting(found: re.Match[str]) -> str:
    group, name = found.groups()
    return f"setting {group}.{name} (DRA_EXTENDER_{group.upper()}__{name.upper()})"


def test_all_bad_settings_are_named_at_once() -> None:
    said = complaint(flags={"server": {"port": -1}, "scheduling": {"offered_nodes": 0}})
    assert "server.port" in said
    assert "scheduling.offered_nodes" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("server: [", "expected YAML"),
        ("- 1", "expected a mapping of groups"),
        (
            "sever: {}",
            "there is no group 'sever'; the groups are server, probes, tls, cluster, leader_election, scheduling, features, audit,",
        ),
        ("1: {}", "there is no group '1'"),
        ("recording: {file: x}", "there is no group 'recording' any more: the service makes no recordings"),
        ("server: 7", "setting server (settings file "),
        ("server: {1: 2}", "setting server"),
        ("\x00", "expected YAML"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    complained = complaint(file=file)
    assert said in complained
    assert str(file) in complained


def test_a_bad_setting_is_named_with_what_set_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("server: {port: -1, connections: 1}\nscheduling: {watch_lag_seconds: 60}\n")
    monkeypatch.setenv("DRA_EXTENDER_SERVER__CONNECTIONS", "2")
    monkeypatch.setenv("DRA_EXTENDER_SCHEDULING__SHARED_CLAIM_WAIT_SECONDS", "40")
    port, connections, scheduling = complaint(file=file, flags={"server": {"port": -2}}).split("; ")
    assert port == "setting server.port (command line): expected at least 0, got -2"
    assert connections.startswith("setting server.connections (DRA_EXTENDER_SERVER__CONNECTIONS): expected at least 16")
    assert scheduling.startswith(
        f"setting scheduling (DRA_EXTENDER_SCHEDULING, settings file {file}): shared_claim_wait"
    )
    assert complaint(file=file).startswith(f"setting server.port (settings file {file}): expected at least")


@pytest.mark.parametrize(
    ("scheduling", "said"),
    [
        ({"scheduler_names": [""] * 65}, "expected at most 64 items"),
        ({"field_manager": ""}, "expected at least 1 character, got ''"),
    ],
)
def test_what_was_expected_of_a_bad_setting_is_a_sentence(scheduling: dict[str, Any], said: str) -> None:
    assert said in complaint(flags={"scheduling": scheduling})


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert complaint(file=tmp_path / "none").startswith(f"settings file {tmp_path / 'none'}: No such file")
    assert "Is a directory" in complaint(file=tmp_path)
    (tmp_path / "latin1").write_bytes(b"\xff\xfe\xfa")
    assert "expected YAML" in complaint(file=tmp_path / "latin1")


def test_a_file_called_hyphen_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"server: {port: 99}")))
    assert load_settings(Path("-")).server.port == 99
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"server: {port: x}")))
    assert complaint(file=Path("-")).startswith("setting server.port (settings in standard input): expected")


def test_an_empty_file_means_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    assert load_settings(tmp_path / "empty") == Settings()


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

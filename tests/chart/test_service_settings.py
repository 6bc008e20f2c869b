"""The environment that the pod gives to the service, read by the service's own code."""

import os

import pytest
from dra_extender.config.scheduler_checks import check
from dra_extender.config.scheduling_settings import bind_http_seconds
from dra_extender.config.service_settings import is_loopback
from dra_extender.config.settings import Settings, load_settings

from tests.chart.programs import Helm, Object
from tests.chart.selecting import containers, environment, only, pod_spec, scheduler_configuration

pytestmark = pytest.mark.chart


def settings_in(objects: list[Object], monkeypatch: pytest.MonkeyPatch) -> Settings:
    """What the service makes of the environment of its container."""
    for name in [name for name in os.environ if name.startswith("DRA_EXTENDER_")]:
        monkeypatch.delenv(name)
    for name, value in environment(objects).items():
        monkeypatch.setenv(name, value)
    return load_settings()


def test_manifests_set_what_ports_probes_and_timeouts_rely_on(
    manifests: list[Object], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_in(manifests, monkeypatch)
    extender = containers(manifests)["extender"]
    (port,) = extender["ports"]
    assert settings.probes.port == port["containerPort"] == only(manifests, "Service")["spec"]["ports"][0]["port"]
    assert is_loopback(settings.server.host)
    configuration = scheduler_configuration(manifests)
    first, second = configuration["extenders"]
    assert first["urlPrefix"] == second["urlPrefix"] == f"http://127.0.0.1:{settings.server.port}"
    assert settings.scheduling.filter_budget_seconds < seconds(first)
    assert bind_http_seconds(settings.scheduling.binding_timeout_seconds) == seconds(second)
    assert check(configuration, settings) == []
    assert settings.leader_election.enabled
    assert settings.leader_election.follow_lease == configuration["leaderElection"]["resourceName"]
    assert str(settings.scheduling.scheduler_config) in mounted_files(manifests)
    assert settings.server.stop_seconds < pod_spec(manifests)["terminationGracePeriodSeconds"]


def mounted_files(objects: list[Object]) -> set[str]:
    """Paths of the kube-scheduler configuration in the extender's container."""
    mounts = {each["name"]: each["mountPath"] for each in containers(objects)["extender"]["volumeMounts"]}
    return {f"{mounts['scheduler-config']}/{name}" for name in only(objects, "ConfigMap")["data"]}


def seconds(stanza: Object) -> int:
    """The httpTimeout of an extender stanza."""
    return int(stanza["httpTimeout"].removesuffix("s"))


def test_values_reach_the_service_as_they_were_written(helm: Helm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole numbers of any size, fractions, booleans, words and lists."""
    given = {
        "scheduling": {"result_cache_entries": 3000000, "hold_seconds": 12.5},
        "features": {"derived_attributes": False},
        "log": {"level": "debug"},
        "server": {"allowed_hosts": ["extender.example.com", "dra-extender.dra"]},
    }
    settings = settings_in(helm.template(values={"extender": {"settings": given}}), monkeypatch)
    assert settings.scheduling.result_cache_entries == 3_000_000
    assert settings.scheduling.hold_seconds == 12.5
    assert settings.features.derived_attributes is False
    assert settings.log.level.value == "debug"
    assert settings.server.allowed_hosts == ("extender.example.com", "dra-extender.dra")

"""Where the verbs are served, over what, and who may read metrics: what the chart renders, and what the service makes of it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
import yaml
from dra_extender.cli.app import app
from dra_extender.config.scheduler_checks import check
from dra_extender.config.service_settings import MetricsAccess, is_loopback
from dra_extender.config.settings import Settings
from typer.testing import CliRunner

from tests.chart.programs import Helm, Object
from tests.chart.selecting import component, containers, of_kind, only, pod_spec
from tests.chart.test_scheduler_configuration import indented_yaml
from tests.chart.test_service_settings import settings_in
from tests.chart.value_sets import OUTSIDE
from tests.support.side_by_side import side_by_side

pytestmark = pytest.mark.chart

AUTHORIZED: Mapping[str, Any] = {"scraping": {"access": "authorized"}}
ISSUER: Mapping[str, Any] = {"source": "certManager", "certManager": {"issuerRef": {"name": "gpus"}}}


def settings(helm: Helm, monkeypatch: pytest.MonkeyPatch, values: Mapping[str, Any]) -> Settings:
    """What the service makes of the rendering; the address of the pod is the kubelet's to tell."""
    objects = helm.template(values=dict(values))
    for each in containers(objects)["extender"]["env"]:
        each.setdefault("value", "192.0.2.1")
    return settings_in(objects, monkeypatch)


def certificates(objects: list[Object]) -> list[Object]:
    return [each for each in objects if component(each) == "certificates"]


def test_beside_a_second_scheduler_the_verbs_are_on_loopback_alone(helm: Helm, monkeypatch: pytest.MonkeyPatch) -> None:
    given = settings(helm, monkeypatch, {})
    assert is_loopback(given.server.host)
    assert (given.probes.host, given.probes.port) == ("*", 8081)
    objects = helm.template()
    assert [each["containerPort"] for each in containers(objects)["extender"]["ports"]] == [8081]
    assert certificates(objects) == []


def test_alone_the_extender_serves_the_verbs_over_tls_to_kube_scheduler(
    helm: Helm, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = settings(helm, monkeypatch, OUTSIDE)
    assert given.tls.serves_verbs
    assert given.tls.allowed_names == ("system:kube-scheduler",)
    assert not given.server.plain_http
    objects = helm.template(values=OUTSIDE)
    mount = next(each for each in containers(objects)["extender"]["volumeMounts"] if each["name"] == "tls")
    files = (given.tls.cert_file, given.tls.private_key_file, given.tls.client_ca_file)
    assert {str(each and each.parent) for each in files} == {mount["mountPath"]}
    volume = next(each for each in pod_spec(objects)["volumes"] if each["name"] == "tls")
    assert volume["secret"]["secretName"] == "dra-extender-tls"


@pytest.mark.parametrize("address", ["10.0.0.77", "fd00::77"])
def test_notes_tell_kube_scheduler_to_call_over_tls(helm: Helm, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    given = settings(helm, monkeypatch, OUTSIDE)
    snippet = indented_yaml(helm.notes({**OUTSIDE, "service": {"clusterIP": address}}), "percentageOfNodesToScore")
    url = f"https://[{address}]:8080" if ":" in address else f"https://{address}:8080"
    assert {each["urlPrefix"] for each in snippet["extenders"]} == {url}
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": True},
        **snippet,
    }
    assert check(document, given) == []


def test_plain_http_needs_the_word_and_gets_a_warning(helm: Helm, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {**OUTSIDE, "certificates": {"source": "none"}}
    given = settings(helm, monkeypatch, values)
    assert given.server.plain_http
    assert not given.tls.serves_verbs
    assert "WARNING: the verbs are served over plain HTTP" in helm.notes(values)
    assert "WARNING" not in helm.notes(OUTSIDE)
    assert certificates(helm.template(values=values)) == []


def test_a_job_makes_certificates_before_the_pod_starts_and_a_cron_job_renews_them(helm: Helm) -> None:
    objects = certificates(helm.template(values=OUTSIDE))
    job, cron = only(objects, "Job"), only(objects, "CronJob")
    assert job["spec"] == cron["spec"]["jobTemplate"]["spec"] | {"template": job["spec"]["template"]}
    for each in objects:
        hook = each["metadata"]["name"].endswith("-hook")
        assert ("helm.sh/hook" in each["metadata"].get("annotations", {})) is hook
    (container,) = job["spec"]["template"]["spec"]["containers"]
    for role in of_kind(objects, "Role"):
        named = role["rules"][1]["resourceNames"]
        assert named == ["dra-extender-ca", "dra-extender-tls", "dra-extender-client"]
    assert "--name=dra-extender.dra-extender.svc" in container["args"]
    done = CliRunner().invoke(app, [*container["args"], "--kubeconfig=/does/not/exist"])
    assert (done.exit_code, "kubeconfig /does/not/exist does not exist" in done.stderr) == (2, True)


def test_without_a_schedule_there_is_no_cron_job(helm: Helm) -> None:
    objects = helm.template(values={**OUTSIDE, "certificates": {"job": {"schedule": ""}}})
    assert of_kind(objects, "CronJob") == []
    assert len(of_kind(certificates(objects), "Role")) == 1


def test_cert_manager_makes_certificates_with_ecdsa_keys(helm: Helm) -> None:
    objects = helm.template(values={**OUTSIDE, "certificates": dict(ISSUER), "service": {"clusterIP": "10.0.0.77"}})
    assert certificates(objects) == []
    server, client = of_kind(objects, "Certificate")
    assert server["spec"]["ipAddresses"] == ["10.0.0.77"]
    assert client["spec"]["commonName"] == "system:kube-scheduler"
    assert {each["spec"]["privateKey"]["algorithm"] for each in (server, client)} == {"ECDSA"}
    volume = next(each for each in pod_spec(objects)["volumes"] if each["name"] == "tls")
    assert volume["secret"]["secretName"] == server["spec"]["secretName"]


def test_a_secret_of_ones_own_is_mounted(helm: Helm) -> None:
    objects = helm.template(values={**OUTSIDE, "certificates": {"source": "secret", "secretName": "mine"}})
    volume = next(each for each in pod_spec(objects)["volumes"] if each["name"] == "tls")
    assert volume["secret"]["secretName"] == "mine"
    assert certificates(objects) == of_kind(objects, "Certificate") == []


def test_metrics_for_authorized_callers_come_with_tls_and_the_right_to_ask(
    helm: Helm, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = settings(helm, monkeypatch, AUTHORIZED)
    assert given.probes.metrics is MetricsAccess.AUTHORIZED
    assert is_loopback(given.server.host)
    objects = helm.template(values=dict(AUTHORIZED))
    bound = [each["roleRef"]["name"] for each in of_kind(objects, "ClusterRoleBinding")]
    assert "system:auth-delegator" in bound
    extender = containers(objects)["extender"]
    assert {each["httpGet"]["scheme"] for name, each in extender.items() if name.endswith("Probe")} == {"HTTPS"}
    without = helm.template()
    assert "system:auth-delegator" not in yaml.safe_dump(without)


@pytest.mark.parametrize("kind", ["serviceMonitor", "podMonitor"])
def test_monitors_follow_the_access_to_metrics(helm: Helm, kind: str) -> None:
    arguments = ("--api-versions", "monitoring.coreos.com/v1")
    values: dict[str, Any] = {kind: {"enabled": True}}
    plain = only(helm.template(*arguments, values=values), kind[0].upper() + kind[1:])["spec"]
    first = (plain.get("endpoints") or plain["podMetricsEndpoints"])[0]
    assert (first["port"], "scheme" in first) == ("http", False)
    values |= {"scraping": {"access": "authorized", "tokenSecret": {"name": "scraper"}}}
    secured = only(helm.template(*arguments, values=values), kind[0].upper() + kind[1:])["spec"]
    first = (secured.get("endpoints") or secured["podMetricsEndpoints"])[0]
    assert (first["port"], first["scheme"]) == ("https", "https")
    assert first["authorization"]["credentials"] == {"name": "scraper", "key": "token"}


REFUSED: Final[Sequence[tuple[Mapping[str, Any], str]]] = (
    ({**OUTSIDE, "certificates": {"source": "secret"}}, "certificates.secretName is empty"),
    ({**OUTSIDE, "certificates": {"source": "certManager"}}, "certificates.certManager.issuerRef.name is empty"),
    ({**AUTHORIZED, "certificates": {"source": "none"}}, "tokens are not sent over plain HTTP"),
    ({"extender": {"settings": {"server": {"host": "*"}}}}, "the chart chooses where the verbs are served"),
    ({"extender": {"settings": {"server": {"plain_http": True}}}}, "the chart chooses where the verbs are served"),
    ({"extender": {"settings": {"tls": {"cert_file": "/x"}}}}, "use the values certificates and scraping instead"),
    ({"extender": {"settings": {"probes": {"port": 1}}}}, "use the values certificates and scraping instead"),
)


async def test_values_that_would_not_work_are_refused(helm: Helm) -> None:
    async def refused(values: Mapping[str, Any], words: str) -> None:
        assert words in await asyncio.to_thread(helm.refusal, dict(values))

    await side_by_side({str(values): refused(values, words) for values, words in REFUSED})

"""Mode extenderOnly on a real API server, with exactly the rights that the chart renders: certificates, verbs over TLS, metrics."""

import base64
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import pytest_asyncio
import yaml
from dra_extender.config.settings import ENV_PREFIX

from tests.chart import selecting
from tests.chart.programs import MANIFESTS, NAMESPACE, Helm, Object, run
from tests.chart.selecting import of_kind
from tests.chart.test_scheduler_configuration import indented_yaml
from tests.chart.value_sets import OUTSIDE
from tests.controlplane import objects
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.extender import SERVE, ExtenderProcess
from tests.controlplane.planes import GATES_OFF
from tests.controlplane.ports import free_ports
from tests.controlplane.resources import NODES, PODS
from tests.support.side_by_side import side_by_side

pytestmark = [pytest.mark.e2e, pytest.mark.plane(GATES_OFF), pytest.mark.asyncio(loop_scope="module")]

VALUES: Final[Mapping[str, Any]] = {**OUTSIDE, "scraping": {"access": "authorized"}}
RENEWAL: Final = "dra-extender-certificates-renewal"
APPLIED: Final = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "DeviceClass")
SECONDS: Final = 60.0
SCRAPERS: Final = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: prometheus, namespace: dra-extender}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: somebody, namespace: dra-extender}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: scraper}
rules: [{nonResourceURLs: [/metrics], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: scraper}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: scraper}
subjects: [{kind: ServiceAccount, name: prometheus, namespace: dra-extender}]
"""


@pytest.fixture(scope="module")
def rendered_alone(helm: Helm) -> list[Object]:
    return helm.template(values=dict(VALUES))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installed(cluster: ControlPlane, rendered_alone: list[Object]) -> ControlPlane:
    """A cluster with the accounts and rights of the chart."""
    cluster.kubectl("apply", "-f", str(MANIFESTS / "namespace.yaml"))
    applied = [each for each in rendered_alone if each["kind"] in APPLIED]
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(applied) + "---" + SCRAPERS)
    return cluster


@pytest.fixture(scope="module")
def job(rendered_alone: list[Object]) -> list[str]:
    """The command line of the CronJob."""
    (cron,) = of_kind(rendered_alone, "CronJob")
    (container,) = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    arguments: list[str] = container["args"]
    return arguments


def renew(cluster: ControlPlane, job: list[str]) -> str:
    """What the Job prints, run under its account."""
    kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, RENEWAL)
    done = run(*SERVE[:-1], *job, f"--kubeconfig={kubeconfig}")
    assert done.code == 0, done.words
    return done.output


async def test_the_job_makes_the_secrets_once_and_mends_them_with_its_own_rights(
    installed: ControlPlane, job: list[str]
) -> None:
    assert renew(installed, job).count("written") == 3
    assert renew(installed, job).count("unchanged") == 3
    who = f"--as=system:serviceaccount:{NAMESPACE}:{RENEWAL}"
    for verb, name in (("list", ""), ("get", "/other"), ("update", "/other"), ("delete", "/dra-extender-ca")):
        done = installed_can(installed, verb, f"secrets{name}", who)
        assert done == "no", (verb, name)

    # A key that does not fit its certificate is replaced; the rest of the Secret stays.
    damaged = {"metadata": {"labels": {"team": "a"}}, "data": {"tls.key": base64.b64encode(b"no key").decode()}}
    here = ("secret", "dra-extender-tls", f"--namespace={NAMESPACE}")
    installed.kubectl("patch", *here, "--patch", json.dumps(damaged))
    said = renew(installed, job)
    assert (said.count("written"), said.count("unchanged")) == (1, 2)
    found = yaml.safe_load(installed.kubectl("get", *here, "--output=yaml"))
    assert found["metadata"]["labels"] == {"team": "a"}
    assert base64.b64decode(found["data"]["tls.key"]).startswith(b"-----BEGIN PRIVATE KEY-----")


def installed_can(cluster: ControlPlane, *words: str) -> str:
    """The API server's answer to `kubectl auth can-i`."""
    command = ["kubectl", "auth", "can-i", *words, f"--namespace={NAMESPACE}"]
    done = run(
        cluster.layout.tools / command[0],
        *command[1:],
        environment={"KUBECONFIG": str(cluster.admin_kubeconfig), "KUBERC": "off"},
    )
    return done.output.strip()


def written(cluster: ControlPlane, name: str, folder: Path) -> Path:
    """The files of a Secret, as a kubelet mounts them."""
    folder.mkdir()
    found = yaml.safe_load(cluster.kubectl("get", "secret", name, f"--namespace={NAMESPACE}", "--output=yaml"))
    for key, value in found["data"].items():
        (folder / key).write_bytes(base64.b64decode(value))
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def extender(
    installed: ControlPlane, rendered_alone: list[Object], job: list[str], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ExtenderProcess]:
    """The service with the environment of its container, and a kube-scheduler as the notes of the chart have it."""
    renew(installed, job)
    folder = tmp_path_factory.mktemp("alone")
    mounted = written(installed, "dra-extender-tls", folder / "tls")
    given = selecting.environment(rendered_alone)
    own = ("LEADER_ELECTION__SERVICE", "LEADER_ELECTION__ADDRESS", "SERVER__HOST", "SERVER__PORT")
    for name in own:
        del given[f"{ENV_PREFIX}{name}"]
    environment = {name: value.replace("/etc/dra-extender-tls", str(mounted)) for name, value in given.items()}
    (probes,) = free_ports(1)
    environment |= {
        "DRA_EXTENDER_PROBES__HOST": "127.0.0.1",
        "DRA_EXTENDER_PROBES__PORT": str(probes),
        "DRA_EXTENDER_LEADER_ELECTION__NAMESPACE": NAMESPACE,
    }
    account = installed.service_account_kubeconfig(NAMESPACE, "dra-extender")
    async with ExtenderProcess(folder, account, environment=environment) as process:
        yield process


async def test_kube_scheduler_binds_over_tls_as_the_notes_say_and_prometheus_may_read_metrics(
    installed: ControlPlane, extender: ExtenderProcess, helm: Helm, tmp_path: Path
) -> None:
    await side_by_side(
        {
            "bound": bound_over_tls(installed, extender, helm, tmp_path),
            "metrics": metrics_need_a_token(installed, extender),
        }
    )


async def bound_over_tls(installed: ControlPlane, extender: ExtenderProcess, helm: Helm, tmp_path: Path) -> None:
    client = written(installed, "dra-extender-client", tmp_path / "client")
    notes = helm.notes(dict(VALUES)).replace("/etc/kubernetes/dra-extender", str(client))
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        **indented_yaml(notes, "percentageOfNodesToScore"),
    }
    for stanza in configuration["extenders"]:
        assert stanza["urlPrefix"].startswith("https://")
        stanza["urlPrefix"] = f"https://127.0.0.1:{extender.port}"
    await installed.start_scheduler(configuration)
    api = installed.api
    await api.create(NODES, objects.node("node"))
    await api.create(PODS, objects.pod("pod", "default", scheduler="default-scheduler"))

    async def is_bound() -> bool:
        return bool((await api.get(PODS, "pod", "default"))["spec"].get("nodeName"))

    await api.wait_for(is_bound, SECONDS, f"the pod is bound\n{extender.report('says')}")


async def metrics_need_a_token(installed: ControlPlane, extender: ExtenderProcess) -> None:
    """One that the API server knows, and whose account may get metrics."""

    def token(account: str) -> str:
        return installed.kubectl("create", "token", account, f"--namespace={NAMESPACE}").strip()

    headers = {
        401: (None, "Bearer wrong", f"Basic {token('prometheus')}"),
        403: (f"Bearer {token('somebody')}",),
        200: (f"Bearer {token('prometheus')}",),
    }
    async with aiohttp.ClientSession() as session:
        for status, given in headers.items():
            for header in given:
                sent = {} if header is None else {"Authorization": header}
                async with session.get(f"{extender.pages}/metrics", headers=sent, ssl=False) as answer:
                    assert answer.status == status, header
                    assert ("dra_extender_leader" in await answer.text()) is (status == 200)
        async with session.get(f"{extender.pages}/livez", ssl=False) as answer:
            assert answer.status == 200

"""What single values do to the rendering."""

import os
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml
from dra_extender.config.policy_file import read_policy

from tests.chart.programs import CHART, NAMESPACE, REPOSITORY, Helm, Object, documents, run
from tests.chart.selecting import (
    containers,
    environment,
    of_extender,
    of_kind,
    only,
    pod_spec,
    policy,
    scheduler_configuration,
)
from tests.chart.value_sets import OUTSIDE

pytestmark = pytest.mark.chart

Rendered = Callable[[str], list[Object]]


def test_extender_alone_brings_nothing_of_a_second_scheduler(rendered: Rendered) -> None:
    objects = rendered("extenderOnly")
    assert list(containers(objects)) == ["extender"]
    assert "restartPolicy" not in containers(objects)["extender"]
    assert of_kind(objects, "ConfigMap") == []
    assert [each["name"] for each in pod_spec(objects)["volumes"]] == ["policy", "tls"]
    named = [each["metadata"]["name"] for each in objects]
    assert [name for name in named if "scheduler" in name] == []
    assert "scheduler" not in str(of_extender(objects, "Role"))


def test_extender_alone_is_called_at_a_service_that_its_leader_may_point_at_itself(rendered: Rendered) -> None:
    objects = rendered("extenderOnly")
    service = only(objects, "Service")
    assert "selector" not in service["spec"]
    given = {each["name"]: each for each in containers(objects)["extender"]["env"]}
    assert given["DRA_EXTENDER_LEADER_ELECTION__SERVICE"]["value"] == service["metadata"]["name"]
    address = given["DRA_EXTENDER_LEADER_ELECTION__ADDRESS"]["valueFrom"]
    assert address == {"fieldRef": {"fieldPath": "status.podIP"}}
    rules = [each for each in of_extender(objects, "Role")["rules"] if each["resources"] == ["endpointslices"]]
    assert [(each.get("resourceNames"), each["verbs"]) for each in rules] == [
        (None, ["create"]),
        ([service["metadata"]["name"]], ["patch"]),
    ]


def test_beside_a_second_scheduler_the_extender_leads_where_that_scheduler_leads(helm: Helm) -> None:
    """kube-scheduler calls the extender in its own pod, so no other one may act."""
    objects = helm.template(values={"fullnameOverride": "gpus"})
    configuration = scheduler_configuration(objects)
    given = environment(objects)
    followed = given["DRA_EXTENDER_LEADER_ELECTION__FOLLOW_LEASE"]
    assert followed == configuration["leaderElection"]["resourceName"] == "gpus-scheduler"
    assert given["DRA_EXTENDER_LEADER_ELECTION__LEASE_NAME"] == "gpus"
    assert only(objects, "Role")["rules"][1]["resourceNames"] == ["gpus", "gpus-scheduler"]
    assert {each["urlPrefix"] for each in configuration["extenders"]} == {"http://127.0.0.1:8080"}


def test_network_policy_lets_the_scheduler_in_where_it_calls_from_outside(rendered: Rendered) -> None:
    metrics, verbs = only(rendered("extenderOnly"), "NetworkPolicy")["spec"]["ingress"]
    assert verbs["from"] == [{"ipBlock": {"cidr": "192.0.2.7/32"}}]
    assert [each["port"] for each in verbs["ports"]] == ["verbs"]
    assert [each["port"] for each in metrics["ports"]] == ["http"]


def test_network_policy_without_peers_lets_nobody_in(helm: Helm) -> None:
    spec = only(helm.template(values={"networkPolicy": {"metricsFrom": []}}), "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress"]
    assert "ingress" not in spec


def test_service_monitor_scrapes_the_ports_of_the_service(helm: Helm) -> None:
    objects = helm.template("--api-versions", "monitoring.coreos.com/v1", values={"serviceMonitor": {"enabled": True}})
    monitor, service = only(objects, "ServiceMonitor"), only(objects, "Service")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert [endpoint["port"] for endpoint in monitor["spec"]["endpoints"]] == [
        port["name"] for port in service["spec"]["ports"]
    ]


def test_admission_policy_names_the_account_of_the_release(helm: Helm) -> None:
    objects = helm.template(values={"serviceAccount": {"name": "chosen"}})
    account = f"system:serviceaccount:{NAMESPACE}:chosen"
    (_, writer) = policy(objects, "-allocation-snapshot")["spec"]["matchConditions"]
    assert writer["expression"] == f"request.userInfo.username != '{account}'"
    assert pod_spec(objects)["serviceAccountName"] == only(objects, "ServiceAccount")["metadata"]["name"] == "chosen"
    subjects = [each for kind in ("ClusterRoleBinding", "RoleBinding") for each in of_kind(objects, kind)]
    assert {subject["name"] for each in subjects for subject in each["subjects"]} == {"chosen"}


def test_image_by_digest_is_not_named_by_tag(helm: Helm) -> None:
    digest = "sha256:" + "0123456789abcdef" * 4
    objects = helm.template(values={"image": {"repository": "example/dra-extender", "tag": "x", "digest": digest}})
    assert containers(objects)["extender"]["image"] == f"example/dra-extender@{digest}"


@pytest.mark.parametrize(
    ("cluster", "tag"), [("v1.34.3", "v1.34.3"), ("v1.35.1-gke.1396002", "v1.35.1"), ("v1.36.0-eks-1a2b3c4", "v1.36.0")]
)
def test_second_scheduler_has_the_version_of_the_cluster_without_its_vendor(helm: Helm, cluster: str, tag: str) -> None:
    objects = Helm(helm.program, helm.home, cluster).template()
    assert containers(objects)["kube-scheduler"]["image"] == f"registry.k8s.io/kube-scheduler:{tag}"


def test_a_changed_configuration_restarts_the_pod(helm: Helm) -> None:
    annotations = [
        only(objects, "Deployment")["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
        for objects in (helm.template(), helm.template(values={"bindingTimeoutSeconds": 30}))
    ]
    assert len(set(annotations)) == 2


def test_one_value_gives_the_service_and_the_scheduler_their_binding_timeout(helm: Helm) -> None:
    """Bind is given up by kube-scheduler 60 s after the service would have given it up."""
    objects = helm.template(values={"bindingTimeoutSeconds": 1800})
    configuration = scheduler_configuration(objects)
    assert [each["httpTimeout"] for each in configuration["extenders"]] == ["5s", "1860s"]
    given = environment(objects)
    assert given["DRA_EXTENDER_SCHEDULING__BINDING_TIMEOUT_SECONDS"] == "1800"


def test_a_policy_is_mounted_as_the_file_that_the_service_reads(helm: Helm, tmp_path: Path) -> None:
    policy = {"rules": [{"name": "mig", "devices": "device.driver == 'x'", "compatibilityGroups": ["mig"]}]}
    objects = helm.template(values={"policy": policy})
    (made,) = [each for each in of_kind(objects, "ConfigMap") if each["metadata"]["name"].endswith("-policy")]
    ((name, text),) = made["data"].items()
    mount = containers(objects)["extender"]["volumeMounts"][0]
    (volume,) = [each for each in pod_spec(objects)["volumes"] if each["name"] == mount["name"]]
    assert volume["configMap"] == {"name": made["metadata"]["name"], "optional": True}
    assert "subPath" not in mount
    given = environment(objects)
    assert given["DRA_EXTENDER_SCHEDULING__POLICY_FILE"] == f"{mount['mountPath']}/{name}"
    (tmp_path / name).write_text(text)
    (rule,) = read_policy(tmp_path / name).rules
    assert (rule.name, rule.compatibility_groups) == ("mig", ("mig",))


def test_a_changed_policy_does_not_restart_the_pod(helm: Helm) -> None:
    """The service follows it."""
    templates = [
        only(helm.template(values={"policy": {"rules": rules}}), "Deployment")["spec"]["template"]
        for rules in ([], [{"name": "a", "bindsToNode": True}])
    ]
    assert templates[0] == templates[1]


def test_a_release_name_with_a_dot_names_objects_without_it(helm: Helm) -> None:
    """Helm accepts a.b, which is no name of a Service."""
    done = run(
        helm.program, "template", "a.b", CHART, "--kube-version", helm.version, environment={"KUBECONFIG": os.devnull}
    )
    objects = documents(done.output)
    assert only(objects, "Service")["metadata"]["name"] == "a-b-dra-extender"
    assert only(objects, "Deployment")["metadata"]["labels"]["app.kubernetes.io/instance"] == "a.b"


def test_common_labels_are_on_all_objects_and_pods_and_in_no_selector(helm: Helm) -> None:
    objects = helm.template(values={"commonLabels": {"team": "ml", "tier": "1"}, "podLabels": {"tier": "2"}})
    assert [each["metadata"].get("labels", {}).get("team") for each in objects] == ["ml"] * len(objects)
    deployment = only(objects, "Deployment")
    pod = deployment["spec"]["template"]["metadata"]["labels"]
    assert (deployment["metadata"]["labels"]["tier"], pod["team"], pod["tier"]) == ("1", "ml", "2")
    assert "team" not in deployment["spec"]["selector"]["matchLabels"]
    assert "team" not in only(objects, "Service")["spec"]["selector"]


def test_lint_of_a_chart_whose_cluster_nobody_named_finds_no_broken_yaml(helm: Helm) -> None:
    """helm lint goes on where a template refuses its values."""
    done = run(helm.program, "lint", CHART, environment={"KUBECONFIG": os.devnull})
    assert (done.code, "[ERROR]" in done.output) == (0, False), done.output


@pytest.mark.parametrize("values", [{}, OUTSIDE], ids=["secondScheduler", "extenderOnly"])
def test_lint_has_nothing_to_say(helm: Helm, values: Object) -> None:
    done = helm.run("lint", "--strict", values=values)
    assert done.code == 0, done.output + done.words
    assert "[INFO]" not in done.output
    assert "[WARNING]" not in done.output
    assert "[ERROR]" not in done.output


def test_icon_of_the_chart_is_a_picture_of_this_repository() -> None:
    """Catalogues of charts load it from the main branch."""
    icon = yaml.safe_load((CHART / "Chart.yaml").read_text())["icon"]
    host, _, path = icon.partition("/dra-extender/dra-extender/main/")
    assert host == "https://raw.githubusercontent.com"
    assert ET.parse(REPOSITORY / path).getroot().tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314 - it is ours

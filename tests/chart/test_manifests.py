"""Promises that every object and the pod keep, in the plain manifests and in each mode of the chart."""

import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from dra_extender.kube.client.objects import WATCHED
from dra_extender.kube.scheduler_waker import WAKE_UP_CLASS

from tests.chart.conftest import kustomized
from tests.chart.programs import CHART, MANIFESTS, OVERLAYS, REPOSITORY, Object, overlay
from tests.chart.selecting import containers, environment, of_extender, of_kind, only, pod_spec, policy
from tests.support.chart.kubernetes_types import all_releases, minor

pytestmark = pytest.mark.chart


@pytest.fixture(params=["manifests", "extenderOnly"])
def objects(
    request: pytest.FixtureRequest, manifests: list[Object], rendered: Callable[[str], list[Object]]
) -> list[Object]:
    """The chart's other mode renders the manifests: `test_chart_matches_manifests`."""
    return manifests if request.param == "manifests" else rendered(request.param)


def test_every_manifest_file_is_part_of_the_kustomization() -> None:
    listed = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())["resources"]
    files = {path.name for path in MANIFESTS.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(listed) == files


def test_every_component_fits_an_overlay(binaries: Path, tmp_path: Path, kubernetes_version: str) -> None:
    copied = shutil.copytree(MANIFESTS.parent, tmp_path / "deploy")
    folder = copied / overlay(kubernetes_version).relative_to(MANIFESTS.parent)
    plain = len(kustomized(binaries, folder))
    for component in sorted(copied.glob("components/*")):
        file = folder / "kustomization.yaml"
        loaded = yaml.safe_load(file.read_text()) | {"components": [f"../../components/{component.name}"]}
        file.write_text(yaml.safe_dump(loaded))
        objects = kustomized(binaries, folder)
        assert len(objects) > plain, component.name
        assert {each["metadata"]["labels"].get("app.kubernetes.io/version") for each in objects} != {None}


@pytest.mark.parametrize("change", [{"namespace": "gpus"}, {"namePrefix": "my-"}], ids=["namespace", "prefix"])
def test_a_service_that_kustomize_moves_or_renames_is_not_the_one_that_the_policy_names(
    binaries: Path, tmp_path: Path, kubernetes_version: str, change: Object
) -> None:
    """The service compares the two at its start."""
    copied = shutil.copytree(MANIFESTS.parent, tmp_path / "deploy")
    folder = copied / overlay(kubernetes_version).relative_to(MANIFESTS.parent)
    file = folder / "kustomization.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | change))
    objects = kustomized(binaries, folder)
    deployment = only(objects, "Deployment")
    account = f"system:serviceaccount:{deployment['metadata']['namespace']}:{pod_spec(objects)['serviceAccountName']}"
    expected = environment(objects)["DRA_EXTENDER_CLUSTER__EXPECTED_ACCOUNT"]
    assert account != expected
    assert expected in str(policy(objects, "-allocation-snapshot"))


def test_every_object_has_the_recommended_labels(objects: list[Object]) -> None:
    wanted = {f"app.kubernetes.io/{name}" for name in ("name", "instance", "component", "part-of", "version")}
    assert {each["metadata"]["name"]: wanted - each["metadata"]["labels"].keys() for each in objects} == {
        each["metadata"]["name"]: set() for each in objects
    }


def test_service_policy_and_budget_select_the_pod(objects: list[Object]) -> None:
    labels = only(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    selectors = [
        only(objects, "Deployment")["spec"]["selector"]["matchLabels"],
        only(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        only(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
    ]
    service = only(objects, "Service")["spec"]
    if "selector" in service:
        selectors.append(service["selector"])
    assert all(selector and selector.items() <= labels.items() for selector in selectors)


def test_pod_keeps_the_restricted_standard(objects: list[Object]) -> None:
    spec = pod_spec(objects)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 65532
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    for container in containers(objects).values():
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_no_service_variable_reaches_the_settings(objects: list[Object]) -> None:
    assert pod_spec(objects)["enableServiceLinks"] is False


def test_replicas_are_exchanged_one_by_one_and_only_when_the_new_one_is_warm(objects: list[Object]) -> None:
    """A standby counts as available, or an update would wait for ever for the second leader."""
    deployment = only(objects, "Deployment")["spec"]
    assert deployment["replicas"] == 2
    assert deployment["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    for probe in ("startupProbe", "readinessProbe"):
        assert containers(objects)["extender"][probe]["httpGet"]["path"] == "/readyz?exclude=leader"
    assert only(objects, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    (spread,) = pod_spec(objects)["topologySpreadConstraints"]
    labels = deployment["template"]["metadata"]["labels"]
    assert spread["labelSelector"]["matchLabels"].items() <= labels.items()


def test_every_replica_takes_part_in_the_election_of_a_lease_that_it_may_write(objects: list[Object]) -> None:
    given = environment(objects)
    lease = given["DRA_EXTENDER_LEADER_ELECTION__LEASE_NAME"]
    assert given["DRA_EXTENDER_LEADER_ELECTION__ENABLED"] == "true"
    (named,) = [
        each
        for each in of_extender(objects, "Role")["rules"]
        if lease in each.get("resourceNames", ()) and each["resources"] == ["leases"]
    ]
    assert {"get", "update"} <= set(named["verbs"])


def test_every_container_is_probed_and_has_requests(objects: list[Object]) -> None:
    for container in containers(objects).values():
        assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
        assert container["readinessProbe"]["httpGet"]["path"].startswith("/readyz")
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        assert set(container["resources"]["limits"]) == {"memory"}
        ports = {port["name"] for port in container["ports"]}
        probes = [probe for name, probe in container.items() if name.endswith("Probe")]
        assert {probe["httpGet"]["port"] for probe in probes} <= ports


def test_scheduler_starts_when_the_caches_of_the_extender_are_complete(manifests: list[Object]) -> None:
    """A sidecar with a startup probe comes before the containers of the pod."""
    (extender,) = pod_spec(manifests)["initContainers"]
    assert (extender["name"], extender["restartPolicy"]) == ("extender", "Always")
    assert extender["startupProbe"]["httpGet"]["path"].startswith("/readyz")


def rules(objects: list[Object]) -> list[Object]:
    """Rules of the extender's ClusterRole."""
    roles = [each for each in of_kind(objects, "ClusterRole") if each["metadata"]["name"] != "dra-viewer"]
    found: list[Object] = only(roles, "ClusterRole")["rules"]
    return found


def test_no_rule_has_a_wildcard(objects: list[Object]) -> None:
    every = [rule for kind in ("ClusterRole", "Role") for each in of_kind(objects, kind) for rule in each["rules"]]
    assert [rule for rule in every if "*" in str(rule)] == []


def test_extender_may_watch_what_it_watches_and_nothing_else(objects: list[Object]) -> None:
    may = {resource for rule in rules(objects) if "watch" in rule["verbs"] for resource in rule["resources"]}
    assert may == {*WATCHED, "devicetaintrules", "podgroups"}


def test_extender_may_write_classes_only_to_wake_the_scheduler(objects: list[Object]) -> None:
    writing = [
        rule
        for rule in rules(objects)
        if "deviceclasses" in rule.get("resources", ()) and set(rule["verbs"]) - {"get", "list", "watch"}
    ]
    assert [(rule["resources"], rule["resourceNames"], rule["verbs"]) for rule in writing] == [
        (["deviceclasses"], [WAKE_UP_CLASS], ["patch"])
    ]
    assert only(objects, "DeviceClass")["metadata"]["name"] == WAKE_UP_CLASS


def test_wake_up_class_matches_no_device(objects: list[Object]) -> None:
    assert only(objects, "DeviceClass")["spec"]["selectors"] == [{"cel": {"expression": "false"}}]


def test_admission_policies_refuse_what_they_cannot_judge(objects: list[Object]) -> None:
    for about in ("-allocation-snapshot", "-delete-protection"):
        assert policy(objects, about)["spec"]["failurePolicy"] == "Fail"


def test_role_of_viewers_writes_nothing(objects: list[Object]) -> None:
    (role,) = (each for each in objects if each["metadata"]["name"] == "dra-viewer")
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    assert not any("secrets" in rule.get("resources", ()) for rule in role["rules"])


def test_chart_manifests_and_image_carry_the_version_of_the_package(manifests: list[Object]) -> None:
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    assert containers(manifests)["extender"]["image"] == f"ghcr.io/dra-extender/dra-extender:v{version}"
    assert {each["metadata"]["labels"]["app.kubernetes.io/version"] for each in manifests} == {version}
    assert re.findall(r"^ARG VERSION=(.*)$", (REPOSITORY / "Dockerfile").read_text(), flags=re.MULTILINE) == [version]


def test_each_overlay_has_a_kube_scheduler_of_its_minor_version() -> None:
    """There is one for each supported minor version, and no default that would be wrong for the others."""
    found = {folder.name: tags_of(folder)["registry.k8s.io/kube-scheduler"] for folder in OVERLAYS.iterdir()}
    assert found == {minor(release): release for release in all_releases()}
    assert "registry.k8s.io/kube-scheduler" not in tags_of(MANIFESTS)


def tags_of(folder: Path) -> dict[str, str | None]:
    """Tags of images that a kustomization sets, by image."""
    loaded = yaml.safe_load((folder / "kustomization.yaml").read_text())
    return {each["name"]: each.get("newTag") for each in loaded["images"]}

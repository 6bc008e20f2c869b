"""The values that the documents show: the chart renders them, and what they promise is in the rendering."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.chart.programs import REPOSITORY, Helm, Object
from tests.chart.selecting import containers, only, pod_spec

pytestmark = pytest.mark.chart

TASKS = REPOSITORY / "docs" / "tasks"


def blocks(document: str) -> Iterator[Any]:
    """The YAML documents that a page shows."""
    for block in re.findall(r"```yaml\n(.*?)```", (TASKS / document).read_text(), re.DOTALL):
        yield from yaml.safe_load_all(block)


def values_of(document: str) -> Object:
    """The block that is called values.yaml."""
    (block,) = re.findall(r"```yaml\n# values\.yaml\n(.*?)```", (TASKS / document).read_text(), re.DOTALL)
    values: Object = yaml.safe_load(block)
    return values


def of_kind(document: str, kind: str) -> Object:
    (found,) = [each for each in blocks(document) if each.get("kind") == kind]
    return dict(found)


def test_the_guide_for_ones_own_kube_scheduler_fixes_the_address_that_it_calls(helm: Helm) -> None:
    values = values_of("extender-only.md")
    service = only(helm.template(values=values), "Service")
    assert service["spec"]["clusterIP"] == values["service"]["clusterIP"]
    assert "verbs" in [each["name"] for each in service["spec"]["ports"]]


def test_the_configuration_of_the_guide_is_completed_by_the_notes(helm: Helm) -> None:
    """The head of the guide and what the notes print have no key in common."""
    notes = helm.notes(values_of("extender-only.md"))
    head = of_kind("extender-only.md", "KubeSchedulerConfiguration")
    printed = re.findall(r"^    (\w+):", notes, re.MULTILINE)
    assert {"percentageOfNodesToScore", "profiles", "extenders"} <= set(printed)
    assert not set(head) & {"percentageOfNodesToScore", "profiles", "extenders"}


def test_argo_cd_renders_the_application_whatever_version_it_passes(helm: Helm) -> None:
    values = of_kind("gitops.md", "Application")["spec"]["source"]["helm"]["valuesObject"]
    for version in ("1.36", "v1.36.0", "v1.36.5"):
        rendered = helm.template("--kube-version", version, values=values)
        assert containers(rendered)["kube-scheduler"]["image"].endswith(values["scheduler"]["image"]["tag"])


def test_without_a_tag_the_chart_renders_nothing_for_a_version_without_a_patch_release(helm: Helm) -> None:
    for version in ("1.36", "v1.36.0"):
        done = helm.run("template", "--kube-version", version)
        assert (done.code != 0, "scheduler.image.tag is empty" in done.words) == (True, True), done.words


def test_the_values_for_flux_and_openshift_are_taken(helm: Helm) -> None:
    assert helm.template(values=of_kind("gitops.md", "HelmRelease")["spec"]["values"])
    pod = pod_spec(helm.template(values=values_of("gitops.md")))
    assert not {"runAsUser", "runAsGroup", "fsGroup"} & set(pod["securityContext"])

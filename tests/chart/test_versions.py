"""One version of the product and one of Kubernetes, wherever they are written down."""

import re
import tomllib

import pytest
import yaml

from tests.chart.programs import CHART, MANIFESTS, REPOSITORY, Object
from tests.chart.selecting import containers

pytestmark = pytest.mark.chart


def test_chart_manifests_and_image_carry_the_version_of_the_package(manifests: list[Object]) -> None:
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    assert containers(manifests)["extender"]["image"] == f"dra-extender:{version}"
    assert {each["metadata"]["labels"]["app.kubernetes.io/version"] for each in manifests} == {version}
    assert re.findall(r"^ARG VERSION=(.*)$", (REPOSITORY / "Dockerfile").read_text(), flags=re.MULTILINE) == [version]


def test_manifests_deploy_the_kube_scheduler_that_the_tests_run(
    manifests: list[Object], kubernetes_version: str
) -> None:
    image = containers(manifests)["kube-scheduler"]["image"]
    assert image == f"registry.k8s.io/kube-scheduler:{kubernetes_version}"


def test_kustomization_is_where_the_tags_are() -> None:
    """A tag in the Deployment beside it would be a second truth."""
    (deployment,) = yaml.safe_load_all((MANIFESTS / "deployment.yaml").read_text())
    assert [":" in each["image"] for each in containers([deployment]).values()] == [False, False]

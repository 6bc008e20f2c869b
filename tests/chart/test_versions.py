"""One version of the product and one of Kubernetes, wherever they are written down."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.chart.programs import CHART, MANIFESTS, OVERLAYS, REPOSITORY, Object
from tests.chart.selecting import containers
from tests.support.chart.kubernetes_types import all_releases, minor

pytestmark = pytest.mark.chart


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


def test_kustomization_is_where_the_tags_are() -> None:
    """A tag in the Deployment beside it would be a second truth."""
    (deployment,) = yaml.safe_load_all((MANIFESTS / "deployment.yaml").read_text())
    assert [":" in each["image"] for each in containers([deployment]).values()] == [False, False]

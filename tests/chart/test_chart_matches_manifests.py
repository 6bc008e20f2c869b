"""The chart's default rendering and the plain manifests are the same objects, so that the two cannot drift apart."""

import copy
import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.chart.programs import Helm, Object, documents
from tests.chart.selecting import only

pytestmark = pytest.mark.chart

HELM_LABELS = {"helm.sh/chart", "app.kubernetes.io/managed-by"}
CONTENT_HASH = re.compile(r"^(dra-extender-scheduler-config)-[a-z0-9]{10}$")
Key = tuple[str, str, str, str]


def key(each: Object) -> Key:
    metadata = each["metadata"]
    return each["apiVersion"], each["kind"], metadata.get("namespace", ""), metadata["name"]


def normalised(objects: Iterable[Object]) -> dict[Key, Object]:
    """Objects by identity, without what each tool adds for itself: labels of Helm, hashes of contents in names or annotations."""
    return {key(plain): plain for plain in map(without_tools, objects)}


def without_tools(each: Object) -> Object:
    plain: Object = renamed(copy.deepcopy(each))
    templates = [plain["spec"]["template"]] if plain["kind"] == "Deployment" else []
    for metadata in (part["metadata"] for part in (plain, *templates)):
        for label in HELM_LABELS:
            metadata["labels"].pop(label, None)
        annotations = metadata.get("annotations", {})
        annotations.pop("checksum/config", None)
        if not annotations:
            metadata.pop("annotations", None)
    if plain["kind"] == "ConfigMap":
        plain["data"] = {name: documents(text) for name, text in plain["data"].items()}
    return plain


def renamed(value: Any) -> Any:
    """The value with names that end in a content hash cut to the name."""
    if isinstance(value, dict):
        return {name: renamed(each) for name, each in value.items()}
    if isinstance(value, list):
        return [renamed(each) for each in value]
    return CONTENT_HASH.sub(r"\1", value) if isinstance(value, str) else value


def test_default_rendering_equals_the_manifests_object_by_object(
    rendered: Callable[[str], list[Object]], manifests: list[Object]
) -> None:
    """Helm makes the namespace itself (--create-namespace); all else is the same."""
    chart, plain = normalised(rendered("secondScheduler")), normalised(manifests)
    assert [kind for _, kind, *_ in plain.keys() - chart.keys()] == ["Namespace"]
    assert chart.keys() - plain.keys() == set()
    for identity, each in chart.items():
        assert each == plain[identity], identity


def test_with_claims_of_podgroups_the_chart_equals_the_manifests_for_that(
    helm: Helm, manifests_with_group_claims: list[Object], manifests: list[Object]
) -> None:
    """Two objects more than by default, and a setting."""
    chart = normalised(helm.template(values={"groupClaims": {"enabled": True}}))
    plain = normalised(manifests_with_group_claims)
    assert [kind for _, kind, *_ in plain.keys() - chart.keys()] == ["Namespace"]
    for identity, each in chart.items():
        assert each == plain[identity], identity
    more = sorted(kind for _, kind, *_ in plain.keys() - normalised(manifests).keys())
    assert more == ["ClusterRole", "ClusterRoleBinding"]


def test_both_configure_the_scheduler_alike_and_restart_it_on_a_change(
    rendered: Callable[[str], list[Object]], manifests: list[Object]
) -> None:
    """What normalising hides: a checksum in the chart's pods, a hash in the name of the manifests' ConfigMap."""
    template = only(rendered("secondScheduler"), "Deployment")["spec"]["template"]
    assert template["metadata"]["annotations"]["checksum/config"]
    name = only(manifests, "ConfigMap")["metadata"]["name"]
    assert CONTENT_HASH.match(name)
    volumes = only(manifests, "Deployment")["spec"]["template"]["spec"]["volumes"]
    assert [volume["configMap"]["name"] for volume in volumes if volume["name"] == "scheduler-config"] == [name]

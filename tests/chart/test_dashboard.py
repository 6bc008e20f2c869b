"""The dashboard of the chart: what Grafana imports, and that its queries read what exists."""

import json
import re

import pytest
import yaml
from dra_extender.telemetry.metrics import DEFINITIONS

from tests.chart.programs import CHART, REPOSITORY, Helm, Object
from tests.chart.selecting import of_kind
from tests.support.observe.dashboard import FILE, panels, queries

RUNBOOKS = REPOSITORY / "docs" / "operate" / "runbooks.md"


def test_queries_read_metrics_that_exist_with_labels_that_they_have() -> None:
    known = {each.full_name + suffix: each for each in DEFINITIONS for suffix in ("", "_bucket", "_count", "_sum")}
    of_target = {"cluster", "job", "namespace", "pod", "instance", "le"}
    for name, query in queries().items():
        used = set(re.findall(r"(?:dra_extender|scheduler_dra)_\w+", query))
        assert used, name
        counters = {metric for metric in used if known[metric].kind == "counter"}
        assert counters <= set(re.findall(r"(?:rate|increase)\((\w+)", query)), name
        assert used <= known.keys(), name
        labels = {label for metric in used for label in known[metric].labels} | of_target
        asked = {each.strip() for group in re.findall(r"(?:by|on) \(([^)]*)\)", query) for each in group.split(",")}
        asked |= set(re.findall(r"[,{](\w+)(?:=|!=|=~)\"", query))
        assert asked <= labels, name
        shown = set(re.findall(r"\{\{(\w+)\}\}", name))
        assert shown <= labels, name


def test_each_panel_says_what_it_shows() -> None:
    assert [panel["title"] for panel in panels() if not panel.get("description")] == []


def test_links_lead_to_sections_of_the_runbooks_of_this_version() -> None:
    sections = {each.lower() for each in re.findall(r"^## (DRAExtender\w+)", RUNBOOKS.read_text(), flags=re.MULTILINE)}
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    page = f"{chart['home']}/blob/v{chart['version']}/docs/operate/runbooks.md"
    links = {link["url"] for each in (json.loads(FILE.read_text()), *panels()) for link in each["links"]}
    assert page in links
    assert links <= {page, *(f"{page}#{section}" for section in sections)}


@pytest.mark.chart
def test_the_config_map_has_the_label_of_the_sidecar_and_the_dashboard(helm: Helm) -> None:
    def maps(values: Object) -> list[Object]:
        return [
            each
            for each in of_kind(helm.template(values=values), "ConfigMap")
            if "dashboard" in each["metadata"]["name"]
        ]

    assert maps({}) == []
    (found,) = maps({"grafanaDashboard": {"enabled": True, "annotations": {"grafana_folder": "GPUs"}}})
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert found["metadata"]["annotations"] == {"grafana_folder": "GPUs"}
    assert json.loads(found["data"]["dra-extender.json"]) == json.loads(FILE.read_text())

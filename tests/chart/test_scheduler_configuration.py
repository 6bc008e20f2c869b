"""Every KubeSchedulerConfiguration that the project prints, judged by the real kube-scheduler."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from dra_extender.config.scheduler_checks import check
from dra_extender.config.scheduler_configuration import SchedulerSetup, render
from dra_extender.config.scheduling_settings import SchedulingSettings
from dra_extender.config.settings import Settings

from tests.chart.programs import SCHEDULER_CONFIGURATION, Helm, KubeScheduler, Object, documents, enabled_plugins
from tests.chart.selecting import scheduler_configuration
from tests.chart.value_sets import OUTSIDE

pytestmark = pytest.mark.chart


@pytest.fixture(scope="module")
def shipped() -> Object:
    """The document in deploy/base/scheduler-config."""
    (document,) = documents(SCHEDULER_CONFIGURATION.read_text())
    return document


def stanzas(configuration: Object) -> list[Object]:
    """Extender stanzas, with durations as kube-scheduler writes them."""
    found: list[Object] = configuration["extenders"]
    return found


def test_kube_scheduler_accepts_it_and_leaves_the_plugin_off(shipped: Object, kube_scheduler: KubeScheduler) -> None:
    completed = kube_scheduler.complete(shipped)
    plugins = set(enabled_plugins(completed))
    assert "NodeResourcesFit" in plugins
    assert "DynamicResources" not in plugins
    assert completed["percentageOfNodesToScore"] == 100
    assert stanzas(completed) == [
        {
            "urlPrefix": "http://127.0.0.1:8080",
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "preemptVerb": "preempt",
            "weight": 2,
            "httpTimeout": "5s",
            "nodeCacheCapable": True,
        },
        {"urlPrefix": "http://127.0.0.1:8080", "bindVerb": "bind", "httpTimeout": "11m0s", "nodeCacheCapable": True},
    ]


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"bindingTimeoutSeconds": 1},
        {"bindingTimeoutSeconds": 86400, "scheduler": {"name": "gpu.example-scheduler"}},
        {"scheduler": {"clientConnection": {"qps": 100, "burst": 200}}},
    ],
)
def test_kube_scheduler_accepts_what_the_chart_renders(
    helm: Helm, kube_scheduler: KubeScheduler, values: Object
) -> None:
    configuration = scheduler_configuration(helm.template(values=values))
    assert "DynamicResources" not in set(enabled_plugins(kube_scheduler.complete(configuration)))


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", "https://extender.example.com:8443"])
def test_kube_scheduler_accepts_what_the_command_prints(
    kube_scheduler: KubeScheduler, tmp_path: Path, url: str
) -> None:
    authority = tmp_path / "ca.crt"
    authority.write_text("")
    document = render(SchedulerSetup(url=url, binding_timeout=12.5, authority=str(authority)))
    completed = kube_scheduler.complete(document)
    assert "DynamicResources" not in set(enabled_plugins(completed))
    assert [each["httpTimeout"] for each in stanzas(completed)] == ["5s", "1m12.5s"]
    assert (
        check(
            completed | {"leaderElection": document["leaderElection"]},
            Settings(scheduling=SchedulingSettings(binding_timeout_seconds=12.5)),
        )
        == []
    )


@pytest.mark.parametrize("timeout", [1, 600, 86400])
def test_chart_and_command_make_the_same_document(helm: Helm, timeout: int) -> None:
    configuration = scheduler_configuration(helm.template(values={"bindingTimeoutSeconds": timeout}))
    assert configuration == render(SchedulerSetup(binding_timeout=timeout))


def test_snippet_in_the_notes_is_what_the_shipped_document_says(
    helm: Helm, shipped: Object, kube_scheduler: KubeScheduler
) -> None:
    """Merged into a document of the default scheduler it is accepted, with the address of the Service."""
    notes = helm.notes({**OUTSIDE, "service": {"clusterIP": "10.0.0.77"}, "certificates": {"source": "none"}})
    snippet = indented_yaml(notes, "percentageOfNodesToScore")
    completed = kube_scheduler.complete(
        {
            "apiVersion": shipped["apiVersion"],
            "kind": shipped["kind"],
            "leaderElection": {"leaderElect": True},
            **snippet,
        }
    )
    assert "DynamicResources" not in set(enabled_plugins(completed))
    ours, theirs = copy.deepcopy(shipped), copy.deepcopy(snippet)
    assert {each.pop("urlPrefix") for each in theirs["extenders"]} == {"http://10.0.0.77:8080"}
    for each in ours["extenders"]:
        del each["urlPrefix"]
    assert theirs["extenders"] == ours["extenders"]
    assert theirs["percentageOfNodesToScore"] == ours["percentageOfNodesToScore"]
    assert theirs["profiles"][0]["plugins"] == ours["profiles"][0]["plugins"]


def indented_yaml(text: str, first: str) -> Any:
    """The indented block of a text that begins with a key."""
    lines = iter(text.splitlines())
    block = [next(line for line in lines if line.startswith(f"    {first}"))]
    for line in lines:
        if not line.startswith("    "):
            break
        block.append(line)
    return yaml.safe_load("\n".join(block))

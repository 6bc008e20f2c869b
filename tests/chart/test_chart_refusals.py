import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
import yaml
from dra_extender.config.policy_file import InvalidPolicyError, read_policy
from dra_extender.config.settings import Settings
from pydantic import ValidationError

from tests.chart.programs import Helm, Object
from tests.chart.value_sets import OUTSIDE
from tests.support.side_by_side import side_by_side

pytestmark = pytest.mark.chart

Refused = tuple[Object, str]
"""Values, and words of the refusal."""


async def refused(helm: Helm, values: Object, words: str) -> None:
    assert words in await asyncio.to_thread(helm.refusal, values)


WRONG: Final[Mapping[str, Refused]] = {
    "misspelt value": ({"mod": "extenderOnly"}, "additional properties 'mod' not allowed"),
    "unknown mode": ({"mode": "both"}, "must be one of 'secondScheduler', 'extenderOnly'"),
    "nobody at all": ({"replicas": 0}, "minimum: got 0, want 1"),
    "no binding timeout": ({"bindingTimeoutSeconds": 0}, "minimum: got 0, want 1"),
    "timeout with a unit": ({"bindingTimeoutSeconds": "10m"}, "got string, want integer"),
    "cut digest": ({"image": {"digest": "sha256:1"}}, "does not match pattern"),
    "image with capitals": ({"image": {"repository": "example.com/Team/extender"}}, "does not match pattern"),
    "unknown pull policy": ({"image": {"pullPolicy": "Sometimes"}}, "must be one of"),
    "argument that is no flag": ({"scheduler": {"extraArgs": ["v=4"]}}, "does not match pattern"),
    "unknown group": ({"extender": {"settings": {"logs": {}}}}, "additional properties 'logs'"),
    "boolean as text": ({"networkPolicy": {"enabled": "yes"}}, "got string, want boolean"),
    "misspelt setting": (
        {"extender": {"settings": {"scheduling": {"hold_second": 5}}}},
        "'/extender/settings/scheduling': additional properties 'hold_second' not allowed",
    ),
    "setting out of bounds": (
        {"extender": {"settings": {"scheduling": {"filter_budget_seconds": 5}}}},
        "exclusiveMaximum: got 5, want 5",
    ),
    "rule of the policy with a wrong name": (
        {"policy": {"rules": [{"name": "MIG", "compatibilityGroups": ["a"]}]}},
        "'/policy/rules/0/name': 'MIG' does not match pattern",
    ),
    "misspelt field of an object of Kubernetes": (
        {"tolerations": [{"effects": "NoSchedule"}]},
        "'/tolerations/0': additional properties 'effects' not allowed",
    ),
    "misspelt affinity": ({"affinity": {"nodeAfinity": {}}}, "'nodeAfinity' not allowed"),
    "no quantity": ({"extender": {"resources": {"requests": {"memory": "256MB!"}}}}, "does not match pattern"),
    "no plugin": ({"scheduler": {"pluginWeights": {"NodeResourceFit": 5}}}, "NodeResourceFit"),
    "the chart's own label": ({"podLabels": {"app.kubernetes.io/name": "x"}}, "app.kubernetes.io/name"),
    "the chart's own argument": ({"scheduler": {"extraArgs": ["--config=/x"]}}, "extraArgs/0"),
    "its own volume": ({"extender": {"extraVolumes": [{"name": "policy", "emptyDir": {}}]}}, "extraVolumes/0"),
    "tag without a version": ({"scheduler": {"image": {"tag": "latest"}}}, "does not match pattern"),
    "value taken away": ({"replicas": None}, "missing property 'replicas'"),
    "no schedule": ({"certificates": {"job": {"schedule": "weekly"}}}, "/certificates/job/schedule"),
}


async def test_schema_refuses_a_wrong_value_and_names_it(helm: Helm) -> None:
    await side_by_side({name: refused(helm, *row) for name, row in WRONG.items()})


UNWORKABLE: Final[Mapping[str, Refused]] = {
    "the scheduler would be kept out": (
        {"mode": "extenderOnly"},
        "mode extenderOnly needs networkPolicy.schedulerFrom",
    ),
    "policy file of one's own": (
        {"extender": {"settings": {"scheduling": {"policy_file": "/x"}}}},
        "extender.settings.scheduling.policy_file is set, but the chart mounts the policy",
    ),
    "another configuration to check": (
        {"extender": {"settings": {"scheduling": {"scheduler_config": "/x"}}}},
        "the chart mounts the configuration of its kube-scheduler",
    ),
    "claims of groups without the rights for them": (
        {"extender": {"settings": {"scheduling": {"group_claims_enabled": True}}}},
        "use groupClaims.enabled instead",
    ),
    "taken name": ({"scheduler": {"name": "default-scheduler"}}, "two schedulers would bind the same pods"),
    "scheduler newer than the cluster": (
        {"scheduler": {"image": {"tag": "v1.38.0"}}},
        "scheduler.image.tag is v1.38.0, but the cluster is",
    ),
    "scheduler two versions older": (
        {"scheduler": {"image": {"tag": "v1.35.9"}}},
        "the minor version of its API server or the one below",
    ),
    "another port": ({"extender": {"settings": {"server": {"port": 9090}}}}, "the chart chooses the port"),
    "half of a timeout": (
        {"extender": {"settings": {"scheduling": {"binding_timeout_seconds": 5}}}},
        "use bindingTimeoutSeconds instead",
    ),
    "several replicas that all act": (
        {"extender": {"settings": {"leader_election": {"enabled": False}}}},
        "extender.settings.leader_election.enabled is set, but the chart decides it",
    ),
    "tag that the registry has not": ({"scheduler": {"image": {"tag": "1.37.1"}}}, "begin with v: v1.37.1"),
    "setting in the environment": (
        {"extender": {"extraEnv": [{"name": "DRA_EXTENDER_LOG__LEVEL", "value": "debug"}]}},
        "put it into extender.settings",
    ),
    "account that nobody names": ({"serviceAccount": {"create": False}}, "name the account that exists"),
    "two monitors": ({"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}, "would be scraped twice"),
    "allocations of no driver": (
        {"admission": {"allocations": True}},
        "admission.allocations is set, but admission.drivers is empty",
    ),
    "pods that need nothing": (
        {"admission": {"pods": "deny"}},
        "admission.pods is deny, but admission.deviceClasses and admission.extendedResources are empty",
    ),
    "pods without a scheduler to name": (
        OUTSIDE | {"admission": {"pods": "deny", "deviceClasses": ["gpu"]}},
        "admission.pods is set in mode extenderOnly",
    ),
    "no time to stop": (
        {"terminationGracePeriodSeconds": 25},
        "the pod would be killed before the extender has finished",
    ),
}


async def test_what_would_not_work_is_refused_in_plain_words(helm: Helm) -> None:
    await side_by_side({name: refused(helm, *row) for name, row in UNWORKABLE.items()})


def test_a_scheduler_one_minor_version_below_the_cluster_is_accepted(helm: Helm) -> None:
    assert helm.template(values={"scheduler": {"image": {"tag": "v1.36.4"}}})


def test_extender_alone_without_network_policy_needs_no_addresses(helm: Helm) -> None:
    assert helm.template(values={"mode": "extenderOnly", "networkPolicy": {"enabled": False}})


@pytest.mark.parametrize("version", ["1.35", "v1.35.0"])
def test_an_unknown_patch_release_of_the_cluster_is_asked_for(helm: Helm, version: str) -> None:
    """As Argo CD calls helm; v1.N.0 is also what helm assumes where nobody names a version."""
    refused = Helm(helm.program, helm.home, version).refusal({})
    assert "scheduler.image.tag is empty, and the cluster's patch release is not known" in refused
    tagged: Object = {"scheduler": {"image": {"tag": "v1.35.4"}}}
    assert Helm(helm.program, helm.home, version).template(values=tagged)
    ahead: Object = {"scheduler": {"image": {"tag": "v1.36.0"}}}
    assert "the minor version of its API server or the one below" in Helm(helm.program, helm.home, version).refusal(
        ahead
    )


def test_extender_alone_needs_no_version_of_a_scheduler(helm: Helm) -> None:
    values: Object = {"mode": "extenderOnly", "networkPolicy": {"enabled": False}}
    assert Helm(helm.program, helm.home, "1.35").template(values=values)


SETTINGS: Final[Sequence[Object]] = (
    {"leader_election": {"duration_seconds": 10}},
    {"leader_election": {"duration_seconds": 11}},
    {"leader_election": {"renew_seconds": 3.9}},
    {"leader_election": {"renew_seconds": 4}},
    {"scheduling": {"watch_lag_seconds": 15.5}},
    {"scheduling": {"watch_lag_seconds": 15}},
    {"scheduling": {"shared_claim_wait_seconds": 44, "watch_lag_seconds": 2}},
    {"server": {"body_limit_bytes": 33554433}},
    {"server": {"body_limit_bytes": 33554432}},
    {"server": {"body_limit_bytes": 16777216, "in_flight_bytes": 33554431}},
)


async def test_settings_that_contradict_each_other_are_refused_as_the_service_refuses_them(helm: Helm) -> None:
    async def judged_alike(settings: Object) -> None:
        done = await asyncio.to_thread(helm.run, "template", values={"extender": {"settings": settings}})
        try:
            Settings(**settings)
        except ValidationError:
            assert "execution error" in done.words
            assert "extender.settings." in done.words
        else:
            assert done.code == 0, done.words

    await side_by_side({str(settings): judged_alike(settings) for settings in SETTINGS})


RULES: Final[Sequence[Object]] = (
    {"name": "a"},
    {"name": "a", "counterSet": "x", "bindsToNode": True},
    {"name": "a", "neighbours": {"within": "node"}, "physicalDevice": "'0'"},
    {"name": "a", "bindingConditions": ["A"]},
    {"name": "a", "bindingFailureConditions": ["A"], "bindsToNode": True},
    {"name": "a", "bindsToNode": False},
    {"name": "a", "compatibilityGroups": []},
    {"name": "a", "bindsToNode": True},
    {"name": "a", "counterSet": "x", "compatibilityGroups": ["g"]},
)


async def test_rules_of_the_policy_are_refused_where_the_service_refuses_them(helm: Helm, tmp_path: Path) -> None:
    async def judged_alike(number: int, rule: Object) -> None:
        policy: Object = {"rules": [rule]}
        done = await asyncio.to_thread(helm.run, "template", values={"policy": policy})
        file = tmp_path / f"policy-{number}.yaml"
        file.write_text(yaml.safe_dump(policy))
        try:
            read_policy(file)
        except InvalidPolicyError:
            assert "at '/policy" in done.words
        else:
            assert done.code == 0, done.words

    await side_by_side({str(rule): judged_alike(number, rule) for number, rule in enumerate(RULES)})


@pytest.mark.parametrize("value", ["off", False])
def test_pods_are_not_judged_by_default_however_off_is_spelt(helm: Helm, value: object) -> None:
    """`off` without quotes is false in YAML 1.1."""
    rendered = helm.template(values={"admission": {"pods": value, "deviceClasses": ["gpu"]}})
    assert [each for each in rendered if "-pods-by-" in each["metadata"]["name"]] == []


def test_pods_are_changed_only_where_the_api_server_has_the_kind(helm: Helm) -> None:
    values = {"admission": {"pods": "mutate", "deviceClasses": ["gpu"]}}
    older = replace(helm, version="1.35.4").refusal(values)
    assert "admission.pods is mutate, which needs MutatingAdmissionPolicy v1 of Kubernetes 1.36" in older
    made = replace(helm, version="1.36.2").template(values=values)
    assert sum(each["kind"] == "MutatingAdmissionPolicy" for each in made) == 5

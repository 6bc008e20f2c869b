from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from dra_extender.config.policy_file import InvalidPolicyError, read_policy
from dra_extender.config.settings import Settings
from pydantic import ValidationError

from tests.chart.programs import Helm, Object
from tests.chart.value_sets import OUTSIDE

pytestmark = pytest.mark.chart


@pytest.mark.parametrize(
    ("values", "words"),
    [
        pytest.param({"mod": "extenderOnly"}, "additional properties 'mod' not allowed", id="misspelt value"),
        pytest.param({"mode": "both"}, "must be one of 'secondScheduler', 'extenderOnly'", id="unknown mode"),
        pytest.param({"replicas": 0}, "minimum: got 0, want 1", id="nobody at all"),
        pytest.param({"bindingTimeoutSeconds": 0}, "minimum: got 0, want 1", id="no binding timeout"),
        pytest.param({"bindingTimeoutSeconds": "10m"}, "got string, want integer", id="timeout with a unit"),
        pytest.param({"image": {"digest": "sha256:1"}}, "does not match pattern", id="cut digest"),
        pytest.param({"image": {"pullPolicy": "Sometimes"}}, "must be one of", id="unknown pull policy"),
        pytest.param({"scheduler": {"extraArgs": ["v=4"]}}, "does not match pattern", id="argument that is no flag"),
        pytest.param({"extender": {"settings": {"logs": {}}}}, "additional properties 'logs'", id="unknown group"),
        pytest.param({"networkPolicy": {"enabled": "yes"}}, "got string, want boolean", id="boolean as text"),
        pytest.param(
            {"extender": {"settings": {"scheduling": {"hold_second": 5}}}},
            "'/extender/settings/scheduling': additional properties 'hold_second' not allowed",
            id="misspelt setting",
        ),
        pytest.param(
            {"extender": {"settings": {"scheduling": {"filter_budget_seconds": 5}}}},
            "exclusiveMaximum: got 5, want 5",
            id="setting out of bounds",
        ),
        pytest.param(
            {"policy": {"rules": [{"name": "MIG", "compatibilityGroups": ["a"]}]}},
            "'/policy/rules/0/name': 'MIG' does not match pattern",
            id="rule of the policy with a wrong name",
        ),
        pytest.param(
            {"tolerations": [{"effects": "NoSchedule"}]},
            "'/tolerations/0': additional properties 'effects' not allowed",
            id="misspelt field of an object of Kubernetes",
        ),
        pytest.param({"affinity": {"nodeAfinity": {}}}, "'nodeAfinity' not allowed", id="misspelt affinity"),
        pytest.param(
            {"extender": {"resources": {"requests": {"memory": "256MB!"}}}}, "does not match pattern", id="no quantity"
        ),
        pytest.param({"scheduler": {"pluginWeights": {"NodeResourceFit": 5}}}, "NodeResourceFit", id="no plugin"),
        pytest.param(
            {"podLabels": {"app.kubernetes.io/name": "x"}}, "app.kubernetes.io/name", id="the chart's own label"
        ),
        pytest.param({"scheduler": {"extraArgs": ["--config=/x"]}}, "extraArgs/0", id="the chart's own argument"),
        pytest.param(
            {"extender": {"extraVolumes": [{"name": "policy", "emptyDir": {}}]}}, "extraVolumes/0", id="its own volume"
        ),
        pytest.param({"scheduler": {"image": {"tag": "latest"}}}, "does not match pattern", id="tag without a version"),
        pytest.param({"replicas": None}, "missing property 'replicas'", id="value taken away"),
        pytest.param({"certificates": {"job": {"schedule": "weekly"}}}, "/certificates/job/schedule", id="no schedule"),
    ],
)
def test_schema_refuses_a_wrong_value_and_names_it(helm: Helm, values: Object, words: str) -> None:
    assert words in helm.refusal(values)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        pytest.param(
            {"mode": "extenderOnly"},
            "mode extenderOnly needs networkPolicy.schedulerFrom",
            id="the scheduler would be kept out",
        ),
        pytest.param(
            {"extender": {"settings": {"scheduling": {"policy_file": "/x"}}}},
            "extender.settings.scheduling.policy_file is set, but the chart mounts the policy",
            id="policy file of one's own",
        ),
        pytest.param(
            {"extender": {"settings": {"scheduling": {"scheduler_config": "/x"}}}},
            "the chart mounts the configuration of its kube-scheduler",
            id="another configuration to check",
        ),
        pytest.param(
            {"extender": {"settings": {"scheduling": {"group_claims_enabled": True}}}},
            "use groupClaims.enabled instead",
            id="claims of groups without the rights for them",
        ),
        pytest.param(
            {"scheduler": {"name": "default-scheduler"}}, "two schedulers would bind the same pods", id="taken name"
        ),
        pytest.param(
            {"scheduler": {"image": {"tag": "v1.38.0"}}},
            "scheduler.image.tag is v1.38.0, but the cluster is",
            id="scheduler newer than the cluster",
        ),
        pytest.param(
            {"scheduler": {"image": {"tag": "v1.35.9"}}},
            "the minor version of its API server or the one below",
            id="scheduler two versions older",
        ),
        pytest.param(
            {"extender": {"settings": {"server": {"port": 9090}}}}, "the chart chooses the port", id="another port"
        ),
        pytest.param(
            {"extender": {"settings": {"scheduling": {"binding_timeout_seconds": 5}}}},
            "use bindingTimeoutSeconds instead",
            id="half of a timeout",
        ),
        pytest.param(
            {"extender": {"settings": {"leader_election": {"enabled": False}}}},
            "extender.settings.leader_election.enabled is set, but the chart decides it",
            id="several replicas that all act",
        ),
        pytest.param(
            {"scheduler": {"image": {"tag": "1.37.1"}}}, "begin with v: v1.37.1", id="tag that the registry has not"
        ),
        pytest.param(
            {"extender": {"extraEnv": [{"name": "DRA_EXTENDER_LOG__LEVEL", "value": "debug"}]}},
            "put it into extender.settings",
            id="setting in the environment",
        ),
        pytest.param(
            {"serviceAccount": {"create": False}}, "name the account that exists", id="account that nobody names"
        ),
        pytest.param(
            {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}},
            "would be scraped twice",
            id="two monitors",
        ),
        pytest.param(
            {"admission": {"allocations": True}},
            "admission.allocations is set, but admission.drivers is empty",
            id="allocations of no driver",
        ),
        pytest.param(
            {"admission": {"pods": "deny"}},
            "admission.pods is deny, but admission.deviceClasses and admission.extendedResources are empty",
            id="pods that need nothing",
        ),
        pytest.param(
            OUTSIDE | {"admission": {"pods": "deny", "deviceClasses": ["gpu"]}},
            "admission.pods is set in mode extenderOnly",
            id="pods without a scheduler to name",
        ),
        pytest.param(
            {"terminationGracePeriodSeconds": 25},
            "the pod would be killed before the extender has finished",
            id="no time to stop",
        ),
    ],
)
def test_what_would_not_work_is_refused_in_plain_words(helm: Helm, values: Object, words: str) -> None:
    assert words in helm.refusal(values)


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


@pytest.mark.parametrize(
    "settings",
    [
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
    ],
    ids=str,
)
def test_settings_that_contradict_each_other_are_refused_as_the_service_refuses_them(
    helm: Helm, settings: Object
) -> None:
    done = helm.run("template", values={"extender": {"settings": settings}})
    try:
        Settings(**settings)
    except ValidationError:
        assert "execution error" in done.words
        assert "extender.settings." in done.words
    else:
        assert done.code == 0, done.words


@pytest.mark.parametrize(
    "rule",
    [
        {"name": "a"},
        {"name": "a", "counterSet": "x", "bindsToNode": True},
        {"name": "a", "neighbours": {"within": "node"}, "physicalDevice": "'0'"},
        {"name": "a", "bindingConditions": ["A"]},
        {"name": "a", "bindingFailureConditions": ["A"], "bindsToNode": True},
        {"name": "a", "bindsToNode": False},
        {"name": "a", "compatibilityGroups": []},
        {"name": "a", "bindsToNode": True},
        {"name": "a", "counterSet": "x", "compatibilityGroups": ["g"]},
    ],
    ids=str,
)
def test_rules_of_the_policy_are_refused_where_the_service_refuses_them(
    helm: Helm, rule: Object, tmp_path: Path
) -> None:
    policy: Object = {"rules": [rule]}
    done = helm.run("template", values={"policy": policy})
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(policy))
    try:
        read_policy(file)
    except InvalidPolicyError:
        assert "at '/policy" in done.words
    else:
        assert done.code == 0, done.words


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

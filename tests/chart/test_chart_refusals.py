import pytest

from tests.chart.programs import Helm, Object

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

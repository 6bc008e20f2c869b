"""What is known of kubelets comes from what they write, and a tenant can spoil it for nobody but itself."""

from typing import Any

import pytest

from app.ledger.group_starts import Ability
from app.ledger.ledger import Ledger
from app.ledger.pod_groups import START_LABEL
from app.model.node import Node, read_node
from app.model.pod import Pod, PodResourceClaim, read_pod

NODE = Node(name="n1", uid="u", boot_id="b", kubelet_version="v1.37.1")


def pod(name: str, namespace: str = "ns", **fields: Any) -> Pod:
    claims = (PodResourceClaim(name="gpu", resource_claim_name="shared"),)
    return Pod(namespace=namespace, name=name, uid=name, pod_group="team", claims=claims, **fields)


@pytest.fixture
def ledger() -> Ledger:
    made = Ledger()
    made.nodes["n1"] = NODE
    return made


def test_a_start_counts_for_every_namespace_and_a_failure_for_one(ledger: Ledger) -> None:
    starts = ledger.group_starts
    starts.begin(pod("slow", "theirs"), NODE, {"claim"})
    ledger.pod_seen(pod("slow", "theirs", node_name="n1"))
    (slow,) = starts.waiting()
    starts.fail(slow)
    starts.end("slow")
    assert starts.ability("theirs", NODE) is Ability.UNABLE
    assert starts.ability("ours", NODE) is Ability.UNKNOWN
    starts.begin(pod("quick", "ours"), NODE, {"claim"})
    assert starts.ability("theirs", NODE) is Ability.UNABLE
    assert starts.ability("others", NODE) is Ability.UNKNOWN
    assert starts.ability("ours", NODE) is Ability.ON_TRIAL
    ledger.pod_seen(pod("quick", "ours", node_name="n1"))
    ledger.pod_seen(pod("quick", "ours", node_name="n1", has_started=True))
    (quick,) = starts.started()
    assert starts.prove(quick)
    assert [starts.ability(each, NODE) for each in ("ours", "others")] == [Ability.ABLE] * 2


def test_a_pod_that_fails_on_a_proven_node_does_so_for_its_namespace_alone(ledger: Ledger) -> None:
    starts = ledger.group_starts
    starts.begin(pod("quick", "ours"), NODE, {"claim"})
    ledger.pod_seen(pod("quick", "ours", node_name="n1"))
    ledger.pod_seen(pod("quick", "ours", node_name="n1", has_started=True))
    assert starts.prove(next(iter(starts.started())))
    starts.begin(pod("broken", "theirs"), NODE, {"claim"})
    ledger.pod_seen(pod("broken", "theirs", node_name="n1"))
    starts.fail(next(iter(starts.waiting())))
    assert starts.ability("theirs", NODE) is Ability.UNABLE
    assert starts.ability("ours", NODE) is Ability.ABLE


def test_a_pod_that_had_started_before_it_was_seen_proves_nothing(ledger: Ledger) -> None:
    """As after a restart of the service: nobody knows with which run of the kubelet it did."""
    ledger.pod_seen(pod("old", node_name="n1", has_started=True))
    assert not list(ledger.group_starts.started())
    assert not list(ledger.group_starts.unstarted())


def test_a_pod_that_another_binds_elsewhere_is_on_no_trial_here(ledger: Ledger) -> None:
    starts = ledger.group_starts
    starts.begin(pod("p"), NODE, {"claim"})
    ledger.pod_seen(pod("p", node_name="n2"))
    assert starts.ability("ns", NODE) is Ability.UNKNOWN
    assert starts.owed("claim") == 0


@pytest.mark.parametrize("over", [{"deleting": True}, {"phase": "Failed"}])
def test_a_pod_that_is_over_is_owed_nothing(ledger: Ledger, over: dict[str, Any]) -> None:
    starts = ledger.group_starts
    starts.begin(pod("p"), NODE, {"claim"})
    ledger.pod_seen(pod("p", node_name="n1"))
    assert starts.owed("claim") == 1
    assert starts.owed("claim", besides="p") == 0
    ledger.pod_seen(pod("p", node_name="n1", **over))
    assert starts.owed("claim") == 0
    assert not list(starts.waiting())


def test_a_node_that_is_made_anew_under_its_name_is_another(ledger: Ledger) -> None:
    starts = ledger.group_starts
    starts.begin(pod("p"), NODE, {"claim"})
    ledger.pod_seen(pod("p", node_name="n1"))
    ledger.pod_seen(pod("p", node_name="n1", has_started=True))
    assert starts.prove(next(iter(starts.started())))
    again = Node(name="n1", uid="other", boot_id="b", kubelet_version="v1.37.1")
    assert starts.ability("ns", again) is Ability.UNKNOWN


def test_what_the_api_says_of_nodes_and_pods_is_read() -> None:
    node = read_node(
        b'{"metadata":{"name":"n"},"status":{"nodeInfo":{"bootID":"b","kubeletVersion":"v1.37.1","machineID":"m"}}}'
    )
    assert (node.boot_id, node.kubelet_version) == ("b", "v1.37.1")
    assert START_LABEL not in node.labels
    for status, expected in (("True", True), ("False", False), ("Unknown", False)):
        raw = '{"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"PodReadyToStartContainers","status":"%s"}]}}'
        assert read_pod((raw % status).encode()).has_started is expected
    assert not read_pod(b'{"status":{"conditions":null}}').has_started

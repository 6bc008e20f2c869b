"""What is known of kubelets comes from what they write; a tenant can falsify it for its own namespace alone."""

from typing import Any

import msgspec
import pytest
from dra_extender.ledger.group_entry_trials import GroupEntrySupport, GroupEntryTrials
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.pod_groups import START_LABEL
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.node import Node, read_node
from dra_extender.model.pod import Pod, PodResourceClaim, read_pod
from hypothesis import given
from hypothesis import strategies as st

from tests.support.ledger.ledger_events import encode, raw_claim

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
    starts = ledger.group_entry_trials
    starts.begin(pod("slow", "theirs"), NODE, {"claim"})
    ledger.pod_seen(pod("slow", "theirs", node_name="n1"))
    (slow,) = starts.waiting()
    starts.mark_unable(slow)
    starts.end("slow")
    assert starts.support_on("theirs", NODE) is GroupEntrySupport.UNABLE
    assert starts.support_on("ours", NODE) is GroupEntrySupport.UNKNOWN
    starts.begin(pod("quick", "ours"), NODE, {"claim"})
    assert starts.support_on("theirs", NODE) is GroupEntrySupport.UNABLE
    assert starts.support_on("others", NODE) is GroupEntrySupport.UNKNOWN
    assert starts.support_on("ours", NODE) is GroupEntrySupport.ON_TRIAL
    ledger.pod_seen(pod("quick", "ours", node_name="n1"))
    ledger.pod_seen(pod("quick", "ours", node_name="n1", has_started=True))
    (quick,) = starts.started()
    assert starts.mark_able(quick)
    assert [starts.support_on(each, NODE) for each in ("ours", "others")] == [GroupEntrySupport.ABLE] * 2


def test_nothing_is_kept_of_a_node_that_is_gone(ledger: Ledger) -> None:
    """Nodes come and go, with a new name each."""
    starts = ledger.group_entry_trials
    starts.begin(pod("slow", "theirs"), NODE, {"claim"})
    ledger.pod_seen(pod("slow", "theirs", node_name="n1"))
    starts.mark_unable(next(iter(starts.waiting())))
    starts.end("slow")
    assert starts.support_on("theirs", NODE) is GroupEntrySupport.UNABLE
    starts.node_gone("n1")
    assert starts.support_on("theirs", NODE) is GroupEntrySupport.UNKNOWN


def test_a_pod_that_fails_on_a_proven_node_does_so_for_its_namespace_alone(ledger: Ledger) -> None:
    starts = ledger.group_entry_trials
    starts.begin(pod("quick", "ours"), NODE, {"claim"})
    ledger.pod_seen(pod("quick", "ours", node_name="n1"))
    ledger.pod_seen(pod("quick", "ours", node_name="n1", has_started=True))
    assert starts.mark_able(next(iter(starts.started())))
    starts.begin(pod("broken", "theirs"), NODE, {"claim"})
    ledger.pod_seen(pod("broken", "theirs", node_name="n1"))
    starts.mark_unable(next(iter(starts.waiting())))
    assert starts.support_on("theirs", NODE) is GroupEntrySupport.UNABLE
    assert starts.support_on("ours", NODE) is GroupEntrySupport.ABLE


def test_a_pod_that_had_started_before_it_was_seen_proves_nothing(ledger: Ledger) -> None:
    """As after a restart of the service: the run of the kubelet with which it started is unknown."""
    ledger.pod_seen(pod("old", node_name="n1", has_started=True))
    assert not list(ledger.group_entry_trials.started())
    assert not list(ledger.group_entry_trials.unstarted())


def test_a_pod_that_another_binds_elsewhere_is_on_no_trial_here(ledger: Ledger) -> None:
    starts = ledger.group_entry_trials
    starts.begin(pod("p"), NODE, {"claim"})
    ledger.pod_seen(pod("p", node_name="n2"))
    assert starts.support_on("ns", NODE) is GroupEntrySupport.UNKNOWN
    assert starts.entries_kept_free("claim") == 0


@pytest.mark.parametrize("over", [{"deleting": True}, {"phase": "Failed"}])
def test_a_pod_that_is_over_is_owed_nothing(ledger: Ledger, over: dict[str, Any]) -> None:
    starts = ledger.group_entry_trials
    starts.begin(pod("p"), NODE, {"claim"})
    ledger.pod_seen(pod("p", node_name="n1"))
    assert starts.entries_kept_free("claim") == 1
    assert starts.entries_kept_free("claim", excluding="p") == 0
    ledger.pod_seen(pod("p", node_name="n1", **over))
    assert starts.entries_kept_free("claim") == 0
    assert not list(starts.waiting())


def test_a_pod_that_is_gone_before_it_started_is_not_taken_for_one_that_may_start(ledger: Ledger) -> None:
    ledger.pod_seen(pod("p", node_name="n1"))
    assert [each.name for each in ledger.group_entry_trials.unstarted()] == ["p"]
    ledger.pod_gone("ns", "p", "p")
    assert not list(ledger.group_entry_trials.unstarted())


def test_a_node_that_is_made_anew_under_its_name_is_another(ledger: Ledger) -> None:
    starts = ledger.group_entry_trials
    starts.begin(pod("p"), NODE, {"claim"})
    ledger.pod_seen(pod("p", node_name="n1"))
    ledger.pod_seen(pod("p", node_name="n1", has_started=True))
    assert starts.mark_able(next(iter(starts.started())))
    again = Node(name="n1", uid="other", boot_id="b", kubelet_version="v1.37.1")
    assert starts.support_on("ns", again) is GroupEntrySupport.UNKNOWN


@pytest.mark.parametrize("change", [{"boot_id": "b2"}, {"kubelet_version": "v1.38.0"}, {"uid": "other"}])
def test_a_start_under_another_kubelet_proves_nothing_and_forgives_nothing(
    ledger: Ledger, change: dict[str, str]
) -> None:
    starts = ledger.group_entry_trials
    for name in ("slow", "quick"):
        starts.begin(pod(name), NODE, {"claim"})
        ledger.pod_seen(pod(name, node_name="n1"))
    starts.mark_unable(next(each for each in starts.waiting() if each.pod.uid == "slow"))
    ledger.nodes["n1"] = msgspec.structs.replace(NODE, **change)
    ledger.pod_seen(pod("quick", node_name="n1", has_started=True))
    assert not starts.mark_able(next(iter(starts.started())))
    ledger.nodes["n1"] = NODE
    assert starts.support_on("ns", NODE) is GroupEntrySupport.UNABLE


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


class _Counting(dict[str, Node]):
    """Nodes that count how often one is looked up."""

    looked = 0

    def get(self, name: str, default: Any = None) -> Any:
        self.looked += 1
        return super().get(name, default)


def test_room_for_pods_on_trial_is_counted_once_for_all_nodes() -> None:
    """A filter call asks for the room of one claim for each of thousands of nodes."""
    ledger = Ledger()
    nodes = _Counting({f"n{index}": Node(name=f"n{index}", uid=f"u{index}") for index in range(1000)})
    starts = ledger.group_entry_trials = GroupEntryTrials(nodes, ledger.claims)
    _claim(ledger, 1, ())
    for index in range(50):
        starts.begin(pod(f"p{index}"), nodes[f"n{index}"], {"claim"})
    claim = ledger.claims.by_uid("claim")
    assert claim is not None
    assert {(starts.free_entries(claim.claim, "q"), starts.support_on("ns", node, "q")) for node in nodes.values()} == {
        (206, GroupEntrySupport.ON_TRIAL),
        (206, GroupEntrySupport.UNKNOWN),
    }
    assert starts.free_entries(claim.claim, "p0") == 207
    assert nodes.looked <= 50


def _claim(ledger: Ledger, version: int, consumers: tuple[str, ...]) -> None:
    raw = raw_claim("claim", version, devices=(("p1", "d1"),), consumers=consumers, uid="claim")
    sinks_of(ledger)["resourceclaims"].changed(encode(raw))


def _node(ledger: Ledger, name: str, kubelet: str, label: str) -> None:
    labels = {START_LABEL: label} if label else {}
    raw = {
        "metadata": {"name": name, "uid": name, "labels": labels},
        "status": {"nodeInfo": {"kubeletVersion": kubelet}},
    }
    sinks_of(ledger)["nodes"].changed(encode(raw))


PODS, NODES = ("a", "b", "c"), ("n1", "n2")
STEP = st.one_of(
    st.tuples(st.just("begin"), st.sampled_from(PODS), st.sampled_from(NODES)),
    st.tuples(st.sampled_from(("end", "prove", "fail", "gone")), st.sampled_from(PODS), st.just("")),
    st.tuples(st.just("node"), st.sampled_from(NODES), st.sampled_from(("v1/", "v2/", "v1/true", "v1/false"))),
    st.tuples(st.just("forgive"), st.sampled_from(NODES), st.just("")),
    st.tuples(st.just("claim"), st.sampled_from(("", "a", "ab", "bc")), st.just("")),
)


def test_room_is_kept_for_pods_of_a_namespace_for_which_a_proven_node_failed(ledger: Ledger) -> None:
    starts = ledger.group_entry_trials
    starts.begin(pod("quick"), NODE, {"claim"})
    ledger.pod_seen(pod("quick", node_name="n1", has_started=True))
    for name in ("slow", "next"):
        starts.begin(pod(name), NODE, {"claim"})
        ledger.pod_seen(pod(name, node_name="n1"))
    assert starts.entries_kept_free("claim") == 3
    assert starts.mark_able(next(iter(starts.started())))
    assert starts.entries_kept_free("claim") == 0
    starts.mark_unable(next(iter(starts.waiting())))
    assert starts.entries_kept_free("claim") == 2
    starts.allow_retry("ns", "n1")
    assert starts.entries_kept_free("claim") == 0


@given(st.lists(STEP, max_size=30))
def test_what_is_owed_to_pods_on_trial_is_what_counting_them_anew_says(steps: list[tuple[str, str, str]]) -> None:
    ledger = Ledger()
    for name in NODES:
        _node(ledger, name, "v1", "")
    _claim(ledger, 1, ())
    for number, step in enumerate(steps, start=2):
        _do(ledger, number, *step)
        known = [ledger.group_entry_trials.entries_kept_free("claim", each) for each in ("", *PODS)]
        ledger.group_entry_trials.node_seen()
        assert known == [ledger.group_entry_trials.entries_kept_free("claim", each) for each in ("", *PODS)]


def _do(ledger: Ledger, number: int, step: str, what: str, value: str) -> None:
    starts = ledger.group_entry_trials
    trial = next((each for each in (*starts.waiting(), *starts.started()) if each.pod.uid == what), None)
    if step == "begin" and value in ledger.nodes:
        starts.begin(pod(what), ledger.nodes[value], {"claim"})
        ledger.pod_seen(pod(what, node_name=value))
    elif step == "end":
        starts.end(what)
    elif step == "gone":
        ledger.pod_gone("ns", what, what)
    elif step == "prove" and trial is not None:
        starts.mark_able(trial)
    elif step == "fail" and trial is not None:
        starts.mark_unable(trial)
    elif step == "forgive":
        starts.allow_retry("ns", what)
    elif step == "node":
        _node(ledger, what, *value.split("/"))
    elif step == "claim":
        _claim(ledger, number, tuple(what))

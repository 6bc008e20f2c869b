"""The pods of a PodGroup, and whether any of them runs, after any changes are what a look at all pods says."""

from dra_extender.ledger.pods import PodIndex
from dra_extender.model.pod import Pod
from hypothesis import given
from hypothesis import strategies as st

from tests.controlplane import objects
from tests.support.model.reading import pod_from

GROUPS = ("g", "h")
NAMES = ("a", "b", "c")
UIDS = ("1", "2")


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    """One of few pods, which may be recreated under another UID, in any state."""
    name, uid = draw(st.sampled_from(NAMES)), draw(st.sampled_from(UIDS))
    group = draw(st.sampled_from((None, *GROUPS)))
    body = objects.pod(name, "default")
    body["spec"]["schedulingGroup"] = group and {"podGroupName": group}
    body["metadata"] |= {"uid": f"{name}{uid}", "resourceVersion": "1"}
    body["spec"] |= draw(st.sampled_from(({}, {"nodeName": "node-a"})))
    claims = [{"name": f"c{place}", "resourceClaimName": "c"} for place in range(draw(st.integers(0, 2)))]
    requests = {"example.com/gpu": "1"} if draw(st.booleans()) else {}
    body["spec"] |= {"resourceClaims": claims, "containers": [{"name": "c", "resources": {"requests": requests}}]}
    body["status"] = {"phase": draw(st.sampled_from(("Pending", "Running", "Succeeded", "Failed")))}
    return pod_from(body)


def looked_at(index: PodIndex, group: str) -> list[Pod]:
    return sorted((pod for pod in index.all() if pod.pod_group == group), key=lambda pod: pod.name)


@given(st.lists(st.tuples(pods(), st.booleans()), max_size=12))
def test_group_has_the_pods_that_name_it_and_runs_if_one_of_them_is_bound_and_not_over(
    changes: list[tuple[Pod, bool]],
) -> None:
    index = PodIndex()
    for pod, dropped in changes:
        if dropped:
            index.drop(pod.namespace, pod.name, pod.uid)
        else:
            index.put(pod)
        for group in GROUPS:
            members = looked_at(index, group)
            assert list(index.members("default", group)) == members
            waiting = [each for each in members if not (each.node_name or each.finished) and each.needs_devices]
            parts = sum(1 + len(each.claims) + len(each.extended_requests) for each in waiting)
            assert index.unbound_parts("default", group) == parts
            running = {each.uid for each in members if each.node_name and not each.finished}
            assert index.has_running_member("default", group) == bool(running)
            for name in NAMES:
                for uid in UIDS:
                    besides = f"{name}{uid}"
                    assert index.has_running_member("default", group, excluding=besides) == bool(running - {besides})


def test_pod_that_comes_back_under_another_name_is_not_found_under_the_old_one() -> None:
    """The API server's store was set back, or a backup was restored."""
    index = PodIndex()
    for name in ("a", "b"):
        body = objects.pod(name, "default")
        body["metadata"]["uid"] = "1"
        index.put(pod_from(body))
    assert index.by_key("default", "a") is None
    assert [pod.name for pod in index.all()] == ["b"]
    index.drop("default", "b", "1")
    assert not list(index.all())

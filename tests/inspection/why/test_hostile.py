"""Pods whose owners wish the reader ill: answers come in bounded work, and say which limit they reached."""

from functools import partial
from itertools import count
from typing import Any
from unittest.mock import patch

import pytest
from dra_extender.cel.analysis.corrections import PublishedNames, meant_expression
from dra_extender.inspection import cluster_view
from dra_extender.inspection.near_names import meant_name
from dra_extender.inspection.text.why import node_tree, tree, waiting_tree
from dra_extender.inspection.why.node import why_on_node
from dra_extender.inspection.why.waiting import waiting
from dra_extender.inspection.why.why import why
from dra_extender.nodefit.node_fit import NodeFit

from tests.controlplane.objects import device, device_class, node, pod, request, resource_claim
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster

TEN = "[1,2,3,4,5,6,7,8,9,10]"
COSTLY = (
    f"{TEN}.all(a, {TEN}.all(b, {TEN}.all(c, {TEN}.all(d, "
    'device.attributes["gpu.example.com"].uuid != string(a * b * c * d))))) && '
    'device.attributes["gpu.example.com"].uuid == "x"'
)
ESCAPE = "\x1b]0;owned\x07\x1b[2J\r\n"


def cluster(nodes: int, devices: int) -> MadeCluster:
    """Devices none of which equals another one in what a selector reads."""
    made = MadeCluster()
    made.add(device_class("gpu"))
    for number in range(nodes):
        made.nodes(f"n{number}")
        made.gpus(
            f"n{number}", *(device(f"gpu-{each}", attributes={"uuid": f"{number}-{each}"}) for each in range(devices))
        )
    return made


def test_selector_that_takes_long_on_one_device_is_tried_on_no_further_one() -> None:
    """Each look at the clock takes a second, an evaluation has a tenth of one."""
    made = cluster(2, 4)
    made.pod("train", request("gpu", "gpu", COSTLY))
    seconds = count()

    report = why(made.view(lambda: float(next(seconds))), NAMESPACE, "train")

    assert {each.code for branch in report.branches for each in branch.reasons} == {"SEARCH_LIMIT"}


def test_costly_selector_leaves_the_devices_of_a_node_without_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands still, so that what is counted alone ends the explanation: it is one budget for all devices."""
    monkeypatch.setattr(cluster_view, "ANSWER_COST", 200_000)
    made = cluster(1, 6)
    made.pod("train", request("gpu", "gpu", COSTLY))

    (found,) = why_on_node(made.view(), NAMESPACE, "train", "n0").requests

    assert {each.code for each in found.devices} == {"NO_MATCH"}
    assert all("the values were not looked up" in each.device.detail for each in found.devices[1:])


def test_search_that_takes_too_long_ends_with_its_limit_as_the_reason() -> None:
    made = cluster(3, 2)
    made.pod("train", request("gpu", "gpu", 'device.attributes["gpu.example.com"].uuid == "x"'))
    seconds = count()
    view = made.view(lambda: float(next(seconds)))
    asked = view.pod(NAMESPACE, "train")
    assert asked is not None

    result = view.extender.evaluate(asked, tuple(view.ledger.nodes), 0.0)

    assert not result.fits
    assert {each.name for each in result.codes} == {"SEARCH_LIMIT"}


def test_pod_with_very_many_requests_has_so_many_reasons_explained() -> None:
    number_of_requests = 26
    made = MadeCluster()
    made.add(device_class("gpu"))
    for number in range(number_of_requests):
        made.nodes(f"n{number}")
        made.gpus(f"n{number}", *(device(f"gpu-{each}") for each in range(number)))
    claims = {f"c{number}": f"claim-{number}" for number in range(number_of_requests)}
    made.add(*(resource_claim(name, NAMESPACE, request("gpu", "gpu")) for name in claims.values()))
    made.add(pod("train", NAMESPACE, claims=claims))

    report = why(made.view(), NAMESPACE, "train")

    explained = [each for branch in report.branches for each in branch.reasons if each.nearest or each.count]
    assert sum(len(branch.reasons) for branch in report.branches) == number_of_requests
    assert len(explained) <= 24


@pytest.mark.parametrize("field", ["schedulerName", "nodeSelector", "schedulingGates"])
def test_what_tenants_write_never_reaches_the_terminal_as_it_is(field: str) -> None:
    made = cluster(1, 1)
    values: dict[str, Any] = {
        "schedulerName": ESCAPE,
        "nodeSelector": {"zone": ESCAPE},
        "schedulingGates": [{"name": ESCAPE}],
    }
    made.pod("train", request("gpu", "gpu", f'device.attributes["gpu.example.com"].uuid == {ESCAPE!r}'))
    made.objects["pods"][-1]["spec"][field] = values[field]
    condition = {"type": "PodScheduled", "status": "False", "message": f"0/1 nodes are available: 1 {ESCAPE}."}
    made.objects["pods"][-1]["status"] = {"conditions": [condition]}
    made.add(node("evil"))
    made.objects["nodes"][-1]["spec"] = {"taints": [{"key": ESCAPE, "effect": "NoSchedule"}]}
    view = made.view()

    for text in (
        tree(why(view, NAMESPACE, "train")),
        waiting_tree(waiting(view)),
        node_tree(why_on_node(view, NAMESPACE, "train", "evil")),
    ):
        assert all(line.isprintable() for line in text.split("\n"))


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {"a" * 100_000: "b"}},
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}}},
        {"tolerations": [{"operator": "Nonsense"}] * 10_000},
        {"overhead": {"cpu": "not a quantity"}},
        {"initContainers": [{"name": f"i{each}", "resources": {"requests": {"cpu": "1"}}} for each in range(2_000)]},
    ],
)
def test_odd_pod_has_an_answer(spec: dict[str, Any]) -> None:
    made = cluster(2, 1)
    made.pod("train", request("gpu", "gpu"), **spec)

    assert why(made.view(), NAMESPACE, "train").cause in ("nodes", "something else than devices")
    assert waiting(made.view()).pods == 1


def test_claim_entry_of_a_pod_without_a_name_is_the_reason() -> None:
    """The API server refuses such a pod, but an edited snapshot may have it."""
    made = cluster(1, 1)
    made.pod("train", request("held", "gpu", "false"), request("misspelt", "gpuu"))
    made.objects["pods"][-1]["spec"]["resourceClaims"].append({})

    assert "claim reference is of a kind this version does not know" in tree(why(made.view(), NAMESPACE, "train"))


def test_claim_without_a_uid_is_changed_in_trials() -> None:
    """API servers give every object a UID, but an edited snapshot may lack it."""
    made = cluster(1, 1)
    made.pod("train", request("gpu", "gpu", count=2))
    del made.objects["resourceclaims"][-1]["metadata"]["uid"]

    assert "ask for 1 device" in tree(why(made.view(), NAMESPACE, "train"))


def test_what_would_help_on_nodes_that_all_refuse_a_pod_is_found_in_time_that_is_linear_in_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A change that is known to help is not tried once more for each further node."""
    number = 150
    made = MadeCluster()
    made.add(device_class("gpu"))
    for index in range(number):
        tainted = {"spec": {"taints": [{"key": "busy", "value": "x", "effect": "NoSchedule"}]}}
        made.add(node(f"n{index:03}") | tainted)
        made.gpus(f"n{index:03}", device("gpu-0"))
    made.pod("train", request("gpu", "gpu"))
    judged, refusals = 0, NodeFit.refusals

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal judged
        judged += 1
        return refusals(*arguments, **named)

    monkeypatch.setattr(NodeFit, "refusals", counted)
    (first, *_) = why(made.view(), NAMESPACE, "train").next
    assert first.text == "tolerate busy=x:NoSchedule"
    assert judged < 10 * number


def test_names_of_hostile_selectors_are_compared_a_few_times() -> None:
    known = frozenset(f"attribute{number:05d}x" for number in range(1_000))
    asked = " && ".join(f'device.attributes["gpu.example.com"].attribute{number:05d}' for number in range(2_000, 2_100))
    with patch("dra_extender.inspection.near_names.is_slip", return_value=False) as is_slip:
        assert meant_expression(asked, PublishedNames(known, {}, partial(meant_name, names=known))) is None
    assert 0 < is_slip.call_count <= 32 * len(known)


@pytest.mark.parametrize("selected", [f'model == "{"a.b-" * 2_400}"', f"{'a' * 9_000} == 1"])
def test_a_text_that_is_longer_than_any_name_is_compared_with_none(selected: str) -> None:
    known = frozenset({"device", "attributes", "gpu.example.com", "model"})
    with patch("dra_extender.inspection.near_names.is_slip") as is_slip:
        asked = f'device.attributes["gpu.example.com"].{selected}'
        assert meant_expression(asked, PublishedNames(known, {}, partial(meant_name, names=known))) is None
    is_slip.assert_not_called()

"""A gang that waits after the changes has the reasons that `why` gives for its members."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.objects import ClusterObjects
from dra_extender.inspection.text.what_if import table
from dra_extender.inspection.what_if import waiting_gangs
from dra_extender.inspection.what_if.changes import Changes, WrittenObject
from dra_extender.inspection.what_if.copied_cluster import CopiedCluster, generate_claims
from dra_extender.inspection.what_if.report import OutcomeKind, WaitingGang, WhatIfReport
from dra_extender.inspection.what_if.what_if import what_if
from dra_extender.inspection.why.report import Branch, MemberState
from dra_extender.inspection.why.why import why
from dra_extender.simulator.apiserver.objects import StoredKind

from tests.controlplane import objects
from tests.controlplane.objects import (
    consumption,
    counter_set,
    device,
    device_class,
    pod_group,
    request,
    resource_claim_template,
)
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster

MODEL_B = f'device.attributes["{objects.DRIVER}"].model == "b"'


def gang(name: str, asks: dict[str, Any], members: int = 2, **fields: Any) -> Sequence[WrittenObject]:
    """A file with a gang of which all members are needed, each with a claim for this request."""
    template = resource_claim_template(name, NAMESPACE, asks)
    asks["exactly"].setdefault("allocationMode", "ExactCount")
    pods = [
        objects.pod(
            f"{name}-{number}",
            NAMESPACE,
            templates={"gpu": name},
            schedulingGroup={"podGroupName": name},
            **fields,
        )
        for number in range(members)
    ]
    group = pod_group(name, NAMESPACE, min_count=members)
    written = [(StoredKind.POD_GROUP, group), (StoredKind.TEMPLATE, template), *((StoredKind.POD, pod) for pod in pods)]
    return [WrittenObject(kind, item, "gang.yaml:1") for kind, item in written]


async def added(made: MadeCluster, *files: Sequence[WrittenObject]) -> WhatIfReport:
    return await what_if(made.cluster(), Changes(objects=[written for file in files for written in file]))


def explained(report: WhatIfReport) -> WaitingGang:
    assert {row.after.kind for row in report.pods} == {OutcomeKind.WAITS}
    (waiting,) = report.gangs
    return waiting


def after(made: MadeCluster, file: Sequence[WrittenObject]) -> ClusterObjects:
    """The cluster once the file has been applied and the claims have been made."""
    made.add(*({**written.item, "metadata": dict(written.item["metadata"])} for written in file))
    copy = CopiedCluster(made.cluster())
    generate_claims(copy)
    return copy.objects()


@pytest.mark.parametrize(
    "asks",
    [
        pytest.param(request("gpu", "gpu"), id="one-device-too-few"),
        pytest.param(request("gpu", "gpuu"), id="misspelt-class"),
        pytest.param(request("gpu", "gpu", MODEL_B), id="selector-of-no-device"),
    ],
)
async def test_gang_that_does_not_fit_has_the_reasons_of_why(asks: dict[str, Any]) -> None:
    made = with_models()
    waiting = explained(await added(made, gang("band", asks)))
    answer = why(ClusterView(after(made, gang("band", asks))), NAMESPACE, "band-0")
    assert (waiting.summary, waiting.gang, waiting.beside) == (answer.summary, answer.gang, answer.beside)
    assert in_order(waiting.branches) == in_order(answer.branches)
    assert any(branch.reasons for branch in waiting.branches)


def in_order(branches: Sequence[Branch]) -> Sequence[Branch]:
    """The branches with their example nodes by name: each further search begins at another node."""
    return [
        msgspec.structs.replace(
            branch,
            reasons=tuple(
                msgspec.structs.replace(reason, examples=tuple(sorted(reason.examples))) for reason in branch.reasons
            ),
        )
        for branch in branches
    ]


def with_models() -> MadeCluster:
    """Two nodes with a GPU of model a each, one of which a pod has."""
    made = MadeCluster()
    made.add(device_class("gpu"))
    made.nodes("n1", "n2")
    for node in ("n1", "n2"):
        made.gpus(node, device("gpu-0", attributes={"model": "a"}))
    made.running("old", "n1", "gpu-0", request("gpu", "gpu"))
    return made


async def test_gang_that_lacks_one_device_says_which_request_and_what_holds_the_devices() -> None:
    text = table(await added(with_models(), gang("band", request("gpu", "gpu"))))
    assert "not enough members" not in text
    assert text.endswith(
        """\
PodGroup ml/band: 1 of 2 placed, all 2 needed
├ ok       band-0  on n2
└ blocked  band-1  gpu: matching devices are in use (2 nodes)
└ claim gpu, request gpu of pod band-1 (1 x gpu)
  2 nodes  matching devices are in use; nearest n1/gpu-0
           held by ml/old
"""
    )


async def test_gang_whose_class_is_misspelt_names_the_class_that_exists() -> None:
    waiting = explained(await added(with_models(), gang("band", request("gpu", "gpuu"))))
    assert [(branch.claim, branch.request, branch.reasons[0].text) for branch in waiting.branches] == [
        ("gpu", "gpu", "device class does not exist: device class gpuu; nearest name gpu")
    ]


async def test_gang_whose_selector_suits_no_device_names_the_nearest_and_what_it_lacks() -> None:
    text = table(await added(with_models(), gang("band", request("gpu", "gpu", MODEL_B))))
    assert "2 nodes  no device matches the selectors; nearest n2/gpu-0\n" in text
    assert 'model is "a", wanted "b" (request selector 1)\n' in text


async def test_gang_that_lacks_a_counter_names_the_counter() -> None:
    made = MadeCluster()
    made.add(device_class("gpu"))
    made.nodes("n1")
    parts = [device(f"mig-{index}", consumes=[consumption("gpu-0", sm="42")]) for index in range(3)]
    made.partitions("n1", [counter_set("gpu-0", sm="98")], parts)
    made.running("old", "n1", "mig-0", request("gpu", "gpu"))
    text = table(await added(made, gang("band", request("gpu", "gpu"))))
    assert "gpu-0 sm: needs 42, 14 of 98 left\n" in text


async def test_member_that_has_no_room_beside_the_others_is_named() -> None:
    made = MadeCluster()
    made.add(device_class("gpu"), objects.node("n1", cpu="4"))
    made.gpus("n1", device("gpu-0"), device("gpu-1"))
    waiting = explained(await added(made, gang("band", request("gpu", "gpu"), cpu="3")))
    assert [member.state for member in waiting.gang.members] == [MemberState.PLACED]
    assert waiting.notes == ("band-1 does not fit on n1 beside the other members: Insufficient cpu",)


async def test_gangs_beyond_the_bound_are_counted(made: MadeCluster) -> None:
    files = [gang(f"band-{letter}", request("gpu", "gpu")) for letter in "abcde"]
    report = await added(made, *files)
    assert [waiting.gang.pod_group for waiting in report.gangs] == ["ml/band-a", "ml/band-b", "ml/band-c"]
    assert report.notes == ("the reasons of 2 further gangs were not looked for",)
    assert "ml/band-d-0, ml/band-d-1, ml/band-e-0, ml/band-e-1 wait\n" in table(report)


async def test_gang_of_a_namespace_that_takes_long_keeps_its_plain_reasons(
    made: MadeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_gangs, "NAMESPACE_SECONDS", -1.0)
    report = await added(made, gang("band", request("gpu", "gpu")))
    assert report.gangs == ()
    assert report.notes == ("the reasons of 1 further gang were not looked for",)
    assert "2 nodes  not enough members of the PodGroup fit at once\n" in table(report)


async def test_drain_and_fill_ask_nothing_more_of_gangs_that_stand_as_before(
    made: MadeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = after(made, gang("band", request("gpu", "gpu")))
    monkeypatch.delattr(waiting_gangs, "ClusterView")
    report = await what_if(cluster, Changes(drained=["n1"]), subject=(NAMESPACE, "old"))
    assert report.gangs == ()
    assert {row.pod: row.gang for row in report.pods} == {
        "ml/band-0": "ml/band",
        "ml/band-1": "ml/band",
        "ml/old": "",
    }


async def test_gangs_that_land_are_not_explained(made: MadeCluster) -> None:
    made.nodes("n3")
    made.gpus("n3", device("gpu-0"))
    report = await added(made, gang("band", request("gpu", "gpu")))
    assert {row.after.kind for row in report.pods} == {OutcomeKind.LANDS}
    assert report.gangs == ()
    assert {row.gang for row in report.pods} == {"ml/band"}


async def test_fill_counts_the_same_copies_though_a_gang_was_explained(made: MadeCluster) -> None:
    cluster = after(made, gang("band", request("gpu", "gpu")))
    report = await what_if(cluster, subject=(NAMESPACE, "band-0"))
    assert [waiting.gang.placed for waiting in report.gangs] == [1]
    assert report.fill is not None
    assert (report.fill.copies, report.fill.nodes[0].node) == (1, "n2")

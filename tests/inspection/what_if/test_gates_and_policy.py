"""What would happen with other feature gates of the API server, or with another policy."""

import pytest
from dra_extender.allocator.overlay.policy import PolicyOverlay
from dra_extender.config.policy_file import parse_policy
from dra_extender.inspection.what_if.changes import Changes, NewPolicy
from dra_extender.inspection.what_if.report import OutcomeKind, WhatIfReport
from dra_extender.inspection.what_if.what_if import what_if
from dra_extender.model.fields import Gate

from tests.controlplane.objects import DRIVER, consumption, counter_set, device, device_class, request
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster

APART = parse_policy(b"rules: [{name: apart, driver: gpu.example.com, compatibleOnlyWith: 'false'}]", "apart")


@pytest.fixture
def made() -> MadeCluster:
    """One GPU that is divided once by MIG and once by vGPU, which do not go together; a pod has the MIG device."""
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    parts = [device(name, consumes=[consumption("gpu-0", groups=[name], sm="10")]) for name in ("mig", "vgpu")]
    made.partitions("n1", [counter_set("gpu-0", sm="100")], parts)
    made.running("old", "n1", "mig", request("r", "gpu"))
    made.pod("train", request("r", "gpu"))
    return made


def outcome(report: WhatIfReport) -> OutcomeKind:
    return next(row.after.kind for row in report.pods if row.pod == f"{NAMESPACE}/train")


async def test_fields_of_a_gate_that_is_off_do_not_count(made: MadeCluster) -> None:
    assert outcome(await what_if(made.cluster())) is OutcomeKind.WAITS
    off = Changes(gates=[(Gate.COMPATIBILITY_GROUPS, False)])
    report = await what_if(made.cluster(), off)
    assert outcome(report) is OutcomeKind.LANDS
    assert report.changes == ("gate DRADeviceCompatibilityGroups off",)
    on = Changes(gates=[(Gate.COMPATIBILITY_GROUPS, True)])
    assert outcome(await what_if(made.cluster(), on)) is OutcomeKind.WAITS


async def test_new_policy_comes_into_force_in_the_place_of_the_former(made: MadeCluster) -> None:
    made.objects["resourceslices"].clear()
    made.partitions(
        "n1",
        [counter_set("gpu-0", sm="100")],
        [device(name, consumes=[consumption("gpu-0", sm="10")]) for name in ("mig", "vgpu")],
    )
    assert outcome(await what_if(made.cluster())) is OutcomeKind.LANDS
    report = await what_if(made.cluster(), Changes(policy=NewPolicy("apart.yaml", APART)))
    assert outcome(report) is OutcomeKind.WAITS
    assert report.changes == ("policy apart.yaml in force",)
    assert next(row.before.kind for row in report.pods) is OutcomeKind.LANDS
    assert outcome(await what_if(made.cluster(), policy=APART)) is OutcomeKind.WAITS


async def test_progress_is_told(made: MadeCluster) -> None:
    told: list[tuple[int, int]] = []
    await what_if(made.cluster(), progress=lambda done, whole: told.append((done, whole)))
    assert told == [(1, 1)]


async def test_policy_prefers_devices_of_a_class_that_agree() -> None:
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    made.gpus("n1", *(device(f"gpu-{index}", attributes={"root": root}) for index, root in enumerate("xyx")))
    made.pod("train", request("gpu", "gpu", count=2))
    root = (f"{DRIVER}/root",)
    for preferences, expected in (((("gpu", root),), ["gpu-0", "gpu-2"]), ((("other", root),), ["gpu-0", "gpu-1"])):
        (row,) = (await what_if(made.cluster(), policy=PolicyOverlay((), preferences))).pods
        assert [name.rpartition("/")[2] for name in row.after.devices] == expected


def test_policy_in_force_decides_about_demands_that_were_prepared_before() -> None:
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    made.gpus("n1", *(device(f"gpu-{index}", attributes={"root": root}) for index, root in enumerate("xyx")))
    made.pod("train", request("gpu", "gpu", count=2))
    view = made.view()
    pod = view.pod(NAMESPACE, "train")
    assert pod is not None

    def chosen() -> list[str]:
        fit = view.evaluate(pod, ["n1"]).fits["n1"]
        assert fit is not None
        assert fit.placement is not None
        return [result.device for result in fit.placement.claims[0].allocation.devices.results]

    assert chosen() == ["gpu-0", "gpu-1"]
    view.use_policy(PolicyOverlay((), (("gpu", (f"{DRIVER}/root",)),)))
    assert chosen() == ["gpu-0", "gpu-2"]
    view.use_policy(PolicyOverlay(()))
    assert chosen() == ["gpu-0", "gpu-1"]

"""What an audit does between two pauses, and what it says, does not grow with what one pool or one device has."""

from typing import Any

from dra_extender.inspection.audit.cluster_audit import AuditedCluster, audit_steps
from dra_extender.inspection.audit.findings import Check

from tests.controlplane.objects import consumption, counter_set, device, request, resource_slice
from tests.support.inspection.made_cluster import NOW, MadeCluster

MANY = 300
DRIVER = "fabric.example.com"


def rack(*devices: str, **fields: Any) -> MadeCluster:
    made = MadeCluster()
    made.nodes("n1")
    made.add(
        resource_slice(
            "rack",
            driver=DRIVER,
            pool="rack",
            slice_count=1,
            allNodes=True,
            devices=[device(each, **fields) for each in devices],
        )
    )
    return made


def holding(made: MadeCluster, name: str, found: str, **fields: Any) -> None:
    """A running pod with this device of the rack."""
    made.running(name, "n1", found, request("r", "r"), driver=DRIVER)
    claim = made.objects["resourceclaims"][-1]
    claim["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    claim["status"]["allocation"]["devices"]["results"][0].update(pool="rack", **fields)


def steps(made: MadeCluster) -> int:
    return sum(each is None for each in audit_steps(AuditedCluster(made.view().ledger, lambda: NOW, 600)))


def test_it_may_pause_after_each_device_of_one_pool() -> None:
    names = [f"d{index}" for index in range(MANY)]
    made = rack(*names)
    empty = steps(made)
    for name in names:
        holding(made, f"p-{name}", name)
    assert steps(made) - empty >= 4 * MANY


def test_it_may_pause_after_each_pair_of_neighbours() -> None:
    names = [f"d{index}" for index in range(20)]
    made = rack(*names, compatibleOnlyWith={"expression": "true"})
    for name in names:
        holding(made, f"p-{name}", name)
    assert steps(made) >= 20 * 20


def test_claims_of_one_device_are_named_up_to_a_limit() -> None:
    made = rack("d")
    for index in range(100):
        holding(made, f"p{index:03}", "d")
    found = [each for each in audit_steps(AuditedCluster(made.view().ledger, lambda: NOW, 600)) if each is not None]
    assert [(each.check, each.about) for each in found] == [(Check.DOUBLE_ALLOCATION, f"device {DRIVER}/rack/d")]
    assert found[0].detail.startswith("device in two claims: ml/claim-p000, ml/claim-p001, ")
    assert found[0].detail.endswith("ml/claim-p007 and 92 more")


def test_detail_of_a_finding_is_cut() -> None:
    made = MadeCluster()
    made.nodes("n1")
    names = [f"partition-with-a-long-name-{index:04}" for index in range(MANY)]
    drawn = [consumption("card", groups=["a" if index % 2 else "b"], sm="0") for index in range(MANY)]
    made.partitions(
        "n1",
        [counter_set("card", sm="1")],
        [device(name, consumes=[each]) for name, each in zip(names, drawn, strict=True)],
    )
    for name in names:
        made.running(f"p-{name}", "n1", name, request("r", "r"))
        made.objects["resourceclaims"][-1]["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    (found,) = (each for each in audit_steps(AuditedCluster(made.view().ledger, lambda: NOW, 600)) if each is not None)
    assert found.check is Check.GROUPS
    assert len(found.detail) == 1000

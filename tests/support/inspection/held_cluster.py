"""A cluster of one GPU that a running extender holds for one of two pods."""

from dra_extender.inspection.objects import ClusterObjects
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.metadata import Moment
from dra_extender.scheduling.hold_report import FORMAT, HeldClaim, HeldNode, HoldReport

from tests.controlplane.objects import DRIVER, device, device_class, request
from tests.support.inspection.made_cluster import NAMESPACE, NOW, MadeCluster

HOLD_SECONDS = 25


def one_gpu() -> MadeCluster:
    """One GPU, and the pods `first` and `second` that ask for it."""
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    made.gpus("n1", device("gpu-0"))
    for name in ("first", "second"):
        made.pod(name, request("gpu", "gpu"))
    return made


def held_for(cluster: MadeCluster, pod: str, **fields: object) -> HoldReport:
    """The GPU is held for this pod, for its claim or, without one, for that of its extended resources, which is not made yet."""
    pod_uid = next(each["metadata"]["uid"] for each in cluster.objects["pods"] if each["metadata"]["name"] == pod)
    uids = {each["metadata"]["name"]: each["metadata"]["uid"] for each in cluster.objects["resourceclaims"]}
    claim = f"claim-{pod}" if f"claim-{pod}" in uids else ""
    held = HeldClaim(
        claim_uid=uids.get(claim, f"{pod_uid}/extended-resources"),
        claim=claim,
        namespace=NAMESPACE,
        pods=((f"{NAMESPACE}/{pod}", pod_uid),),
        until=Moment(NOW + HOLD_SECONDS),
        nominated=False,
        nodes=(HeldNode(node="n1", devices=(DeviceHolding(driver=DRIVER, pool="n1", device="gpu-0"),)),),
    )
    return HoldReport(format=FORMAT, taken_at=NOW, holds=(held,), **fields)  # type: ignore[arg-type]  # plans, left_out


def with_holds(cluster: MadeCluster, report: HoldReport | None) -> ClusterObjects:
    """The objects of the cluster with what its extender holds."""
    found = cluster.cluster()
    return ClusterObjects(found.origin, found.by_kind, holds=report)

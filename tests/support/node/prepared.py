"""The audit of kubelets: a device is prepared for the pods of its claim and for no other."""

from collections.abc import Iterator, Mapping, Sequence

from tests.controlplane.objects import Object
from tests.controlplane.resources import PODS, RESOURCE_CLAIMS
from tests.support.node.injected import device_of_result, results_of
from tests.support.node.nodes import RealNodes

SECONDS = 60.0
REFUSED = "is prepared for claim"


def wrongly_prepared(
    node: str, driver: str, prepared: Mapping[str, frozenset[str]], claims: Sequence[Object], pods: Sequence[Object]
) -> Iterator[str]:
    """A sentence for each device that a node has prepared for a claim which is not allocated it, or for no pod of the node.

    `prepared`: UIDs of claims with their devices as POOL/DEVICE.
    """
    by_uid = {claim["metadata"]["uid"]: claim for claim in claims}
    here = {pod["metadata"]["uid"] for pod in pods if pod["spec"].get("nodeName") == node}
    groups = {
        (pod["metadata"]["namespace"], pod["spec"].get("schedulingGroup", {}).get("podGroupName"))
        for pod in pods
        if pod["metadata"]["uid"] in here
    }
    for uid, devices in prepared.items():
        claim = by_uid.get(uid)
        if claim is None:
            yield f"{node} has prepared {sorted(devices)} for claim {uid}, which does not exist."
            continue
        name = f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
        allocated = {device_of_result(result) for _, result in results_of(claim, driver)}
        if not devices <= allocated:
            yield f"{node} has prepared {sorted(devices)} for claim {name}, which is allocated {sorted(allocated)}."
        consumers = claim.get("status", {}).get("reservedFor", ())
        if not any(
            each["uid"] in here or (claim["metadata"]["namespace"], each["name"]) in groups for each in consumers
        ):
            yield f"{node} has prepared {sorted(devices)} for claim {name}, which no pod of the node has reserved."


async def find_wrongly_prepared(nodes: RealNodes) -> list[str]:
    """What is wrong on all nodes now; what changes while it is looked at may be found too."""
    found: list[str] = []
    for node in nodes:
        prepared = node.prepared()
        claims, pods = await nodes.api.list(RESOURCE_CLAIMS), await nodes.api.list(PODS)
        found += wrongly_prepared(node.name, node.options.driver, prepared, claims, pods)
    return found


async def expect_prepared(nodes: RealNodes) -> None:
    """Every device that a kubelet has prepared is prepared rightly, when kubelets have done their part."""
    last: list[str] = []

    async def right() -> bool:
        nonlocal last
        last = await find_wrongly_prepared(nodes)
        return not last

    try:
        await nodes.api.wait_for(right, SECONDS, "kubelets have prepared what is allocated, and nothing else")
    except TimeoutError as late:
        raise AssertionError("\n".join(last)) from late


async def expect_nothing_prepared(nodes: RealNodes) -> None:
    """No CDI file is left on any node, of any driver."""

    async def nothing() -> bool:
        return not any(node.cdi() for node in nodes)

    await nodes.api.wait_for(nothing, SECONDS, "no CDI file is left on any node")


def refused(nodes: RealNodes) -> list[str]:
    """What drivers have logged of devices that they were to prepare while another claim had them for itself alone."""
    logs = [node.log("driver").read_text().splitlines() for node in nodes]
    return [line for lines in logs for line in lines if REFUSED in line]

"""Every device of one node, and why each request of one pod can or cannot have it."""

from collections.abc import Iterator, Sequence
from typing import Final

from dra_extender.allocator.demand.demand import Demand, SearchableRequest
from dra_extender.allocator.explain.device_diagnosis import DeviceDiagnosis
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.devices import known_node
from dra_extender.inspection.objects import DEVICES, Origin, require
from dra_extender.inspection.why.advice import pool_gaps
from dra_extender.inspection.why.nearest import NearestDevices, requested_options
from dra_extender.inspection.why.report import NearestDevice, PoolGap
from dra_extender.inspection.why.why import known_pod
from dra_extender.model.api_json import Value
from dra_extender.model.node import Node
from dra_extender.scheduling.claims.extended_need import subject_of

NODE_FORMAT: Final = "dra-extender.io/why-node/v1"
MOST_DEVICES: Final = 2_000
"""Devices of a node that are listed for one request."""


class DeviceVerdictReport(Value, frozen=True):
    """A device and why a request cannot have it by itself; without code it can.  `text` is the message of the code."""

    device: NearestDevice
    code: str = ""
    text: str = ""


class RequestReport(Value, frozen=True):
    """Every device of the node for one request of one claim; `wanted` e.g. `1 x gpu.example.com`, `free` that many it can have.

    `subject`: as in Branch.
    """

    claim: str
    request: str
    wanted: str
    free: int
    devices: tuple[DeviceVerdictReport, ...]
    subject: str = ""


class NodeDevicesReport(Value, frozen=True):
    """What one pod could have on one node.

    `fits`: its devices, all at once.  `text` is the reason if it does not.  `beside` are the reasons beside devices, as far as
    `why` judges them.  `pools` are incomplete pools of the node, which offer nothing.
    """

    format: str
    pod: str
    node: str
    fits: bool
    origin: Origin
    text: str = ""
    beside: tuple[str, ...] = ()
    pools: tuple[PoolGap, ...] = ()
    requests: tuple[RequestReport, ...] = ()
    notes: tuple[str, ...] = ()


def why_on_node(view: ClusterView, namespace: str, name: str, node_name: str) -> NodeDevicesReport:
    """Judge every device of the node for each request of the pod's claims that are not allocated; the pod counts by itself.

    Raises:
        UnknownObjectError: there is no such pod.
        UnknownObjectError: there is no such node.
        UnreadKindsError: objects that the answer depends on could not be read.
    """
    require(view.origin, DEVICES)
    pod = known_pod(view, namespace, name)
    node = known_node(view, node_name)
    result = view.extender.evaluate_without_gang(pod, (node_name,))
    view.hold_again()
    reason = result.reasons.get(result.texts.get(node_name, ""))
    pools = view.extender.allocator.pools_of(node)
    notes = [*map(str, view.unreadable)]
    diagnosed = [] if result.demand is None else list(_diagnosed(view, result.demand, node))
    if any(len(diagnoses) > MOST_DEVICES for *_, diagnoses in diagnosed):
        notes.append(f"the first {MOST_DEVICES} devices are listed")
    fit, nearest = view.pod_fit(pod), NearestDevices(view)
    return NodeDevicesReport(
        format=NODE_FORMAT,
        pod=pod.key,
        node=node_name,
        fits=node_name in result.fits,
        origin=view.origin,
        text="" if reason is None else reason[1].text,
        beside=() if fit is None else tuple(refusal.description for refusal in fit.refusals(node_name)),
        pools=() if pools is None else pool_gaps(pools.unusable),
        requests=tuple(
            RequestReport(
                claim=claim,
                request=option.name,
                wanted=option.text,
                free=sum(diagnosis.code is None for diagnosis in diagnoses),
                devices=tuple(
                    DeviceVerdictReport(
                        device=nearest.described(node, diagnosis),
                        code="" if diagnosis.code is None else diagnosis.code.name,
                        text="" if diagnosis.code is None else diagnosis.code.value,
                    )
                    for diagnosis in diagnoses[:MOST_DEVICES]
                ),
                subject=subject_of(pod, claim, option.name),
            )
            for claim, option, diagnoses in diagnosed
        ),
        notes=tuple(notes),
    )


def _diagnosed(
    view: ClusterView, demand: Demand, node: Node
) -> Iterator[tuple[str, SearchableRequest, Sequence[DeviceDiagnosis]]]:
    """Yield every request with its claim and every device of the node."""
    for claim, option in requested_options(demand):
        diagnoses = view.extender.allocator.diagnose_devices(demand, node, (claim, option.name), view.budget())
        yield claim, option, list(diagnoses)

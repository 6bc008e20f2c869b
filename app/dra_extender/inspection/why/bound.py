"""A bound pod: its devices, why its kubelet would not start it, and why it is on its node; and what evicts a pod that fits."""

from collections import Counter
from collections.abc import Iterable, Iterator

from dra_extender.allocator.demand.alignment import meets
from dra_extender.allocator.demand.constraints import value_set
from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.explain.device_messages import taint_text
from dra_extender.inspection.audit.claims import UsedClaim, admission_failures, used_claims
from dra_extender.inspection.audit.cluster_audit import evicting_taints
from dra_extender.inspection.audit.published import PublishedDevices
from dra_extender.inspection.cluster_view import ClusterView, ObjectChange
from dra_extender.inspection.objects import DEVICES, unread
from dra_extender.inspection.why.report import DeviceCondition, NodeScore, PodDevice, PreferredAttribute
from dra_extender.ledger.pod_groups import GroupEntryPolicy
from dra_extender.model.allocation import DeviceResult
from dra_extender.model.allocation_snapshot import allocated_at, results_of
from dra_extender.model.api_json import decode_shallow
from dra_extender.model.device import DeviceId, DeviceTaint, device_id_of
from dra_extender.model.fields import Gate
from dra_extender.model.metadata import moment, seconds_of
from dra_extender.model.pod import Pod
from dra_extender.model.resource_claim import ClaimHead
from dra_extender.scheduling.claims.extended_need import EXTENDED_LABEL, subject_of
from dra_extender.scheduling.evaluation.filter_result import FilterResult
from dra_extender.scheduling.evaluation.scoring import preferred_values, ratings
from dra_extender.simulator.apiserver.objects import StoredKind


def node_scores(view: ClusterView, pod: Pod) -> tuple[NodeScore, ...]:
    """Return the scores of the pod's node and of the best other one, as if the pod had neither node nor devices.

    Claims that other pods share stay as they are.  Nothing is returned for members of a PodGroup, for extended resources, without
    claims of the pod's own, and where the pod would not get devices of its node again.
    """
    records = (claim.record for claim in view.claims_of(pod))
    own = [record for record in records if record.raw and len(record.claim.status.reserved_for) == 1]
    if not own or pod.extended_claim or pod.pod_group is not None or unread(view.origin, DEVICES):
        return ()
    before = [decode_shallow("ResourceClaim", record.raw) for record in own]
    fit = view.pod_fit(pod, (pod.key,))
    nodes = [name for name in view.ledger.nodes if name == pod.node_name or fit is None or not fit.refusals(name)]
    view.extender.learn_expected()
    with view.changed([ObjectChange(StoredKind.CLAIM, claim, {**claim, "status": {}}) for claim in before]):
        terms = view.evaluate(pod, nodes).score_terms
    rated = ratings(terms, view.options)
    if pod.node_name not in rated:
        return ()
    other_nodes = sorted(rated.keys() - {pod.node_name}, key=lambda name: (-rated[name], name))
    return tuple(
        NodeScore(
            node=name,
            score=round(rated[name]),
            alternatives=terms[name].alternatives,
            waits=bool(terms[name].waits),
            counter_sets=terms[name].counter_sets,
            joined=terms[name].joined,
            loss=terms[name].loss,
            preferences=terms[name].preferences,
            aligned=terms[name].aligned,
        )
        for name in (pod.node_name, *other_nodes[:1])
    )


def preferred_attributes(view: ClusterView, pod: Pod) -> Iterator[PreferredAttribute]:
    """Yield the attributes in which the devices of a bound pod should agree, claim by claim."""
    found_claims = view.claims_of(pod)
    if not found_claims or unread(view.origin, DEVICES):
        return
    demand = view.extender.allocator.demand(found_claims, view.budget())
    for claim_demand, claim in zip(demand.claims, found_claims, strict=True) if isinstance(demand, Demand) else ():
        if claim_demand.preferences:
            results = results_of(claim.record.claim)
            for preference, attributes in preferred_values(claim_demand, results, view.ledger.slices):
                values = Counter(
                    ", ".join(sorted(str(value) for _, value in value_set(attribute))) if attribute else ""
                    for attribute in attributes
                )
                yield PreferredAttribute(
                    claim=claim.label,
                    attribute=preference.attribute,
                    agree=meets(preference, attributes),
                    values=tuple(sorted(values.items())),
                )


def allocated_devices(view: ClusterView, pod: Pod) -> Iterator[PodDevice]:
    """Yield the devices of the claims that the pod uses, with what their drivers report."""
    for used in used_claims(pod):
        claim = view.claim(pod.namespace, used.name) if isinstance(used, UsedClaim) else None
        if claim is None:
            continue
        for result in results_of(claim):
            extended = subject_of(pod, EXTENDED_LABEL, result.request)
            yield PodDevice(
                subject=extended if claim.metadata.name == pod.extended_claim else used.subject,
                claim="/".join(claim.metadata.key),
                request=result.request,
                device="/".join(result.device_id),
                since=moment(seconds_of(allocated_at(claim))),
                conditions=tuple(_conditions(claim, result)),
            )


def kubelet_refusals(view: ClusterView, pod: Pod) -> tuple[str, ...]:
    """Return why the kubelet would not start the bound pod, as far as the objects tell."""
    if unread(view.origin, {"resourceclaims"}, pod.namespace):
        return ()
    node = view.ledger.nodes.get(pod.node_name)
    failures = admission_failures(pod, lambda key: view.claim(*key), GroupEntryPolicy.AUTO, node)
    return tuple(f"{failure.subject}: {failure.why}" for failure in failures)


def lacks_allocation(view: ClusterView, pod: Pod) -> bool:
    """Return whether a claim of a bound pod is there and not allocated: no scheduler does that for a pod that has a node."""
    return any(claim.record.claim.status.allocation is None for claim in view.claims_of(pod))


def lost_ground(view: ClusterView, pod: Pod) -> Iterator[str]:
    """Yield that the node of a bound pod does not exist, that its devices are not published, or that it is evicted."""
    if unread(view.origin, DEVICES):
        return
    if pod.node_name not in view.ledger.nodes:
        yield f"node {pod.node_name} does not exist"
    devices = PublishedDevices(view.ledger)
    for allocated in allocated_devices(view, pod):
        absence = devices.absence(device_id_of(allocated.device))
        if absence:
            yield f"{allocated.subject}: device {allocated.device}: {absence}"
    if view.origin.may_be_on(Gate.DEVICE_TAINTS):
        taints = evicting_taints(pod, view.ledger, devices)
        yield from (f"kube-controller-manager evicts it: {taint}" for taint in taints)


def later_evictions(view: ClusterView, result: FilterResult, nodes: Iterable[str]) -> Iterator[str]:
    """Yield that the pod is evicted from these nodes, because it tolerates a taint of its device there for some time only."""
    devices = PublishedDevices(view.ledger)
    for node in nodes if view.origin.may_be_on(Gate.DEVICE_TAINTS) else ():
        fit = result.fits.get(node)
        placement = None if fit is None else fit.placement
        for claim in () if placement is None else placement.claims:
            for device in claim.allocation.devices.results:
                for taint, seconds in devices.briefly_tolerated(device, node):
                    yield eviction_text(
                        f"kube-controller-manager evicts it from {node}", device.device_id, taint, seconds
                    )


def eviction_text(sentence: str, device_id: DeviceId, taint: DeviceTaint, seconds: int) -> str:
    """Return a sentence about an eviction, with when it is and for which taint of the device."""
    when = f"{seconds} s after the taint was added" if seconds else "at once"
    return f"{sentence} {when} (tolerationSeconds): device {'/'.join(device_id)} has taint {taint_text(taint)}"


def _conditions(claim: ClaimHead, result: DeviceResult) -> Iterator[DeviceCondition]:
    share = (*result.device_id, result.share_id)
    for status in claim.status.devices:
        if (status.driver, status.pool, status.device, status.share_id) == share:
            for condition in status.conditions or ():
                yield DeviceCondition(
                    type=condition.type, status=condition.status, reason=condition.reason, message=condition.message
                )

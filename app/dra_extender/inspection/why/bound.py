"""Where the devices of a bound pod come from, and why its kubelet would not start the pod."""

from collections.abc import Iterator
from typing import Final

from dra_extender.inspection.audit.claims import UsedClaim, refused, uses
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.objects import unread
from dra_extender.inspection.why.report import DeviceCondition, PodDevice
from dra_extender.ledger.pod_groups import GroupReservation
from dra_extender.model.allocation import DeviceResult
from dra_extender.model.metadata import seconds_of
from dra_extender.model.pod import Pod
from dra_extender.model.resource_claim import ClaimHead
from dra_extender.model.snapshot import allocated_at, results_of
from dra_extender.scheduling.extended_resources.need import EXTENDED_LABEL, subject_of

_CLAIMS: Final = frozenset({"resourceclaims"})


def allocated_devices(view: ClusterView, pod: Pod) -> Iterator[PodDevice]:
    """Yield the devices of the claims that the pod uses, with what their drivers report."""
    for used in uses(pod):
        claim = _claim(view, (pod.namespace, used.name)) if isinstance(used, UsedClaim) else None
        if claim is None:
            continue
        for result in results_of(claim):
            extended = subject_of(pod, EXTENDED_LABEL, result.request)
            yield PodDevice(
                subject=extended if claim.metadata.name == pod.extended_claim else used.subject,
                claim="/".join(claim.metadata.key),
                request=result.request,
                device="/".join(result.device_id),
                since=seconds_of(allocated_at(claim)),
                conditions=tuple(_conditions(claim, result)),
            )


def kubelet_refusals(view: ClusterView, pod: Pod) -> tuple[str, ...]:
    """Return why the kubelet would not start the bound pod, as far as the objects tell."""
    if unread(view.origin, _CLAIMS, pod.namespace):
        return ()
    node = view.ledger.nodes.get(pod.node_name)
    found = refused(pod, lambda key: _claim(view, key), GroupReservation.AUTO, node)
    return tuple(f"{each.subject}: {each.why}" for each in found)


def _claim(view: ClusterView, key: tuple[str, str]) -> ClaimHead | None:
    record = view.ledger.claims.by_key(*key)
    return None if record is None else record.claim


def _conditions(claim: ClaimHead, result: DeviceResult) -> Iterator[DeviceCondition]:
    wanted = (*result.device_id, result.share_id)
    for status in claim.status.devices:
        if (status.driver, status.pool, status.device, status.share_id) == wanted:
            for each in status.conditions or ():
                yield DeviceCondition(type=each.type, status=each.status, reason=each.reason, message=each.message)

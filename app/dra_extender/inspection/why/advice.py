"""Advice against one reason where nothing can be tried: a sentence for each code, by what exists."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from dra_extender.allocator.explain.device_messages import taint_text
from dra_extender.allocator.explain.selector_reasons import UnmetSelectors
from dra_extender.allocator.pools.pools import Pool
from dra_extender.allocator.rules.eligibility import untolerated_taints
from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.near_names import instead, meant_name
from dra_extender.inspection.objects import unread
from dra_extender.inspection.why.changes import ProposedStep, advised
from dra_extender.inspection.why.nearest import NearestDevices
from dra_extender.inspection.why.report import PoolGap, ReportedReason
from dra_extender.inspection.why.reported import creation_events
from dra_extender.inspection.why.request_edits import ReasonFacts, RequestEdits, created_again_text
from dra_extender.model.pod import Pod
from dra_extender.scheduling.claims.extended_need import EXTENDED_LABEL
from dra_extender.simulator.apiserver.objects import StoredKind

_QUOTA: Final = re.compile(r"exceeded quota: ([a-z0-9.-]+)")
_ADMIN_LABEL: Final = re.compile(r"resource\.[a-z0-9.]+/admin-access")
_LOOK: Final = "wait until the extender tries again; check why the driver did not make the devices ready"
_AS_REPORTED: Final[Mapping[Code, str]] = MappingProxyType(
    {Code.DEVICES_IN_BACKOFF: _LOOK, Code.NODE_IN_BACKOFF: _LOOK}
)
CORRECT_SELECTOR: Final = "correct the selector"
_SENTENCES: Final[Mapping[Code, str]] = MappingProxyType(
    {
        Code.CLAIM_FOREIGN: "create the pod again: the claim that its status names belongs to another object",
        Code.CLAIM_FULLY_RESERVED: "end a pod that uses the claim",
        Code.SELECTOR_INVALID: CORRECT_SELECTOR,
        Code.SELECTOR_FAILED: CORRECT_SELECTOR,
        Code.AMOUNT_INVALID: "correct the amount of capacity",
        Code.CLAIM_UNREADABLE: "correct the claim",
    }
)
"""What helps whatever the objects are."""


def advice(view: ClusterView, pod: Pod, rejection: Rejection, pool: PoolGap | None = None) -> str:
    """Return what helps against a reason, without a trial; empty where nothing can be said."""
    match rejection.code:
        case Code.CLAIM_MISSING if rejection.detail.startswith(f"{pod.namespace}/"):
            if _template_of(pod, rejection.claim):
                return _advice_without_claim(view, pod, rejection.claim)
            claim = f"ResourceClaim {rejection.detail}"
            if _is_missing(view, StoredKind.CLAIM):
                return f"look whether {claim} exists"
            return _created_or_named(view, StoredKind.CLAIM, pod.namespace, rejection.detail.partition("/")[2])
        case Code.CLASS_MISSING:
            missing = rejection.detail.rpartition(" ")[2]
            return "" if meant_name(missing, view.ledger.classes) else f"create DeviceClass {missing}"
        case Code.CLAIM_DELETING:
            return created_again_text(pod, rejection.claim)
        case Code.CLAIM_NOT_CREATED:
            return _advice_without_claim(view, pod, rejection.claim)
        case Code.POD_GROUP_MISSING:
            return _created_or_named(view, StoredKind.POD_GROUP, pod.namespace, pod.pod_group or "")
        case Code.POOL_INCOMPLETE if pool is not None:
            return incomplete_pool_advice(pool)
        case Code.POOL_INVALID if rejection.detail.startswith("pool "):
            return f"check driver {rejection.detail.removeprefix('pool ').partition('/')[0]}"
    return _SENTENCES.get(rejection.code, "")


def device_advice(view: ClusterView, facts: ReasonFacts, edits: RequestEdits, nearest: NearestDevices) -> str:
    """Return what helps against a reason that is about devices, without a trial; empty where nothing can be said.

    What a class means is the administrator's to say.
    """
    option, code = facts.option, facts.rejection.code
    if option is None or code not in (Code.NO_MATCH, Code.NO_DEVICES, Code.TAINTED):
        return ""
    name = option.device_class.name
    if code is Code.TAINTED:
        near = facts.reason.nearest if facts.rejection.claim == EXTENDED_LABEL else None
        device = None if near is None else nearest.published_nearest(near)
        if device is None:
            return ""
        taints = ", ".join(map(taint_text, untolerated_taints(device.taints, option.tolerations)))
        claim = f"DeviceClass {name} with a ResourceClaim that tolerates {taints}"
        return f"ask for {claim}: an extended resource tolerates no taint"
    meant = edits.meant_devices(option) if code is Code.NO_MATCH else None
    if meant is not None and meant.first and not meant.classes:
        excluding = f"which the request's selectors mean: DeviceClass {name} excludes it"
        return f"create a DeviceClass with {meant.first}, {excluding}"
    driver = UnmetSelectors(option.selectors, view.budget()).driver
    published = {part.driver for part in view.ledger.slices.by_name.values()}
    if driver is not None and driver not in published and not unread(view.origin, {StoredKind.SLICE}):
        return f"check driver {driver}, which publishes no devices"
    names = edits.unpublished_of_class(facts) if code is Code.NO_MATCH else ""
    return f"correct DeviceClass {name}: no device has {names}" if names else ""


def incomplete_pool_advice(pool: PoolGap) -> str:
    if pool.slices > pool.expected:
        return f"wait; check driver {pool.driver}, which has published more slices than it declares"
    return f"wait; check driver {pool.driver}, which publishes the other slices"


def pool_gaps(pools: Sequence[Pool]) -> tuple[PoolGap, ...]:
    return tuple(
        PoolGap(
            driver=pool.pool_id[0],
            pool=pool.pool_id[1],
            generation=pool.generation,
            slices=pool.found,
            expected=pool.expected,
        )
        for pool in pools
        if pool.problem is Code.POOL_INCOMPLETE
    )


def _created_or_named(view: ClusterView, kind: StoredKind, namespace: str, missing: str) -> str:
    """Advise to name the object that was meant, or else to create the one that is named."""
    near = meant_name(missing, view.names(kind, namespace))
    named = "" if near is None else f"name {kind.singular} {instead(near, missing)}, or "
    return f"{named}create {kind.singular} {namespace}/{missing}"


def _template_of(pod: Pod, name: str) -> str | None:
    """Return the template from which a claim of the pod is made; None if it is made from none."""
    entry = next((claim for claim in pod.claims if claim.name == name), None)
    return None if entry is None else entry.resource_claim_template_name


def _advice_without_claim(view: ClusterView, pod: Pod, name: str) -> str:
    """Return what helps where no claim is created for an entry of the pod; empty where the message of an Event has to suffice."""
    template = _template_of(pod, name)
    named = f"ResourceClaimTemplate {pod.namespace}/{template}"
    if template and _is_missing(view, StoredKind.TEMPLATE):
        return f"look whether {named} exists"
    if template and view.stored(StoredKind.TEMPLATE, template, pod.namespace) is None:
        return _created_or_named(view, StoredKind.TEMPLATE, pod.namespace, template)
    events = creation_events(view, pod)
    if not events:
        unread = view.unread_events(pod.namespace)
        if unread:
            return f"look at the Events of the pod, which were not read: {unread}"
        return (
            "wait; no Event says why the claim is not created, so it is not known whether kube-controller-manager runs"
        )
    message = events[0].message
    quota, label = _QUOTA.search(message), _ADMIN_LABEL.search(message)
    if quota is not None:
        return f"end what uses ResourceQuota {pod.namespace}/{quota[1]}, or raise it"
    if label is not None:
        return f"set the label {label[0]}=true on namespace {pod.namespace}"
    return f"correct {named}" if template and " is invalid: " in message else ""


def _is_missing(view: ClusterView, kind: StoredKind) -> bool:
    return any(missing.kind == kind for missing in view.origin.missing)


def reported_advice(reported: Sequence[ReportedReason]) -> tuple[ProposedStep, ...]:
    """Return what helps against reasons that only the running extender knows, as kube-scheduler reports them."""
    texts = (text for code, text in _AS_REPORTED.items() if any(code.value in reason.text for reason in reported))
    return tuple(map(advised, dict.fromkeys(texts)))

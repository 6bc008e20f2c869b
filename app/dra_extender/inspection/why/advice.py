"""What helps where no change of the pod does: an object that is missing, waiting, a look at a driver.  None of it can be tried."""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from dra_extender.allocator.state.rejection import Code, Rejection
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.why.report import NextStep, NodeReason, ReportedReason
from dra_extender.inspection.why.reported_events import creation_events
from dra_extender.model.pod import Pod

_QUOTA: Final = re.compile(r"exceeded quota: ([a-z0-9.-]+)")
_ADMIN_LABEL: Final = re.compile(r"resource\.[a-z0-9.]+/admin-access")
_CLAIMS: Final = "resourceclaims"
_TEMPLATES: Final = "resourceclaimtemplates"
_LOOK: Final = "wait until the extender tries again; check why the driver did not make the devices ready"
_AS_REPORTED: Final[Mapping[Code, str]] = MappingProxyType({Code.COOLING_DOWN: _LOOK, Code.NODE_BACKED_OFF: _LOOK})


def advice(view: ClusterView, pod: Pod, rejection: Rejection, reason: NodeReason) -> NextStep | None:
    """What helps against this reason; None where nothing can be said."""
    advise = _BY_CODE.get(rejection.code)
    text = "" if advise is None else advise(view, pod, rejection, reason)
    return NextStep(text=text) if text else None


def _claim_missing(view: ClusterView, pod: Pod, rejection: Rejection, _: NodeReason) -> str:
    own = rejection.detail.startswith(f"{pod.namespace}/")
    unread = any(each.kind == _CLAIMS for each in view.origin.missing)
    verb = "look whether" if unread else "create"
    return f"{verb} ResourceClaim {rejection.detail}{' exists' if unread else ''}" if own else ""


def _not_created(view: ClusterView, pod: Pod, rejection: Rejection, _: NodeReason) -> str:
    entry = next((each for each in pod.claims if each.name == rejection.claim), None)
    template = None if entry is None else entry.resource_claim_template_name
    if template and any(each.kind == _TEMPLATES for each in view.origin.missing):
        return f"look whether ResourceClaimTemplate {pod.namespace}/{template} exists"
    if template and view.stored(_TEMPLATES, template, pod.namespace) is None:
        return f"create ResourceClaimTemplate {pod.namespace}/{template}"
    events = creation_events(view, pod)
    if events:
        return _against(events[0].message, pod, template or "")
    unread = view.unread_events(pod.namespace)
    if unread:
        return f"look at the Events of the pod, which were not read: {unread}"
    return "wait; no Event says why the claim is not created, so it is not known whether kube-controller-manager runs"


def _against(message: str, pod: Pod, template: str) -> str:
    """Return what helps against a failure to create a claim; empty where the message of the Event has to suffice."""
    quota = _QUOTA.search(message)
    if quota is not None:
        return f"end what uses ResourceQuota {pod.namespace}/{quota[1]}, or raise it"
    label = _ADMIN_LABEL.search(message)
    if label is not None:
        return f"set the label {label[0]}=true on namespace {pod.namespace}"
    return (
        f"correct ResourceClaimTemplate {pod.namespace}/{template}" if template and " is invalid: " in message else ""
    )


def _group_missing(_: ClusterView, pod: Pod, __: Rejection, ___: NodeReason) -> str:
    return f"create PodGroup {pod.namespace}/{pod.pod_group}"


def _pool_incomplete(_: ClusterView, __: Pod, ___: Rejection, reason: NodeReason) -> str:
    pool = reason.pool
    return "" if pool is None else f"wait; check driver {pool.driver}, which publishes the other slices"


def _pool_invalid(_: ClusterView, __: Pod, rejection: Rejection, ___: NodeReason) -> str:
    driver = rejection.detail.removeprefix("pool ").partition("/")[0]
    return f"check driver {driver}" if rejection.detail.startswith("pool ") else ""


def reported_advice(reported: Sequence[ReportedReason]) -> tuple[NextStep, ...]:
    """What helps against reasons that the running extender alone knows, as kube-scheduler reports them."""
    texts = (_AS_REPORTED.get(code, "") for code in _AS_REPORTED if any(code.value in each.text for each in reported))
    return tuple(NextStep(text=text) for text in dict.fromkeys(texts))


def _said(text: str) -> Callable[[ClusterView, Pod, Rejection, NodeReason], str]:
    return lambda *_: text


_BY_CODE: Final[Mapping[Code, Callable[[ClusterView, Pod, Rejection, NodeReason], str]]] = MappingProxyType(
    {
        Code.CLAIM_MISSING: _claim_missing,
        Code.CLAIM_NOT_CREATED: _not_created,
        Code.CLAIM_DELETING: _said("create the claim again once it is gone"),
        Code.CLAIM_FOREIGN: _said("create the pod again: the claim that its status names belongs to another object"),
        Code.CLAIM_FULLY_RESERVED: _said("end a pod that uses the claim"),
        Code.POD_GROUP_MISSING: _group_missing,
        Code.SELECTOR_INVALID: _said("correct the selector"),
        Code.SELECTOR_FAILED: _said("correct the selector"),
        Code.POOL_INCOMPLETE: _pool_incomplete,
        Code.POOL_INVALID: _pool_invalid,
    }
)

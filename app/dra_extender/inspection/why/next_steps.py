"""What would help against one reason: changes that are tried before they are named, and advice where nothing can be tried.

A further cause for which nothing can be tried gets a sentence in `advice`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Final

from dra_extender.allocator.explain.device_messages import taint_text
from dra_extender.allocator.explain.selector_reasons import UnmetSelectors
from dra_extender.allocator.rules.eligibility import untolerated_taints
from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.near_names import instead, meant_name
from dra_extender.inspection.objects import unread
from dra_extender.inspection.why.changes import ClaimChanges, ProposedChange, ProposedStep, advised
from dra_extender.inspection.why.ends import HolderEnds
from dra_extender.inspection.why.nearest import NearestDevices
from dra_extender.inspection.why.report import PoolGap, ReportedReason
from dra_extender.inspection.why.reported import creation_events
from dra_extender.inspection.why.request_edits import ReasonFacts, RequestEdits, created_again_text
from dra_extender.inspection.why.trials import Trials
from dra_extender.model.pod import Pod
from dra_extender.scheduling.claims.extended_need import EXTENDED_LABEL
from dra_extender.simulator.apiserver.objects import StoredKind

_MOST_OF_A_WAY: Final = 2
_MOST_TRIED: Final = 6
"""Changes of one way that are tried for a gang."""
_OF_POOLS: Final = frozenset({Code.POOL_INCOMPLETE, Code.POOL_INVALID})
_CORRECTED: Final = frozenset(
    {
        Code.SELECTOR_INVALID,
        Code.SELECTOR_FAILED,
        Code.NO_MATCH,
        Code.NO_DEVICES,
        Code.CLAIM_MISSING,
        Code.CLAIM_NOT_CREATED,
        Code.CLAIM_DELETING,
        Code.CLASS_MISSING,
        Code.CLAIM_FULLY_RESERVED,
        Code.POD_GROUP_MISSING,
    }
)
"""What is wrong by itself, such as a misspelt name; where its correction was tried and helps, nothing more is advised."""


class NextSteps:
    """Looks for changes that help one pod."""

    def __init__(
        self, view: ClusterView, pod: Pod, nearest: NearestDevices, trials: Trials, claims: ClaimChanges
    ) -> None:
        self._view = view
        self._pod = pod
        self._nearest = nearest
        self._budget = view.budget()
        self._claims = claims
        self._edits = RequestEdits(view, pod, claims, nearest)
        self._trials = trials
        self.ends = HolderEnds(view, pod, nearest, trials)

    def steps_against(self, facts: ReasonFacts) -> Iterator[ProposedStep]:
        """Yield, for each way to help, the smallest change after which the pod fits on some of these nodes."""
        near = [facts.reason.nearest.node] if facts.reason.nearest is not None else []
        near += [candidate.node for candidate in facts.candidates]
        near += [facts.reason.count.node] if facts.reason.count is not None else []
        nodes, helped = tuple(dict.fromkeys((*near, *facts.nodes))), False
        for way in self._edits.against(facts):
            changes = list(islice(way, _MOST_TRIED)) if self._trials.of_gang else way
            step = self._trials.first_that_helps(changes, nodes)
            if step is None and self._trials.of_gang:
                step = self._trials.first_that_helps(map(self._claims.of_all_members, changes), nodes)
            if step is not None:
                helped = True
                yield step
        advice = self.advised(facts)
        correction = None if advice or helped else self.correction(facts)
        advice = (
            advice
            or (correction and ProposedStep(correction))
            or self._absent_driver(facts)
            or self._claim_instead(facts)
        )
        end = self.ends.against(facts, nodes)
        helped = helped or (end is not None and facts.rejection.code is Code.CLAIM_FULLY_RESERVED)
        if advice is not None and not (helped and facts.rejection.code in _CORRECTED):
            yield advice
        if end is not None:
            yield end

    def advised(self, facts: ReasonFacts) -> ProposedStep | None:
        """Return what helps against a reason, without a trial; None where nothing can be said."""
        text = advice(self._view, self._pod, facts.rejection, facts.reason.pool)
        if not text:
            return None
        step = advised(text)
        return step if facts.rejection.code in _OF_POOLS else ProposedStep(step.change.of(self._claims.name))

    def edits(self, facts: ReasonFacts) -> Iterator[ProposedChange]:
        """Yield the first changes of each other way to help, whether or not they are enough."""
        for way in self._edits.against(facts):
            for change in islice(way, _MOST_OF_A_WAY):
                if change is not None:
                    yield change

    def correction(self, facts: ReasonFacts) -> ProposedChange | None:
        """Return the change of what is wrong by itself, whatever devices are free; None if it is not clear what was meant."""
        return next(filter(None, self._edits.corrections(facts)), None)

    def _absent_driver(self, facts: ReasonFacts) -> ProposedStep | None:
        """Advise a look at the driver that the request needs, if it publishes nothing in the whole cluster."""
        option = facts.option if facts.rejection.code in (Code.NO_MATCH, Code.NO_DEVICES) else None
        driver = None if option is None else UnmetSelectors(option.selectors, self._budget).driver
        drivers = {published.driver for published in self._view.ledger.slices.by_name.values()}
        if driver is None or driver in drivers or unread(self._view.origin, {StoredKind.SLICE}):
            return None
        return advised(f"check driver {driver}, which publishes no devices")

    def _claim_instead(self, facts: ReasonFacts) -> ProposedStep | None:
        """Advise a claim in the place of an extended resource, with which a pod tolerates no taint of a device."""
        nearest, option = facts.reason.nearest, facts.option
        if facts.rejection.code is not Code.TAINTED or facts.rejection.claim != EXTENDED_LABEL or nearest is None:
            return None
        device = self._nearest.published_nearest(nearest)
        if device is None or option is None:
            return None
        taints = ", ".join(map(taint_text, untolerated_taints(device.taints, option.tolerations)))
        claim = f"DeviceClass {option.device_class.name} with a ResourceClaim that tolerates {taints}"
        return advised(f"ask for {claim}: an extended resource tolerates no taint")


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
            if pool.slices > pool.expected:
                return f"wait; check driver {pool.driver}, which has published more slices than it declares"
            return f"wait; check driver {pool.driver}, which publishes the other slices"
        case Code.POOL_INVALID if rejection.detail.startswith("pool "):
            return f"check driver {rejection.detail.removeprefix('pool ').partition('/')[0]}"
    return _SENTENCES.get(rejection.code, "")


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

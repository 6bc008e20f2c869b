"""What would help against one reason: changes that are tried before they are named, and advice where nothing can be tried.

A further cause gets its changes in `NextSteps._ways`, or a sentence in `advice`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice
from types import MappingProxyType
from typing import Final, NamedTuple, Self

import msgspec

from dra_extender.allocator.demand.build import MAX_RESULTS
from dra_extender.allocator.demand.demand import ClaimDemand, Demand, SearchableRequest
from dra_extender.allocator.demand.selectors import activation_of
from dra_extender.allocator.explain.device_messages import taint_text
from dra_extender.allocator.explain.selector_reasons import UnmetSelectors
from dra_extender.allocator.rules.capacity import most_allowed
from dra_extender.allocator.rules.eligibility import untolerated_taints
from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.cel.errors import CelBudgetError, CelCompileError
from dra_extender.cel.explain.evaluation import ExplainableExpression
from dra_extender.cel.explain.nearness import relaxed
from dra_extender.cel.explain.values import quantity_text
from dra_extender.cel.program import Program
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.near_names import meant_name
from dra_extender.inspection.why.changes import (
    ENDS,
    ClaimChanges,
    Json,
    Place,
    ProposedChange,
    with_capacity,
    with_expressions,
    with_fields,
    without_requests,
)
from dra_extender.inspection.why.names import contradicted_class, may_all_hold, meant_expression, published_names
from dra_extender.inspection.why.nearest import Miss, NearestDevices, NodeDiagnosis
from dra_extender.inspection.why.report import (
    DEVICES_AND_NODES,
    HolderShare,
    NextStep,
    NodeReason,
    PoolGap,
    ReportedReason,
)
from dra_extender.inspection.why.reported import creation_events
from dra_extender.inspection.why.trials import EndCost, EndedHolders, Trials
from dra_extender.model.pod import Pod
from dra_extender.scheduling.claims.extended_need import EXTENDED_LABEL
from dra_extender.simulator.apiserver.objects import StoredKind

_MOST_EXPRESSIONS: Final = 8
"""Selectors of a request, or of its class, in which misspelt names are looked for."""
_CHEAP: Final = EndCost(forbidden=False, holders=1, priority=0)
_MOST_COUNTS: Final = 6
_MOST_NODES: Final = 4
"""Nodes on which the end of all holders is tried."""
_MOST_OF_A_WAY: Final = 2
_HELD: Final = frozenset(
    {
        Code.IN_USE,
        Code.COUNTERS,
        Code.CAPACITY,
        Code.GROUPS,
        Code.COMBINATION,
        Code.NEIGHBOURS,
        Code.BOUND_ELSEWHERE,
        Code.CONSTRAINT,
    }
)
_TOO_FEW: Final = frozenset({*_HELD, Code.NO_MATCH})


class ReasonFacts(NamedTuple):
    """What is known of the nodes of one reason: the nearest devices, nearest first, and the diagnoses of all devices."""

    rejection: Rejection
    reason: NodeReason
    demand: Demand | None
    nodes: Sequence[str]
    candidates: Sequence[Miss] = ()
    diagnoses: Sequence[NodeDiagnosis] = ()

    @property
    def place(self) -> Place:
        return self.rejection.claim, self.rejection.request

    def with_further(self, sentences: Iterable[str]) -> Self:
        """Add sentences about what else stands in the way."""
        further = (*self.reason.further, *sentences)
        return self._replace(reason=msgspec.structs.replace(self.reason, further=further))

    @property
    def option(self) -> SearchableRequest | None:
        return None if self.demand is None else self.demand.option(*self.place)

    @property
    def claim(self) -> ClaimDemand | None:
        claims = () if self.demand is None else self.demand.claims
        return next((claim for claim in claims if claim.label == self.rejection.claim), None)


class NextSteps:
    """Looks for changes that help one pod."""

    def __init__(self, view: ClusterView, pod: Pod, nearest: NearestDevices, trials: Trials) -> None:
        self._view = view
        self._pod = pod
        self._nearest = nearest
        self._budget = view.budget()
        self._claims = ClaimChanges(view, pod)
        self._trials = trials
        self._ends = EndedHolders(self._trials, self._claims)

    @cached_property
    def _published(self) -> frozenset[str]:
        return published_names(self._view)

    def steps_against(self, facts: ReasonFacts) -> Iterator[NextStep]:
        """Yield, for each way to help, the smallest change after which the pod fits on some of these nodes."""
        near = [facts.reason.nearest.node] if facts.reason.nearest is not None else []
        near += [candidate.node for candidate in facts.candidates]
        near += [facts.reason.count.node] if facts.reason.count is not None else []
        nodes, helped = tuple(dict.fromkeys((*near, *facts.nodes))), False
        for changes in self._ways(facts):
            step = self._trials.first_that_helps(changes, nodes)
            if step is not None:
                helped = True
                yield step
        advised = advice(self._view, self._pod, facts.rejection, facts.reason.pool) or self._absent_driver(facts)
        if advised and not (helped and facts.rejection.code in _SPELT):
            yield NextStep(text=advised, harmful=advised.startswith(ENDS))
        if facts.rejection.code in _HELD:
            step = self._ended(facts, nodes)
            # To end pods hurts: it is no advice where it is known that the pod may not use the nodes all the same.
            if step is not None and (step.verified == DEVICES_AND_NODES or self._view.node_fit is None):
                yield step

    def ends(self, facts: ReasonFacts) -> Iterator[ProposedChange]:
        """Yield the end of each holder of the nearest device, whether or not it is enough."""
        if facts.rejection.code in _HELD and facts.reason.nearest is not None:
            for share in facts.reason.nearest.holders:
                ended = self._claims.ended([share.holder]) if self._claims.can_be_ended(share.holder) else None
                if ended is not None:
                    yield ended

    def edits(self, facts: ReasonFacts) -> Iterator[ProposedChange]:
        """Yield the first changes of each other way to help, whether or not they are enough."""
        # Which class is meant by a misspelt name is a guess that no further change is built on.
        for way in self._ways(facts) if facts.rejection.code is not Code.CLASS_MISSING else ():
            for change in islice(way, _MOST_OF_A_WAY):
                if change is not None:
                    yield change

    def _ways(self, facts: ReasonFacts) -> Iterator[Iterable[ProposedChange | None]]:
        code, option = facts.rejection.code, facts.option
        if code is Code.CLASS_MISSING:
            missing = self._claims.classes(facts.place)
            near = (meant_name(name, self._view.ledger.classes) for name in missing)
            yield [self._with_class(facts, name) for name in near if name is not None]
        if code is Code.TOO_MANY_DEVICES:
            yield self._as_many_as_allowed(facts.rejection)
        if option is None:
            return
        match code:
            case Code.SELECTOR_FAILED:
                yield self._meant_names(facts, option)
            case Code.NO_MATCH:
                yield chain(self._meant_names(facts, option), self._other_selectors(facts, option))
                yield self._weaker_class(option, facts.candidates)
                name = contradicted_class(self._view, option)
                yield [] if name is None else [self._with_class(facts, name)]
            case Code.CAPACITY:
                yield self._less_capacity(facts, option)
            case Code.CONSTRAINT:
                yield self._without_constraints(facts, option)
            case Code.COMBINATION:
                yield self._without_request(facts)
        yield self._tolerations(facts, option)
        if code in _TOO_FEW and option.count > 1:
            available = 0 if facts.reason.count is None else facts.reason.count.available
            largest = min(option.count - 1, available or option.count)
            yield (self._claims.with_count(facts.place, number) for number in range(largest, 0, -1)[:_MOST_COUNTS])
        if code is Code.COMBINATION:
            yield self._fewer_elsewhere(facts)
            yield self._without_claim(facts)

    def _absent_driver(self, facts: ReasonFacts) -> str:
        """Advise a look at the driver that the request needs, if it publishes nothing in the whole cluster."""
        option = facts.option if facts.rejection.code in (Code.NO_MATCH, Code.NO_DEVICES) else None
        driver = None if option is None else UnmetSelectors(option.selectors, self._budget).driver
        drivers = {published.driver for published in self._view.ledger.slices.by_name.values()}
        if driver is None or driver in drivers or _is_missing(self._view, "resourceslices"):
            return ""
        return f"check driver {driver}, which publishes no devices"

    def _ended(self, facts: ReasonFacts, nodes: Sequence[str]) -> NextStep | None:
        """Return the end of as few holders as possible on one of the nearest nodes; for a gang, on all nodes."""
        if self._trials.of_gang:
            in_the_way = self._in_the_way(facts, [diagnosis.node.name for diagnosis in facts.diagnoses])
            everywhere = self._ends.fewest(in_the_way, nodes)
            return None if everywhere is None else everywhere[0]
        nearest = facts.reason.nearest
        best = None if nearest is None else self._ends.fewest(nearest.holders, nodes)
        for name in self._nearest_to_end(facts, nodes):
            shares = tuple(self._in_the_way(facts, [name]))
            if best is not None and best[1] <= _CHEAP and (not best[1].holders or not _some_leave(shares)):
                continue
            end_on_node = self._ends.fewest(shares, [name])
            if end_on_node is not None and (best is None or end_on_node[1] < best[1]):
                best = end_on_node
        return None if best is None else best[0]

    def _nearest_to_end(self, facts: ReasonFacts, nodes: Sequence[str]) -> Sequence[str]:
        """Return the nodes on which it is tried to end what is in the way.

        The nearest node comes first, then nodes that a holder leaves by itself, then those with the fewest and least holders.
        """
        ranks: list[tuple[bool, int, int, str]] = []
        for diagnosis in facts.diagnoses:
            shares = self._nearest.holders_on(diagnosis)
            staying = [share.holder for share in shares if not share.holder.leaving]
            priority = max(map(self._claims.priority, staying), default=0)
            if shares:
                ranks.append((not _some_leave(shares), len(staying), priority, diagnosis.node.name))
        return tuple(dict.fromkeys((*nodes[:1], *(name for *_, name in sorted(ranks)))))[:_MOST_NODES]

    def _in_the_way(self, facts: ReasonFacts, nodes: Sequence[str]) -> Iterator[HolderShare]:
        """Yield the holders of what any request of the pod needs on these nodes."""
        if facts.demand is not None:
            for claim in facts.demand.claims:
                for option in (option for request in claim.requests for option in request.options):
                    for diagnosis in self._nearest.diagnose(facts.demand, (claim.label, option.name), nodes):
                        yield from self._nearest.holders_on(diagnosis)

    def _with_class(self, facts: ReasonFacts, name: str) -> ProposedChange | None:
        edit = with_fields(deviceClassName=name)
        return self._claims.of_request(facts.place, f"use the DeviceClass {name}", edit)

    def _as_many_as_allowed(self, rejection: Rejection) -> Iterator[ProposedChange | None]:
        """Yield the claim with fewer devices in its largest request, so that it asks for no more than a claim may have."""
        counts = self._claims.counts(rejection.claim)
        for request, number in sorted(counts.items(), key=lambda entry: -entry[1])[:1]:
            allowed = MAX_RESULTS - (sum(counts.values()) - number)
            if 0 < allowed < number:
                where = f" in request {request}" if len(counts) > 1 else ""
                yield self._claims.with_count((rejection.claim, request), allowed, where)

    def _tolerations(self, facts: ReasonFacts, option: SearchableRequest) -> Iterator[ProposedChange | None]:
        nearest = facts.reason.nearest
        if facts.rejection.code is not Code.TAINTED:
            nearest = self._nearest.find(facts.diagnoses, Code.TAINTED, option.count)
        device = None if nearest is None else self._nearest.published_nearest(nearest)
        if device is not None:
            taints = list(untolerated_taints(device.taints, option.tolerations))

            def edit(body: Json) -> None:
                added = (
                    {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
                    for taint in taints
                )
                body["tolerations"] = [*(body.get("tolerations") or ()), *added]

            yield self._claims.of_request(facts.place, f"tolerate {', '.join(map(taint_text, taints))}", edit)

    def _less_capacity(self, facts: ReasonFacts, option: SearchableRequest) -> Iterator[ProposedChange | None]:
        nearest = facts.reason.nearest
        short = () if nearest is None or nearest.capacity is None else (nearest.capacity, *nearest.further_capacities)
        if short and all(need.left > 0 for need in short):
            amounts = {need.capacity: need.left for need in short}
            yield self._claims.of_request(facts.place, _less_text(amounts), with_capacity(amounts))
        device = None if nearest is None or short else self._nearest.published_nearest(nearest)
        if device is not None:
            limits = {name: most_allowed(capacity) for name, capacity in device.capacity}
            meant = {name: meant_name(name, limits) for name in option.capacity if name not in limits}
            if meant and all(meant.values()):

                def edit(body: Json) -> None:
                    requests = body["capacity"]["requests"]
                    body["capacity"]["requests"] = {
                        meant.get(name) or name: amount for name, amount in requests.items()
                    }

                text = f"ask for {', '.join(f'{right} instead of {name}' for name, right in meant.items())}"
                yield self._claims.of_request(facts.place, text, edit)
            less = {name: limits[name] for name, amount in option.capacity.items() if 0 < limits.get(name, 0) < amount}
            if less:
                yield self._claims.of_request(facts.place, _less_text(less), with_capacity(less))

    def _without_constraints(self, facts: ReasonFacts, option: SearchableRequest) -> Iterator[ProposedChange | None]:
        constraints = () if facts.claim is None else facts.claim.constraints
        for constraint in (constraints[index] for index in option.constraints):
            field, value = "distinctAttribute" if constraint.distinct else "matchAttribute", constraint.attribute

            def edit(claim: Json, field: str = field, value: str = value) -> None:
                devices = claim["spec"]["devices"]
                devices["constraints"] = [stored for stored in devices["constraints"] if stored.get(field) != value]

            yield self._claims.of_claim(facts.rejection.claim, f"do without {constraint.text()}", edit)

    def _without_request(self, facts: ReasonFacts) -> Iterator[ProposedChange | None]:
        """Yield the claim without the request that gets no device beside the others."""
        claim, request = facts.place
        if facts.claim is not None and len(facts.claim.requests) > 1:
            edit = without_requests({request.partition("/")[0]})
            yield self._claims.of_claim(claim, f"do without request {request}", edit)

    def _fewer_elsewhere(self, facts: ReasonFacts) -> Iterator[ProposedChange | None]:
        """Yield the other requests of the pod, with which this one competes, each with fewer devices."""
        own = (facts.rejection.claim, facts.rejection.request.partition("/")[0])
        for claim in () if facts.demand is None else facts.demand.claims:
            for option in (option for request in claim.requests for option in request.options):
                if (claim.label, option.name.partition("/")[0]) != own:
                    for number in range(option.count - 1, 0, -1)[:_MOST_COUNTS]:
                        where = f" in request {option.name} of claim {claim.label}"
                        yield self._claims.with_count((claim.label, option.name), number, where)

    def _without_claim(self, facts: ReasonFacts) -> Iterator[ProposedChange | None]:
        """Yield the pod without the claim that gets no devices beside its other claims, or without an extended resource."""
        labels = [] if facts.demand is None else [claim.label for claim in facts.demand.claims]
        if len(labels) > 1:
            name = facts.rejection.claim
            yield self._claims.of_claim(
                name, f"do without claim {name}", lambda claim: claim["spec"].update(devices={})
            )
            if EXTENDED_LABEL in labels:
                yield self._claims.without_extended_resources()

    def _meant_names(self, facts: ReasonFacts, option: SearchableRequest) -> Iterator[ProposedChange | None]:
        """Yield the selectors of the request, and those of its class, with the names that were meant by misspelt ones."""
        name, own = option.device_class.name, len(option.device_class.spec.selectors)
        for subject, expressions in (
            ("", option.selectors.expressions[own:]),
            (name, option.selectors.expressions[:own]),
        ):
            edits, corrections = dict[str, str](), dict[str, None]()
            for expression in expressions[:_MOST_EXPRESSIONS]:
                meant = meant_expression(expression, self._published)
                if meant is not None:
                    edits[expression], words = meant
                    corrections[words] = None
            if edits and subject:
                yield self._claims.of_class(name, f"have DeviceClass {name} ask for {', '.join(corrections)}", edits)
            elif edits:
                yield self._claims.of_request(facts.place, f"ask for {', '.join(corrections)}", with_expressions(edits))

    def _other_selectors(self, facts: ReasonFacts, option: SearchableRequest) -> Iterator[ProposedChange | None]:
        """Yield the request's own selectors with the values of a near device; a class's selectors are the administrator's."""
        own = len(option.device_class.spec.selectors)
        programs = option.selectors.programs[own:]
        for miss in facts.candidates:
            if not may_all_hold(programs, miss.published.driver):
                continue
            edits, conditions = self._relaxations(programs, miss)
            if edits:
                text = f"ask for {' and '.join(conditions)}"
                yield self._claims.of_request(facts.place, text, with_expressions(edits))

    def _weaker_class(self, option: SearchableRequest, candidates: Sequence[Miss]) -> Iterator[ProposedChange | None]:
        """Yield the class with the amounts of a near device; what is no amount stays as the administrator has it."""
        name = option.device_class.name
        own = len(option.device_class.spec.selectors)
        for miss in candidates:
            edits, conditions = self._relaxations(option.selectors.programs[:own], miss)
            if edits and all(" >= " in condition or " <= " in condition for condition in conditions):
                text = f"have DeviceClass {name} ask for {' and '.join(conditions)}"
                yield self._claims.of_class(name, text, edits)

    def _relaxations(self, programs: Sequence[object], miss: Miss) -> tuple[dict[str, str], list[str]]:
        """Return other expressions that are true for the device, by the present ones, and what they ask for."""
        activation = activation_of(miss.published, miss.device)
        edits: dict[str, str] = {}
        conditions: list[str] = []
        for program in (program for program in programs if isinstance(program, Program)):
            try:
                expression = ExplainableExpression(program.expression, program.emulate, self._budget)
            except CelCompileError:
                continue
            except CelBudgetError:
                return {}, []
            relaxation = relaxed(expression, activation, self._budget)
            if relaxation is not None:
                edits[program.expression] = relaxation.expression
                conditions += relaxation.conditions
        return edits, conditions


def _less_text(amounts: Mapping[str, int]) -> str:
    """E.g. `ask for 2Gi of capacity memory and 4 of capacity cores`."""
    return f"ask for {' and '.join(f'{quantity_text(amount)} of capacity {name}' for name, amount in amounts.items())}"


def _some_leave(shares: Iterable[HolderShare]) -> bool:
    return any(share.holder.leaving for share in shares)


_QUOTA: Final = re.compile(r"exceeded quota: ([a-z0-9.-]+)")
_ADMIN_LABEL: Final = re.compile(r"resource\.[a-z0-9.]+/admin-access")
_TEMPLATES: Final = "resourceclaimtemplates"
_LOOK: Final = "wait until the extender tries again; check why the driver did not make the devices ready"
_AS_REPORTED: Final[Mapping[Code, str]] = MappingProxyType(
    {Code.DEVICES_IN_BACKOFF: _LOOK, Code.NODE_IN_BACKOFF: _LOOK}
)
_SENTENCES: Final[Mapping[Code, str]] = MappingProxyType(
    {
        Code.CLAIM_DELETING: "create the claim again once it is gone",
        Code.CLAIM_FOREIGN: "create the pod again: the claim that its status names belongs to another object",
        Code.CLAIM_FULLY_RESERVED: "end a pod that uses the claim",
        Code.SELECTOR_INVALID: "correct the selector",
        Code.SELECTOR_FAILED: "correct the selector",
    }
)
"""What helps whatever the objects are."""
_SPELT: Final = frozenset({Code.SELECTOR_FAILED, Code.NO_MATCH, Code.NO_DEVICES})
"""Reasons for which a name may be misspelt; where another name was tried and helps, nothing more is advised."""


def advice(view: ClusterView, pod: Pod, rejection: Rejection, pool: PoolGap | None = None) -> str:
    """Return what helps against a reason, without a trial; empty where nothing can be said."""
    match rejection.code:
        case Code.CLAIM_MISSING if rejection.detail.startswith(f"{pod.namespace}/"):
            claim = f"ResourceClaim {rejection.detail}"
            if _is_missing(view, "resourceclaims"):
                return f"look whether {claim} exists"
            return _created_or_named(view, StoredKind.CLAIM, pod.namespace, rejection.detail.partition("/")[2])
        case Code.CLAIM_NOT_CREATED:
            return _advice_without_claim(view, pod, rejection.claim)
        case Code.POD_GROUP_MISSING:
            return _created_or_named(view, StoredKind.POD_GROUP, pod.namespace, pod.pod_group or "")
        case Code.POOL_INCOMPLETE if pool is not None:
            return f"wait; check driver {pool.driver}, which publishes the other slices"
        case Code.POOL_INVALID if rejection.detail.startswith("pool "):
            return f"check driver {rejection.detail.removeprefix('pool ').partition('/')[0]}"
    return _SENTENCES.get(rejection.code, "")


def _created_or_named(view: ClusterView, kind: StoredKind, namespace: str, missing: str) -> str:
    """Advise to name the object that was meant, or else to create the one that is named."""
    near = meant_name(missing, view.names(kind, namespace))
    named = "" if near is None else f"name {kind.singular} {near} instead of {missing}, or "
    return f"{named}create {kind.singular} {namespace}/{missing}"


def _advice_without_claim(view: ClusterView, pod: Pod, name: str) -> str:
    """Return what helps where no claim is created for an entry of the pod; empty where the message of an Event has to suffice."""
    entry = next((claim for claim in pod.claims if claim.name == name), None)
    template = None if entry is None else entry.resource_claim_template_name
    named = f"ResourceClaimTemplate {pod.namespace}/{template}"
    if template and _is_missing(view, _TEMPLATES):
        return f"look whether {named} exists"
    if template and view.stored(_TEMPLATES, template, pod.namespace) is None:
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


def _is_missing(view: ClusterView, kind: str) -> bool:
    return any(missing.kind == kind for missing in view.origin.missing)


def reported_advice(reported: Sequence[ReportedReason]) -> tuple[NextStep, ...]:
    """Return what helps against reasons that the running extender alone knows, as kube-scheduler reports them."""
    texts = (text for code, text in _AS_REPORTED.items() if any(code.value in reason.text for reason in reported))
    return tuple(NextStep(text=text) for text in dict.fromkeys(texts))

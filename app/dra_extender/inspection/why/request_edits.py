"""What is known of one reason against a pod, and the changes of what it asks for that may help.

A further cause gets its changes in `RequestEdits.against`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property
from itertools import chain, islice
from typing import Final, NamedTuple, Self

import msgspec

from dra_extender.allocator.demand.build import MAX_RESULTS
from dra_extender.allocator.demand.constraints import Constraint
from dra_extender.allocator.demand.demand import ClaimDemand, Demand, SearchableRequest
from dra_extender.allocator.demand.selectors import activation_of
from dra_extender.allocator.explain.device_messages import taint_text
from dra_extender.allocator.explain.selector_reasons import UnmetSelectors
from dra_extender.allocator.rules.capacity import most_allowed
from dra_extender.allocator.rules.eligibility import untolerated_taints
from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.cel.analysis.corrections import (
    Correction,
    PublishedNames,
    guarded_expression,
    meant_expression,
    without_unpublished,
)
from dra_extender.cel.errors import CelBudgetError, CelCompileError
from dra_extender.cel.explain.evaluation import ExplainableExpression
from dra_extender.cel.explain.nearness import Relaxation, relaxed
from dra_extender.cel.explain.values import quantity_text
from dra_extender.cel.program import Program
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.near_names import instead, meant_name, near_names
from dra_extender.inspection.why.changes import (
    ClaimChanges,
    Json,
    Place,
    ProposedChange,
    with_capacity,
    with_constraint,
    with_expressions,
)
from dra_extender.inspection.why.names import (
    may_all_hold,
    missing_object,
    published_names,
)
from dra_extender.inspection.why.nearest import Miss, NearestDevices, NodeDiagnosis, requested_options
from dra_extender.inspection.why.other_classes import MeantDevices, meant_devices, wider_classes
from dra_extender.inspection.why.report import CORRECTED, NodeReason
from dra_extender.model.api_json import number_of
from dra_extender.model.device_class import DeviceClass
from dra_extender.model.pod import Pod
from dra_extender.scheduling.claims.extended_need import EXTENDED_LABEL

_MOST_EXPRESSIONS: Final = 8
"""Selectors of a request, or of its class, in which misspelt names are looked for."""
_MOST_COUNTS: Final = 6
_MOST_NEAR: Final = 3
"""Names that are near a misspelt one, and are tried."""
HELD: Final = frozenset(
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
"""Reasons that the end of other pods may remove."""
_TAKEN_BY_ITSELF: Final = " beside what "
"""Stands in the detail of a reason before the requests of the pod that take what is lacking."""
_TOO_FEW: Final = frozenset({*HELD, Code.NO_MATCH})


class ReasonFacts(NamedTuple):
    """What is known of the nodes of one reason: the nearest devices, nearest first, and the diagnoses of all devices.

    `after_correction`: it stands in the way once what is wrong by itself is corrected.
    """

    rejection: Rejection
    reason: NodeReason
    demand: Demand | None
    nodes: Sequence[str]
    candidates: Sequence[Miss] = ()
    diagnoses: Sequence[NodeDiagnosis] = ()
    after_correction: bool = False

    @property
    def place(self) -> Place:
        return self.rejection.claim, self.rejection.request

    def with_further(self, sentences: Iterable[str]) -> Self:
        further = (*self.reason.further, *sentences)
        return self._replace(reason=msgspec.structs.replace(self.reason, further=further))

    @property
    def option(self) -> SearchableRequest | None:
        return None if self.demand is None else self.demand.option(*self.place)

    @property
    def claim(self) -> ClaimDemand | None:
        claims = () if self.demand is None else self.demand.claims
        return next((claim for claim in claims if claim.label == self.rejection.claim), None)

    @property
    def constraints(self) -> Sequence[Constraint]:
        claim, option = self.claim, self.option
        return [] if claim is None or option is None else [claim.constraints[index] for index in option.constraints]


class RequestEdits:
    """Finds changes of what one pod asks for."""

    def __init__(self, view: ClusterView, pod: Pod, claims: ClaimChanges, nearest: NearestDevices) -> None:
        self._view = view
        self._pod = pod
        self._claims = claims
        self._nearest = nearest
        self._budget = view.budget()
        self._meant_by_selectors = dict[tuple[str, Sequence[str]], MeantDevices | None]()
        self._meant = cache(lambda expression: meant_expression(expression, self._published))

    @cached_property
    def _published(self) -> PublishedNames:
        return published_names(self._view)

    def against(self, facts: ReasonFacts) -> Iterator[Iterable[ProposedChange | None]]:
        """Yield, for each way to help against a reason, the changes to be tried, the smallest first."""
        code, option = facts.rejection.code, facts.option
        yield self.corrections(facts)
        # Where several names are near, each is a way.
        yield from ([change] for change in self._near_objects(facts))
        if code is Code.CLASS_MISSING:
            near = [change for change in self._near_classes(facts) if change is not None]
            yield from ([change] for change in near)
            yield [] if near else self._without_alternative(facts)
        if code is Code.TOO_MANY_DEVICES:
            yield self._as_many_as_allowed(facts.rejection)
        if code in (Code.NO_MATCH, Code.SELECTOR_FAILED):
            yield self._without_unpublished(facts)
        if option is None:
            return
        match code:
            case Code.NO_MATCH:
                reselected = self._reselected(facts, self._meant)
                yield chain(reselected, self._other_selectors(facts, option), self._without_selectors(facts, option))
                classes = chain(self._meant_classes(facts, option), self._weaker_class(option, facts.candidates))
                yield chain(classes, self._wider_classes(facts, option))
            case Code.CAPACITY:
                yield self._less_capacity(facts, option)
            case Code.CONSTRAINT:
                yield self._meant_attributes(facts)
                yield self._without_constraints(facts)
        competes = code is Code.COMBINATION or _TAKEN_BY_ITSELF in facts.rejection.detail
        if competes:
            yield self._without_request(facts)
        yield self._tolerations(facts, option)
        if code in _TOO_FEW and option.count > 1:
            available = 0 if facts.reason.count is None else facts.reason.count.available
            largest = min(option.count - 1, available or option.count)
            yield (self._claims.with_count(facts.place, number) for number in range(largest, 0, -1)[:_MOST_COUNTS])
        if competes:
            yield self._fewer_elsewhere(facts)
            yield self._without_claim(facts)

    def corrections(self, facts: ReasonFacts) -> Iterator[ProposedChange | None]:
        """Return the changes of what is wrong by itself: a misspelt name, a selector that fails, a claim that is being deleted."""
        match facts.rejection.code:
            case Code.CLASS_MISSING:
                return _corrected(_unless_several(self._near_classes(facts)))
            case Code.SELECTOR_INVALID:
                return _corrected(self._reselected(facts, self._meant))
            case Code.SELECTOR_FAILED:
                guarded = filter(None, self._reselected(facts, self._guarded))
                once = (change._replace(once="the selector does not fail") for change in guarded)
                return chain(_corrected(self._reselected(facts, self._meant)), once)
            case Code.CLAIM_DELETING:
                text = created_again_text(self._pod, facts.rejection.claim)
                return iter([self._claims.created_again(facts.rejection.detail, text)])
        return _corrected(_unless_several(self._near_objects(facts)))

    def _near_objects(self, facts: ReasonFacts) -> Iterator[ProposedChange | None]:
        """Yield the pod with each claim, template or PodGroup that may be meant by a misspelt name."""
        missing = missing_object(self._view, self._pod, facts.rejection)
        if missing is not None:
            kind, misspelt = missing
            for name in near_names(misspelt, self._view.names(kind, self._pod.namespace))[:_MOST_NEAR]:
                yield self._claims.with_name(kind, misspelt, name)

    def _near_classes(self, facts: ReasonFacts) -> Iterator[ProposedChange | None]:
        """Yield the request with each class that may be meant by a misspelt name."""
        for missing in self._claims.classes(facts.place):
            if missing not in self._view.ledger.classes:
                for name in near_names(missing, self._view.ledger.classes)[:_MOST_NEAR]:
                    yield self._with_class(facts, name)

    def _without_alternative(self, facts: ReasonFacts) -> Iterator[ProposedChange | None]:
        """Yield the claim without an alternative of which nothing that exists can be meant."""
        claim, request = facts.place
        if "/" in request:
            yield self._claims.without_alternative(claim, request)

    def _with_class(self, facts: ReasonFacts, name: str, free: int | None = None) -> ProposedChange | None:
        text = f"use the DeviceClass {name}" + ("" if free is None else f" ({number_of(free, 'free device')})")
        return self._claims.of_request(facts.place, text, lambda body: body.update(deviceClassName=name))

    def _as_many_as_allowed(self, rejection: Rejection) -> Iterator[ProposedChange | None]:
        """Yield the claim with fewer devices in its largest request, so that it asks for no more than a claim may have.

        A request for all devices is the largest.
        """
        counts = sorted(self._claims.counts(rejection.claim).items(), key=lambda entry: entry[1])
        for request, number in counts[-1:]:
            allowed = MAX_RESULTS - sum(other for _, other in counts[:-1])
            if 0 < allowed < number:
                yield self._claims.with_count((rejection.claim, request), int(allowed))

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

            yield self._claims.of_request(facts.place, f"tolerate {' and '.join(map(taint_text, taints))}", edit)

    def _less_capacity(self, facts: ReasonFacts, option: SearchableRequest) -> Iterator[ProposedChange | None]:
        nearest = facts.reason.nearest
        device = None if nearest is None else self._nearest.published_nearest(nearest)
        if nearest is None or device is None:
            return
        capacities = dict(device.capacity)
        if nearest.capacity is not None:
            short = (nearest.capacity, *nearest.further_capacities)
            amounts = {need.capacity: most_allowed(capacities[need.capacity], need.left) for need in short}
            if all(amounts.values()):
                yield self._claims.of_request(facts.place, _less_text(amounts), with_capacity(amounts))
            return
        yield from self._meant_capacities(facts, option, capacities)
        left = self._nearest.left(nearest)
        available = {name: most_allowed(capacity, left[name]) for name, capacity in device.capacity}
        in_all = {name: most_allowed(capacity) for name, capacity in device.capacity}
        for most in (available, in_all) if available != in_all else (in_all,):
            less = {name: most[name] for name, amount in option.capacity.items() if 0 < most.get(name, 0) < amount}
            if less:
                yield self._claims.of_request(facts.place, _less_text(less), with_capacity(less))

    def _meant_capacities(
        self, facts: ReasonFacts, option: SearchableRequest, names: Collection[str]
    ) -> Iterator[ProposedChange | None]:
        """Yield the request with the capacities of the device that were meant by misspelt names."""
        meant = {name: meant_name(name, names) for name in option.capacity if name not in names}
        if meant and all(meant.values()):

            def edit(body: Json) -> None:
                requests = body["capacity"]["requests"]
                body["capacity"]["requests"] = {meant.get(name) or name: amount for name, amount in requests.items()}

            text = f"ask for {' and '.join(instead(right or name, name) for name, right in meant.items())}"
            yield self._claims.of_request(facts.place, text, edit)

    def _meant_attributes(self, facts: ReasonFacts) -> Iterator[ProposedChange | None]:
        """Yield the claim with the attributes that were meant by misspelt ones of its constraints."""
        names = self._nearest.attributes(facts.diagnoses)
        for constraint in facts.constraints:
            field, attribute = constraint.field, constraint.attribute
            meant = None if attribute in names else meant_name(attribute, names)
            if meant is not None:
                text = f"ask for {field} {instead(meant, attribute)}{self._claims.where(facts.rejection.claim)}"
                yield self._claims.of_claim(facts.rejection.claim, text, with_constraint(field, attribute, meant))

    def _without_constraints(self, facts: ReasonFacts) -> Iterator[ProposedChange | None]:
        for constraint in facts.constraints:
            edit = with_constraint(constraint.field, constraint.attribute, None)
            text = f"do without {constraint.text()}{self._claims.where(facts.rejection.claim)}"
            yield self._claims.of_claim(facts.rejection.claim, text, edit)

    def _without_request(self, facts: ReasonFacts) -> Iterator[ProposedChange | None]:
        """Yield the claim without the request that gets no device beside the others."""
        if facts.claim is not None and len(facts.claim.requests) > 1:
            yield self._claims.without_request(*facts.place)

    def _fewer_elsewhere(self, facts: ReasonFacts) -> Iterator[ProposedChange | None]:
        """Yield the other requests of the pod, with which this one competes, each with fewer devices."""
        own = (facts.rejection.claim, facts.rejection.request.partition("/")[0])
        for claim, option in () if facts.demand is None else requested_options(facts.demand):
            if (claim, option.name.partition("/")[0]) != own:
                for number in range(option.count - 1, 0, -1)[:_MOST_COUNTS]:
                    yield self._claims.with_count((claim, option.name), number)

    def _without_claim(self, facts: ReasonFacts) -> Iterator[ProposedChange | None]:
        """Yield the pod without the claim that gets no devices beside its other claims, or without an extended resource."""
        labels = [] if facts.demand is None else [claim.label for claim in facts.demand.claims]
        if len(labels) > 1:
            name = facts.rejection.claim
            yield self._claims.without_claim(name)
            if EXTENDED_LABEL in labels:
                yield self._claims.without_extended_resources()

    def _reselected(
        self, facts: ReasonFacts, edited: Callable[[str], Correction | None]
    ) -> Iterator[ProposedChange | None]:
        """Yield the selectors of the request, and those of its class, as `edited` returns them with what they ask for."""
        edits, words = self._edited(self._claims.expressions(facts.place), edited)
        if edits:
            yield self._claims.of_request(facts.place, f"ask for {' and '.join(words)}", with_expressions(edits))
        classes = self._claims.classes(facts.place) if facts.option is None else [facts.option.device_class.name]
        for device_class in filter(None, map(self._view.ledger.classes.get, dict.fromkeys(classes))):
            edits, words = self._edited(_expressions_of(device_class), edited)
            if edits:
                text = f"have DeviceClass {device_class.name} ask for {' and '.join(words)}"
                yield self._claims.of_class(device_class.name, text, edits)

    def _without_unpublished(self, facts: ReasonFacts) -> Iterator[ProposedChange | None]:
        """Yield the request without its own conditions on nothing but what no device has."""
        edits, words = self._edited(self._claims.expressions(facts.place), self._without_unknown)
        if edits:
            text = f"do without {' and '.join(words)} (no device has {'it' if len(words) == 1 else 'them'})"
            yield self._claims.of_request(facts.place, text, with_expressions(edits))

    def unpublished_of_class(self, facts: ReasonFacts) -> str:
        """Return what the class of a request asks for and no device has; empty if nothing, or if that is not known."""
        expressions = [] if facts.option is None else _expressions_of(facts.option.device_class)
        return " or ".join(self._edited(expressions, self._without_unknown)[1])

    def _edited(
        self, expressions: Sequence[str], edited: Callable[[str], Correction | None]
    ) -> tuple[Mapping[str, str], Sequence[str]]:
        """Return the first expressions as `edited` returns them, by the present ones, and what they ask for."""
        results = {expression: edited(expression) for expression in expressions[:_MOST_EXPRESSIONS]}
        edits = {expression: result for expression, result in results.items() if result is not None}
        words = dict.fromkeys(word for _, words in edits.values() for word in words)
        return {expression: other for expression, (other, _) in edits.items()}, list(words)

    def _guarded(self, expression: str) -> Correction | None:
        return guarded_expression(expression, self._published)

    def _without_unknown(self, expression: str) -> Correction | None:
        return without_unpublished(expression, self._published) if self._meant(expression) is None else None

    def _other_selectors(self, facts: ReasonFacts, option: SearchableRequest) -> Iterator[ProposedChange | None]:
        """Yield the request's own selectors with the values of a near device."""
        programs = option.selectors.programs[len(option.device_class.spec.selectors) :]
        near = [miss for miss in facts.candidates if may_all_hold(programs, miss.published.driver)]
        for relaxations in self._relaxations(programs, near):
            edits, conditions = _joined(relaxations)
            yield self._claims.of_request(facts.place, f"ask for {conditions}", with_expressions(edits))

    def meant_devices(self, option: SearchableRequest) -> MeantDevices | None:
        """Return which devices the request's own selectors mean, if that contradicts its class."""
        key = option.device_class.name, option.selectors.expressions
        if key not in self._meant_by_selectors:
            self._meant_by_selectors[key] = meant_devices(self._view, option, self._budget)
        return self._meant_by_selectors[key]

    def _meant_classes(self, facts: ReasonFacts, option: SearchableRequest) -> Iterator[ProposedChange | None]:
        """Yield the request with each class of the devices that its own selectors mean, where its class has none of them."""
        meant = self.meant_devices(option)
        for name, free in () if meant is None else meant.classes:
            yield self._with_class(facts, name, free)

    def _without_selectors(self, facts: ReasonFacts, option: SearchableRequest) -> Iterator[ProposedChange | None]:
        """Yield the request without the selectors that a near device of its class does not meet, if no device meets them all."""
        own, unmet = len(option.device_class.spec.selectors), UnmetSelectors(option.selectors, self._budget)
        corrected = chain(self._reselected(facts, self._meant), self._without_unpublished(facts))
        if self.meant_devices(option) != MeantDevices() or next(filter(None, corrected), None) is not None:
            return
        for miss in facts.candidates:
            false = [index for index, _ in unmet.messages(miss.published, miss.position)]
            if min(false, default=0) >= own:
                dropped = {option.selectors.expressions[index]: "true" for index in false}
                numbers = " and ".join(str(index - own + 1) for index in false)
                text = f"do without {'selector' if len(false) == 1 else 'selectors'} {numbers}"
                yield self._claims.of_request(facts.place, text, with_expressions(dropped))

    def _weaker_class(self, option: SearchableRequest, candidates: Sequence[Miss]) -> Iterator[ProposedChange | None]:
        """Yield the class with the amounts and flags of a near device; which devices it means is the administrator's to say."""
        name, programs = option.device_class.name, option.selectors.programs[: len(option.device_class.spec.selectors)]
        for relaxations in self._relaxations(programs, candidates):
            if not any(relaxation.selects_others for relaxation in relaxations.values()):
                edits, conditions = _joined(relaxations)
                yield self._claims.of_class(name, f"have DeviceClass {name} ask for {conditions}", edits)

    def _wider_classes(self, facts: ReasonFacts, option: SearchableRequest) -> Iterator[ProposedChange | None]:
        """Yield the request with each class that leaves open what its class asks for, if no name in its selectors is misspelt."""
        of_class = any(miss.first < len(option.device_class.spec.selectors) for miss in facts.candidates)
        misspelt = next(self._reselected(facts, self._meant), None) is not None
        if of_class and not misspelt and not self.unpublished_of_class(facts):
            for name, free in wider_classes(self._view, option.device_class, self._budget):
                yield self._with_class(facts, name, free)

    def _relaxations(
        self, programs: Sequence[Program | CelCompileError], misses: Sequence[Miss]
    ) -> Iterator[Mapping[str, Relaxation]]:
        """Yield, for each near device for which there are any, other expressions that are true for it, by the present ones."""
        for miss in misses:
            activation, relaxations = activation_of(miss.published, miss.device), dict[str, Relaxation]()
            with suppress(CelBudgetError):
                for program in (program for program in programs if isinstance(program, Program)):
                    with suppress(CelCompileError):
                        expression = ExplainableExpression(program.expression, program.emulate, self._budget)
                        relaxation = relaxed(expression, activation, self._budget)
                        if relaxation is not None:
                            relaxations[program.expression] = relaxation
                if relaxations:
                    yield relaxations


def _expressions_of(device_class: DeviceClass) -> Sequence[str]:
    return [selector.cel.expression for selector in device_class.spec.selectors if selector.cel]


def _joined(relaxations: Mapping[str, Relaxation]) -> tuple[Mapping[str, str], str]:
    """Return the other expressions by the present ones, and all that they ask for."""
    conditions = (condition for relaxation in relaxations.values() for condition in relaxation.conditions)
    return {before: relaxation.expression for before, relaxation in relaxations.items()}, " and ".join(conditions)


def created_again_text(pod: Pod, name: str) -> str:
    """Return what to do about a claim of the pod that is being deleted."""
    generated = any(entry.name == name and entry.resource_claim_template_name for entry in pod.claims)
    made = "wait until the claim is gone and made again from its template"
    return made if generated else "create the claim again once it is gone"


def _corrected(changes: Iterator[ProposedChange | None]) -> Iterator[ProposedChange]:
    return (change._replace(once=CORRECTED) for change in changes if change is not None)


def _unless_several(changes: Iterator[ProposedChange | None]) -> Iterator[ProposedChange | None]:
    """Return a change if it is the only one: of several it is not clear which was meant."""
    first_two = list(islice(changes, 2))
    return iter(first_two if len(first_two) == 1 else [])


def _less_text(amounts: Mapping[str, int]) -> str:
    """E.g. `ask for 2Gi of capacity memory and 4 of capacity cores`."""
    return f"ask for {' and '.join(f'{quantity_text(amount)} of capacity {name}' for name, amount in amounts.items())}"

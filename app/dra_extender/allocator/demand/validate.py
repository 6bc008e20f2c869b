"""Validation of claims as far as it needs no node, in upstream's order, and their translation into a `Demand`."""

from collections.abc import Mapping, MutableMapping, Sequence
from functools import partial
from typing import Final

from dra_extender.allocator.demand.constraints import Constraint
from dra_extender.allocator.demand.demand import (
    ALL,
    ClaimDemand,
    Demand,
    NamedClaim,
    RequestDemand,
    SearchableRequest,
    content_of,
    signature_of,
    size_of,
)
from dra_extender.allocator.demand.derived_attributes import PreparedAttribute
from dra_extender.allocator.demand.selectors import Deadline, SelectorList, SelectorVerdicts, compiled
from dra_extender.allocator.state.features import Features, why_off
from dra_extender.allocator.state.rejection import Code, Rejection
from dra_extender.cel.budget import CLAIM_COMPILE_LIMIT, Budget
from dra_extender.cel.errors import CelBudgetError, CelCompileError
from dra_extender.cel.program import Program
from dra_extender.cel.program_cache import ProgramCache
from dra_extender.cel.values.quantity import QuantityError, parse_quantity
from dra_extender.model.allocation import DeviceToleration
from dra_extender.model.device_class import DeviceClass
from dra_extender.model.resource_claim import DeviceConstraint, DeviceRequest, DeviceRequestBody

MAX_RESULTS: Final = 32
"""Devices that one claim may have."""
MAX_OPTIONS: Final = 4_096
"""Requests and alternatives that the claims of one pod may have together; one claim may have 256."""


class _InvalidRequestError(Exception):
    """A request that no node can ever serve; carries the parts of a rejection out of the nested validation."""

    def __init__(self, code: Code, detail: str, request: str = "") -> None:
        super().__init__(detail)
        self.code = code
        self.request = request


def prepare(
    claims: Sequence[NamedClaim],
    classes: Mapping[str, DeviceClass],
    programs: ProgramCache,
    features: Features,
    verdicts: SelectorVerdicts | None = None,
    budget: Budget | None = None,
    prepared: MutableMapping[int, ClaimDemand] | None = None,
) -> Demand | Rejection:
    """Validate the claims of one pod, to be allocated together, and make them ready for any number of searches.

    `verdicts` keeps selector verdicts between pods; without it they last as long as the demand.  What depends on a node (mode All,
    selectors that do not compile or fail on a device) is checked by `allocate`.  Compiling expressions is charged to `budget`;
    `programs` keeps what was compiled before the budget was spent.  The budget is checked before each further claim.  `prepared`
    collects the claims that are ready by their index, so that another call with the same claims, classes and features continues
    after a pause.

    Returns:
        The demand, or the first reason why no node can ever serve these claims as they are; SEARCH_LIMIT says that the budget
        was spent, which another call with the same claims need not meet.
    """
    options = _count_options(claims)
    if options > MAX_OPTIONS:
        detail = f"claims have {options} requests and alternatives, {MAX_OPTIONS} are looked at"
        return Rejection(code=Code.TOO_MUCH, detail=detail)
    known = SelectorVerdicts() if verdicts is None else verdicts
    ready = {} if prepared is None else prepared
    preparation = _Preparation(classes, programs, features, known, budget)
    for index in [index for index in range(len(claims)) if index not in ready]:
        label, claim = claims[index]
        if index and budget is not None and budget():
            detail = "the call has spent its budget before the claim was looked at"
            return Rejection(code=Code.SEARCH_LIMIT, claim=label, detail=detail)
        try:
            ready[index] = preparation.claim(NamedClaim(label, claim))
        except _InvalidRequestError as invalid:
            return Rejection(code=invalid.code, claim=label, request=invalid.request, detail=str(invalid))
    content = content_of(claims, classes, features)
    demands = tuple(ready[index] for index in range(len(claims)))
    return Demand(
        claims=demands,
        features=features,
        signature=signature_of(content),
        size=size_of(demands, content),
        compile_rule=partial(_compile_rule, known, programs),
        admin_access=any(option.admin for claim in demands for request in claim.requests for option in request.options),
    )


def _count_options(claims: Sequence[NamedClaim]) -> int:
    """Requests and alternatives."""
    return sum(len(each.first_available) or 1 for _, claim in claims for each in claim.spec.devices.requests or ())


def _compile_rule(
    known: SelectorVerdicts, programs: ProgramCache, expression: str, deadline: Deadline | None = None
) -> SelectorList:
    return known.selector_list((expression,), programs, deadline if isinstance(deadline, Budget) else None)


class _Preparation:
    def __init__(
        self,
        classes: Mapping[str, DeviceClass],
        programs: ProgramCache,
        features: Features,
        verdicts: SelectorVerdicts,
        budget: Budget | None,
    ) -> None:
        self._classes = classes
        self._programs = programs
        self._features = features
        self._verdicts = verdicts
        self._budget = budget
        self._label = ""
        self._owner = ""
        self._units: dict[str, int] = {}

    def claim(self, named: NamedClaim) -> ClaimDemand:
        devices = named.claim.spec.devices
        self._label = named.label
        self._owner = named.claim.metadata.namespace
        self._units = {}
        constraints: list[Constraint | None] = [self._constraint(each) for each in devices.constraints]
        applicable = [each for each in constraints if each is not None]
        requests = tuple(self._request(each, applicable) for each in devices.requests or ())
        least = sum(min(max(option.count, 0) for option in each.options) for each in requests)
        if least > MAX_RESULTS:
            raise _InvalidRequestError(
                Code.TOO_MANY_DEVICES, f"asks for {least} devices, a claim may have {MAX_RESULTS}"
            )
        if len(applicable) < len(constraints):
            raise _InvalidRequestError(
                Code.REQUEST_UNSUPPORTED, "has a constraint of a kind this version does not know"
            )
        return ClaimDemand(
            label=named.label,
            claim=named.claim,
            requests=requests,
            constraints=tuple(applicable),
            uses_all=any(option.count == ALL for each in requests for option in each.options),
        )

    def _constraint(self, constraint: DeviceConstraint) -> Constraint | None:
        attribute = constraint.match_attribute
        distinct = attribute is None
        if attribute is None:
            attribute = constraint.distinct_attribute
        if attribute is None:
            return None
        lists = self._features.list_type_attributes
        return Constraint(attribute=attribute, distinct=distinct, requests=constraint.requests, lists=lists)

    def _request(self, request: DeviceRequest, constraints: Sequence[Constraint]) -> RequestDemand:
        alternatives = request.first_available
        exact = (request.exactly,) if request.exactly is not None else ()
        if alternatives and not self._features.prioritized_list:
            needed = why_off("prioritized_list")
            raise _InvalidRequestError(Code.REQUEST_UNSUPPORTED, f"has alternatives and needs {needed}", request.name)
        if not self._features.consumable_capacity and any(
            body.capacity is not None for body in (*alternatives, *exact)
        ):
            needed = why_off("consumable_capacity")
            raise _InvalidRequestError(Code.REQUEST_UNSUPPORTED, f"asks for capacity and needs {needed}", request.name)
        if not alternatives and not exact:
            raise _InvalidRequestError(Code.REQUEST_UNSUPPORTED, "has neither exactly nor firstAvailable", request.name)
        return RequestDemand(
            name=request.name,
            options=tuple(self._option(request, body, constraints) for body in alternatives or exact),
            prioritized=bool(alternatives),
        )

    def _option(
        self, request: DeviceRequest, body: DeviceRequestBody, constraints: Sequence[Constraint]
    ) -> SearchableRequest:
        alternative = bool(request.first_available)
        name = f"{request.name}/{body.name}" if alternative else request.name
        self._check(body, name, alternative=alternative)
        device_class = self._class(body.device_class_name, name)
        verdicts, derived = self._expressions(name, device_class, body)
        count, capacity, tolerations = _count(body, name), _capacity(body, name), _tolerations(body)
        admin = bool(body.admin_access) and not alternative
        return SearchableRequest(
            name=name,
            main=request.name,
            device_class=device_class,
            selectors=verdicts,
            count=count,
            admin=admin,
            tolerations=tolerations,
            constraints=tuple(i for i, each in enumerate(constraints) if each.applies_to(request.name, name)),
            capacity=capacity,
            equivalence_key=(verdicts, count == ALL, admin, tolerations, tuple(sorted(capacity.items()))),
            derived=derived,
        )

    def _expressions(
        self, where: str, device_class: DeviceClass, body: DeviceRequestBody
    ) -> tuple[SelectorList, Mapping[str, PreparedAttribute]]:
        """The selectors, the class's first, and the derived attributes of a request, all compiled within the budget."""
        programs, budget, owner = self._programs, self._budget, self._owner
        of_class = [each.cel.expression for each in device_class.spec.selectors if each.cel is not None]
        own = [each.cel.expression for each in body.selectors if each.cel is not None]
        try:
            for expression in of_class:
                compiled(programs, expression, budget)
            selectors = self._verdicts.selector_list([*of_class, *own], programs, budget, owner)
            derived = {
                each.name: PreparedAttribute(
                    self._label,
                    where,
                    each.name,
                    each.expression,
                    compiled(programs, each.expression, budget, owner, derived=True),
                )
                for each in body.derived_attributes
            }
        except CelBudgetError as problem:
            raise _InvalidRequestError(Code.SEARCH_LIMIT, str(problem), where) from problem
        self._limit(where, [*selectors.programs[len(of_class) :], *(each.program for each in derived.values())])
        return selectors, derived

    def _limit(self, where: str, programs: Sequence[Program | CelCompileError]) -> None:
        """Refuse a claim whose expressions are too much together; each counts once."""
        self._units.update((each.expression, each.units) for each in programs if isinstance(each, Program))
        if sum(self._units.values()) > CLAIM_COMPILE_LIMIT:
            detail = f"compiling the expressions of the claim up to here takes more than {CLAIM_COMPILE_LIMIT} units"
            raise _InvalidRequestError(Code.SELECTOR_INVALID, detail, where)

    def _check(self, body: DeviceRequestBody, where: str, *, alternative: bool) -> None:
        if body.derived_attributes and not self._features.derived_attributes:
            needed = why_off("derived_attributes")
            raise _InvalidRequestError(
                Code.REQUEST_UNSUPPORTED, f"defines derived attributes and needs {needed}", where
            )
        if any(selector.cel is None for selector in body.selectors):
            raise _InvalidRequestError(Code.SELECTOR_INVALID, "has a selector without CEL expression", where)
        if body.admin_access is not None and not alternative and not self._features.admin_access:
            needed = why_off("admin_access")
            raise _InvalidRequestError(Code.REQUEST_UNSUPPORTED, f"mentions admin access and needs {needed}", where)

    def _class(self, name: str, where: str) -> DeviceClass:
        if not name:
            raise _InvalidRequestError(Code.CLASS_MISSING, "names no device class", where)
        found = self._classes.get(name)
        if found is None:
            raise _InvalidRequestError(Code.CLASS_MISSING, f"device class {name}", where)
        if any(selector.cel is None for selector in found.spec.selectors):
            raise _InvalidRequestError(
                Code.SELECTOR_INVALID, f"device class {name} has a selector without CEL expression", where
            )
        return found


def _capacity(body: DeviceRequestBody, where: str) -> Mapping[str, int]:
    requests = body.capacity.requests if body.capacity is not None else {}
    try:
        return {name: parse_quantity(text) for name, text in requests.items()}
    except QuantityError as problem:
        raise _InvalidRequestError(Code.AMOUNT_INVALID, f"asks for capacity: {problem}", where) from problem


def _count(body: DeviceRequestBody, where: str) -> int:
    match body.allocation_mode:
        case "ExactCount":
            return max(body.count, 0)
        case "All":
            return ALL
    raise _InvalidRequestError(
        Code.REQUEST_UNSUPPORTED, f"has the unknown allocation mode {body.allocation_mode!r}", where
    )


def _tolerations(body: DeviceRequestBody) -> tuple[DeviceToleration, ...]:
    """The tolerations as every API server stores them, without empty members."""
    return tuple(
        each if "" not in (each.key, each.operator, each.value, each.effect) else _without_empty(each)
        for each in body.tolerations
    )


def _without_empty(toleration: DeviceToleration) -> DeviceToleration:
    return DeviceToleration(
        key=toleration.key or None,
        operator=toleration.operator or None,
        value=toleration.value or None,
        effect=toleration.effect or None,
        toleration_seconds=toleration.toleration_seconds,
    )

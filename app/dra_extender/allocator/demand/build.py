"""Build the `Demand` of a pod from its claims; what needs no node is validated here, in upstream's order."""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from itertools import chain, islice
from typing import Final

from dra_extender.allocator.demand.alignment import (
    MOST_PREFERENCES,
    PolicyPreferences,
    match_constraints,
    preferred_constraints,
)
from dra_extender.allocator.demand.constraints import Constraint
from dra_extender.allocator.demand.demand import (
    ALL,
    ClaimDemand,
    Demand,
    NamedClaim,
    PreparedAttribute,
    RequestDemand,
    SearchableRequest,
    content_of,
    size_of,
    with_preferences,
)
from dra_extender.allocator.demand.selectors import Deadline, SelectorList, SelectorVerdicts, compiled
from dra_extender.allocator.state.features import Features, why_off
from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.cel.budget import CLAIM_COMPILE_LIMIT, Budget
from dra_extender.cel.errors import CelBudgetError
from dra_extender.cel.program import Program, ProgramCache
from dra_extender.cel.values.quantity import QuantityError, parse_quantity
from dra_extender.model.allocation import DeviceToleration
from dra_extender.model.device_class import DeviceClass
from dra_extender.model.digest import digest_of
from dra_extender.model.resource_claim import ClaimConfiguration, DeviceRequest, DeviceRequestBody

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


def build_demand(
    claims: Sequence[NamedClaim],
    classes: Mapping[str, DeviceClass],
    programs: ProgramCache,
    features: Features,
    verdicts: SelectorVerdicts | None = None,
    budget: Budget | None = None,
    prepared: MutableMapping[int, ClaimDemand] | None = None,
    preferences: PolicyPreferences = (),
) -> Demand | Rejection:
    """Validate the claims of one pod, which are allocated together, and build the demand for any number of searches.

    `verdicts` keeps selector verdicts between pods; without it they last as long as the demand.  What depends on a node (mode All,
    selectors that do not compile or fail on a device) is checked by `NodeSearch`.  Compiling expressions is charged to `budget`;
    `programs` keeps what was compiled before the budget was spent.  The budget is checked before each further claim.  `prepared`
    collects the claims that are ready by their index, so that another call with the same claims, classes and features continues
    after a pause.  `preferences` are those of the administrator's policy.

    A rejection says why no node can ever serve these claims as they are; SEARCH_LIMIT says that the budget was spent, which another
    call with the same claims need not meet.
    """
    options = sum(
        len(request.first_available) or 1 for _, claim in claims for request in claim.spec.devices.requests or ()
    )
    if options > MAX_OPTIONS:
        detail = f"claims have {options} requests and alternatives, {MAX_OPTIONS} are looked at"
        return Rejection(code=Code.TOO_MUCH, detail=detail)
    selector_verdicts = SelectorVerdicts() if verdicts is None else verdicts
    ready = {} if prepared is None else prepared
    builder = _DemandBuilder(classes, programs, features, selector_verdicts, budget, dict(preferences))
    for index in [index for index in range(len(claims)) if index not in ready]:
        label, claim = claims[index]
        if index and budget is not None and budget():
            detail = "the call has spent its budget before the claim was looked at"
            return Rejection(code=Code.SEARCH_LIMIT, claim=label, detail=detail)
        try:
            ready[index] = builder.claim(NamedClaim(label, claim))
        except _InvalidRequestError as invalid:
            return Rejection(code=invalid.code, claim=label, request=invalid.request, detail=str(invalid))

    def compile_rule(expression: str, deadline: Deadline | None) -> SelectorList:
        return selector_verdicts.selector_list(
            (expression,), programs, deadline if isinstance(deadline, Budget) else None
        )

    content = content_of(claims, classes, features, preferences)
    demands = tuple(ready[index] for index in range(len(claims)))
    demand = Demand(
        claims=demands,
        features=features,
        signature=digest_of(content),
        size=size_of(demands, content),
        compile_rule=compile_rule,
        admin_access=any(option.admin for claim in demands for request in claim.requests for option in request.options),
    )
    return with_preferences(demand)


def too_many_devices(requests: Iterable[Iterable[int]]) -> str:
    """Return a sentence about a claim whose requests need more devices than it may have; empty if it may have them.

    A request is given as the numbers of devices of its alternatives, of which the smallest counts; ALL counts as none.
    """
    least = sum(min(max(count, 0) for count in counts) for counts in requests)
    return f"asks for {least} devices, a claim may have {MAX_RESULTS}" if least > MAX_RESULTS else ""


class _DemandBuilder:
    def __init__(
        self,
        classes: Mapping[str, DeviceClass],
        programs: ProgramCache,
        features: Features,
        verdicts: SelectorVerdicts,
        budget: Budget | None,
        by_policy: Mapping[str, tuple[str, ...]],
    ) -> None:
        self._by_policy = by_policy
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
        constraints: list[Constraint] = []
        for listed in devices.constraints:
            attribute = listed.match_attribute if listed.match_attribute is not None else listed.distinct_attribute
            if attribute is not None:
                distinct = listed.match_attribute is None
                lists = self._features.list_type_attributes
                constraints.append(
                    Constraint(attribute=attribute, distinct=distinct, requests=listed.requests, lists=lists)
                )
        requests = tuple(self._request(request, constraints) for request in devices.requests or ())
        too_many = too_many_devices([option.count for option in request.options] for request in requests)
        if too_many:
            raise _InvalidRequestError(Code.TOO_MANY_DEVICES, too_many)
        if len(constraints) < len(devices.constraints):
            raise _InvalidRequestError(
                Code.REQUEST_UNSUPPORTED, "has a constraint of a kind this version does not know"
            )
        return ClaimDemand(
            label=named.label,
            claim=named.claim,
            requests=requests,
            constraints=tuple(constraints),
            uses_all=any(option.count == ALL for request in requests for option in request.options),
            preferences=tuple(islice(self._preferences(devices.config, requests), MOST_PREFERENCES)),
        )

    def _preferences(
        self, config: Sequence[ClaimConfiguration], requests: Sequence[RequestDemand]
    ) -> Iterator[Constraint]:
        """Yield the preferences of the claim, of its classes, and of the policy, that may be about several devices."""
        lists = self._features.list_type_attributes
        options = [option for request in requests for option in request.options]
        names = {option.device_class.name: option.device_class for option in options}
        of_class = {
            name: tuple(option.name for option in options if option.device_class.name == name) for name in names
        }
        constraints = chain(
            *(
                preferred_constraints(configuration.opaque, configuration.requests, lists=lists)
                for configuration in config
            ),
            *(
                preferred_constraints(configuration.opaque, of_class[name], lists=lists)
                for name, device_class in names.items()
                for configuration in device_class.spec.config
            ),
            *(match_constraints(self._by_policy.get(name, ()), of_class[name], lists=lists) for name in names),
        )
        for constraint in constraints:
            counts = (
                max(
                    (option.count for option in request.options if constraint.applies_to(option.main, option.name)),
                    default=0,
                )
                for request in requests
                if not any(option.count == ALL for option in request.options)
            )
            if sum(counts) > 1:
                yield constraint

    def _request(self, request: DeviceRequest, constraints: Sequence[Constraint]) -> RequestDemand:
        options = request.options
        if request.first_available:
            self._require("prioritized_list", "has alternatives", request.name)
        if any(body.capacity is not None for _, body in options):
            self._require("consumable_capacity", "asks for capacity", request.name)
        if not options:
            raise _InvalidRequestError(Code.REQUEST_UNSUPPORTED, "has neither exactly nor firstAvailable", request.name)
        return RequestDemand(
            name=request.name,
            options=tuple(self._option(request, name, body, constraints) for name, body in options),
            prioritized=bool(request.first_available),
        )

    def _require(self, feature: str, use: str, request_name: str) -> None:
        if not getattr(self._features, feature):
            raise _InvalidRequestError(Code.REQUEST_UNSUPPORTED, f"{use} and needs {why_off(feature)}", request_name)

    def _option(
        self, request: DeviceRequest, name: str, body: DeviceRequestBody, constraints: Sequence[Constraint]
    ) -> SearchableRequest:
        alternative = bool(request.first_available)
        if body.derived_attributes:
            self._require("derived_attributes", "defines derived attributes", name)
        if any(selector.cel is None for selector in body.selectors):
            raise _InvalidRequestError(Code.SELECTOR_INVALID, "has a selector without CEL expression", name)
        if body.admin_access is not None and not alternative:
            self._require("admin_access", "mentions admin access", name)
        device_class = self._class(body.device_class_name, name)
        selectors, derived = self._expressions(name, device_class, body)
        if body.allocation_mode not in ("ExactCount", "All"):
            mode = f"has the unknown allocation mode {body.allocation_mode!r}"
            raise _InvalidRequestError(Code.REQUEST_UNSUPPORTED, mode, name)
        count = ALL if body.allocation_mode == "All" else max(body.count, 0)
        try:
            amounts = body.capacity.requests if body.capacity is not None else {}
            capacity = {capacity_name: parse_quantity(text) for capacity_name, text in amounts.items()}
        except QuantityError as problem:
            raise _InvalidRequestError(Code.AMOUNT_INVALID, f"asks for capacity: {problem}", name) from problem
        tolerations = tuple(map(_without_empty, body.tolerations))
        admin = bool(body.admin_access) and not alternative
        return SearchableRequest(
            name=name,
            main=request.name,
            device_class=device_class,
            selectors=selectors,
            count=count,
            admin=admin,
            tolerations=tolerations,
            constraints=tuple(
                index for index, constraint in enumerate(constraints) if constraint.applies_to(request.name, name)
            ),
            capacity=capacity,
            equivalence_key=(selectors, count == ALL, admin, tolerations, tuple(sorted(capacity.items()))),
            derived=derived,
        )

    def _class(self, name: str, request_name: str) -> DeviceClass:
        if not name:
            raise _InvalidRequestError(Code.CLASS_MISSING, "names no device class", request_name)
        device_class = self._classes.get(name)
        if device_class is None:
            raise _InvalidRequestError(Code.CLASS_MISSING, f"device class {name}", request_name)
        if any(selector.cel is None for selector in device_class.spec.selectors):
            raise _InvalidRequestError(
                Code.SELECTOR_INVALID, f"device class {name} has a selector without CEL expression", request_name
            )
        return device_class

    def _expressions(
        self, request_name: str, device_class: DeviceClass, body: DeviceRequestBody
    ) -> tuple[SelectorList, Mapping[str, PreparedAttribute]]:
        """Compile the selectors, the class's first, and the derived attributes of a request within the budget.

        A claim whose expressions are too much together is refused; each expression counts once.
        """
        programs, budget, owner = self._programs, self._budget, self._owner
        of_class = [selector.cel.expression for selector in device_class.spec.selectors if selector.cel is not None]
        own = [selector.cel.expression for selector in body.selectors if selector.cel is not None]
        try:
            for expression in of_class:
                compiled(programs, expression, budget)
            selectors = self._verdicts.selector_list([*of_class, *own], programs, budget, owner)
            derived = {
                attribute.name: PreparedAttribute(
                    self._label,
                    request_name,
                    attribute.name,
                    attribute.expression,
                    compiled(programs, attribute.expression, budget, owner, derived=True),
                )
                for attribute in body.derived_attributes
            }
        except CelBudgetError as problem:
            raise _InvalidRequestError(Code.SEARCH_LIMIT, str(problem), request_name) from problem
        for program in (*selectors.programs[len(of_class) :], *(attribute.program for attribute in derived.values())):
            if isinstance(program, Program):
                self._units[program.expression] = program.units
        if sum(self._units.values()) > CLAIM_COMPILE_LIMIT:
            detail = f"compiling the expressions of the claim up to here takes more than {CLAIM_COMPILE_LIMIT} units"
            raise _InvalidRequestError(Code.SELECTOR_INVALID, detail, request_name)
        return selectors, derived


def _without_empty(toleration: DeviceToleration) -> DeviceToleration:
    """Return the toleration as every API server stores it, without empty members."""
    if "" not in (toleration.key, toleration.operator, toleration.value, toleration.effect):
        return toleration
    return DeviceToleration(
        key=toleration.key or None,
        operator=toleration.operator or None,
        value=toleration.value or None,
        effect=toleration.effect or None,
        toleration_seconds=toleration.toleration_seconds,
    )

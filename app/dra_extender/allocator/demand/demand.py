"""Demand of a pod: all that its claims ask for, valid on every node and ready to be searched."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import msgspec

from dra_extender.allocator.demand.alignment import PolicyPreferences
from dra_extender.allocator.demand.constraints import Constraint
from dra_extender.allocator.demand.selectors import Deadline, SelectorList, activation_of, evaluation_limits
from dra_extender.allocator.state.features import Features
from dra_extender.allocator.state.reasons import Code, Rejection, SearchEndedError, time_is_up
from dra_extender.cel.analysis.attributes import ANY_DOMAIN
from dra_extender.cel.device import Attribute
from dra_extender.cel.errors import CelBudgetError, CelCompileError, CelDeadlineError, CelRuntimeError, quoted
from dra_extender.cel.program import Program
from dra_extender.model.allocation import DeviceToleration
from dra_extender.model.device_class import DeviceClass
from dra_extender.model.resource_claim import ResourceClaim
from dra_extender.model.resource_slice import ResourceSlice

_CONTENT_FACTOR: Final = 2
_OPTION_BYTES: Final = 2_000
_LONGEST_READS: Final = 16 * 2**10
ALL: int = -1
"""Count of a request with mode All."""


class NamedClaim(NamedTuple):
    """A claim, and the pod's name for it (`spec.resourceClaims[].name`), which messages use."""

    label: str
    claim: ResourceClaim


@dataclass(frozen=True, slots=True, eq=False)
class PreparedAttribute:
    """A derived attribute (DRADerivedAttributes): CEL over a device, only for constraints.

    It shadows what devices publish under its name.
    """

    claim: str
    request: str
    name: str
    expression: str
    program: Program | CelCompileError

    def evaluate(self, published: ResourceSlice, position: int, deadline: Deadline | None) -> Attribute:
        """Return the value for a device of a slice; without one, the search ends."""
        if isinstance(self.program, CelCompileError):
            raise SearchEndedError(self.problem())
        device = published.devices[position]
        try:
            return self.program.attribute(activation_of(published, device), **evaluation_limits(deadline))
        except (CelBudgetError, CelDeadlineError) as problem:
            raise time_is_up("while a derived attribute was computed") from problem
        except CelRuntimeError as problem:
            where = f"{published.driver}/{published.pool}/{device.name}"
            message = f"{self.name}: {quoted(self.expression)} on {where}: {problem}"
            raise SearchEndedError(self._rejection(Code.ATTRIBUTE_FAILED, message, device.name)) from problem

    def problem(self) -> Rejection:
        """Return the rejection for an expression that does not compile."""
        return self._rejection(Code.ATTRIBUTE_INVALID, f"{self.name}: {quoted(self.expression)}: {self.program}")

    def _rejection(self, code: Code, detail: str, device: str = "") -> Rejection:
        return Rejection(code=code, claim=self.claim, request=self.request, device=device, detail=detail)


@dataclass(frozen=True, slots=True, eq=False)
class SearchableRequest:
    """One request, or one alternative of a request, ready to be searched.

    `name` is its name in results ("gpu", or "gpu/big" for an alternative), `main` is the name of the request.  `count` is the
    number of devices, or ALL.  `constraints` are the indexes of the claim's constraints that apply.  `capacity` has the amounts
    asked of single capacities, in nano-units; `derived` the derived attributes by name, for constraints.  Requests with equal
    `equivalence_key` have the same eligible devices; None equals no other.
    """

    name: str
    main: str
    device_class: DeviceClass
    selectors: SelectorList
    count: int
    admin: bool
    tolerations: tuple[DeviceToleration, ...]
    constraints: tuple[int, ...]
    capacity: Mapping[str, int] = field(default_factory=dict)
    derived: Mapping[str, PreparedAttribute] = field(default_factory=dict)
    equivalence_key: Hashable = None

    @property
    def text(self) -> str:
        """E.g. `2 x gpu.example.com`."""
        return f"{'all' if self.count == ALL else self.count} x {self.device_class.name}"


@dataclass(frozen=True, slots=True, eq=False)
class RequestDemand:
    """A request: one `SearchableRequest` for `exactly`, several in order of preference for `firstAvailable`."""

    name: str
    options: tuple[SearchableRequest, ...]
    prioritized: bool


@dataclass(frozen=True, slots=True, eq=False)
class ClaimDemand:
    """A validated claim; `preferences` are constraints that its devices meet where they can, the most important first."""

    label: str
    claim: ResourceClaim
    requests: tuple[RequestDemand, ...]
    constraints: tuple[Constraint, ...]
    uses_all: bool
    preferences: tuple[Constraint, ...] = ()

    def constrained_by(self, preferences: Sequence[Constraint]) -> "ClaimDemand":
        """Return the claim with these of its preferences as constraints."""
        first = len(self.constraints)

        def option_with(option: SearchableRequest) -> SearchableRequest:
            added = (
                first + index
                for index, preference in enumerate(preferences)
                if preference.applies_to(option.main, option.name)
            )
            return replace(option, constraints=(*option.constraints, *added))

        requests = tuple(
            replace(request, options=tuple(map(option_with, request.options))) for request in self.requests
        )
        return replace(self, requests=requests, constraints=(*self.constraints, *preferences))


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """All that a pod asks for, valid on every node.  Demands with equal `signature` get equal answers on one node and usage.

    `compile_rule` compiles a `compatibleOnlyWith` expression and keeps its verdicts.  `size` estimates the bytes that the demand
    keeps alive, including programs and claims that it shares with other demands.  `admin_access`: some request has admin access.
    `preferred`: the same with preferences of the claims as constraints, those with most of them first.
    """

    claims: tuple[ClaimDemand, ...]
    features: Features
    signature: bytes
    compile_rule: Callable[[str, Deadline | None], SelectorList]
    size: int = 0
    admin_access: bool = False
    preferred: tuple["Demand", ...] = ()

    @property
    def constrained(self) -> bool:
        """Return whether any claim has constraints."""
        return any(claim.constraints for claim in self.claims)

    def option(self, claim_label: str, name: str) -> SearchableRequest | None:
        for claim in self.claims:
            for request in claim.requests:
                for option in request.options:
                    if (claim.label, option.name) == (claim_label, name):
                        return option
        return None

    def alternatives(self, claim_label: str, name: str) -> Sequence[SearchableRequest]:
        """Return all alternatives of the request to which this name belongs; those of all requests if it belongs to none."""
        requests = [(claim.label, request) for claim in self.claims for request in claim.requests]
        named = [
            request.options
            for label, request in requests
            if label == claim_label and any(option.name == name for option in request.options)
        ]
        return [option for options in named or [request.options for _, request in requests] for option in options]


def with_preferences(demand: Demand) -> Demand:
    """Return the demand with what is searched first: all preferences as constraints, then fewer, the most important ones last."""
    longest = max((len(claim.preferences) for claim in demand.claims), default=0)
    preferred = (
        replace(demand, claims=tuple(claim.constrained_by(claim.preferences[:count]) for claim in demand.claims))
        for count in range(longest, 0, -1)
    )
    return replace(demand, preferred=tuple(preferred)) if longest else demand


def content_of(
    claims: Sequence[NamedClaim],
    classes: Mapping[str, DeviceClass],
    features: Features,
    preferences: PolicyPreferences,
) -> bytes:
    """Return all that decides an answer: claim specs, the classes they name, the pod's names for claims, features, preferences."""
    named = {option.device_class_name for claim in claims for _, option in claim.claim.spec.options}
    class_contents = [
        (name, classes[name].spec.selectors, classes[name].spec.config) for name in sorted(named & set(classes))
    ]
    by_policy = [preference for preference in preferences if preference[0] in named]
    specs = [(claim.label, claim.claim.spec.devices) for claim in claims]
    return msgspec.json.encode([specs, class_contents, features, by_policy])


def size_of(claims: Sequence[ClaimDemand], content: bytes) -> int:
    """Return an estimate of a demand's bytes."""
    options = [option for claim in claims for request in claim.requests for option in request.options]
    lists = {id(option.selectors): option.selectors for option in options}
    derived_sizes = [
        derived.program.size
        for option in options
        for derived in option.derived.values()
        if isinstance(derived.program, Program)
    ]
    programs = sum(selectors.own_size for selectors in lists.values()) + sum(derived_sizes)
    return _CONTENT_FACTOR * len(content) + _OPTION_BYTES * len(options) + programs


Reads = frozenset[str]
"""Attributes as domain/name; the domain `*` stands for the driver of the device."""


def reads_of(demand: Demand) -> Reads | None:
    """Return the attributes that selectors, derived attributes and constraints of a demand may read.

    None if they may read any, or so many that their names are too long to be kept.
    """
    options = [option for claim in demand.claims for request in claim.requests for option in request.options]
    compared = [
        constraint.attribute for claim in demand.claims for constraint in (*claim.constraints, *claim.preferences)
    ]
    read = reads_of_requests(options)
    if read is None:
        return None
    read = read.union(compared)
    return read if sum(map(len, read)) <= _LONGEST_READS else None


def reads_of_requests(options: Iterable[SearchableRequest]) -> Reads | None:
    """Return the attributes that selectors and derived attributes of requests may read; None if they may read any."""
    return reads_of_programs(
        program
        for option in options
        for program in (*option.selectors.programs, *(derived.program for derived in option.derived.values()))
    )


def reads_of_programs(programs: Iterable[object]) -> Reads | None:
    """Return the attributes that these expressions may read; None if they may read any."""
    names: set[str] = set()
    for program in programs:
        # An expression that does not compile reads nothing: it ends the search.
        if isinstance(program, Program):
            if program.reads is None:
                return None
            names |= program.reads
    return frozenset(names)


def is_read(reads: Reads, driver: str, attribute: str) -> bool:
    """Return whether an attribute, as a device of this driver publishes it, is among these."""
    domain, slash, name = attribute.rpartition("/")
    if not slash:
        domain = driver
    own = domain == driver and f"{ANY_DOMAIN}/{name}" in reads
    return own or attribute in reads or f"{domain}/{name}" in reads

"""Whether allocations are what their claims ask for."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from dra_extender.allocator.demand.build import build_demand
from dra_extender.allocator.demand.demand import ALL, Demand, NamedClaim, SearchableRequest
from dra_extender.allocator.demand.selectors import SelectionTimeoutError, SelectorError, SelectorVerdicts
from dra_extender.allocator.pools.pools import reaches
from dra_extender.allocator.rules.capacity import CapacityError, CapacityMismatch, amount_text, needs
from dra_extender.allocator.rules.compatible_only_with import SlicePosition
from dra_extender.allocator.state.features import Features
from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.cel.budget import Budget
from dra_extender.cel.explain.values import shortened
from dra_extender.cel.program import ProgramCache
from dra_extender.cel.values.quantity import QuantityError, parse_quantity
from dra_extender.inspection.audit.findings import AuditFinding, Check, finding
from dra_extender.inspection.audit.pools import claims_text
from dra_extender.inspection.audit.published import PublishedDevices, is_for
from dra_extender.ledger.claim_record import ClaimRecord, SpecNotKeptError
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import AllocationResult, DeviceResult, named_nodes
from dra_extender.model.allocation_snapshot import allocated_at
from dra_extender.model.api_json import ModelError, Value
from dra_extender.model.device_class import DeviceClass
from dra_extender.model.metadata import seconds_of
from dra_extender.model.resource_claim import DeviceRequestBody
from dra_extender.model.resource_slice import ResourceSlice

_LONGEST_REASON: Final = 1_000
SELECTORS_TOO_LONG: Final = "evaluating their selectors takes longer than an audit may"
_COMPARING: Final = (Check.REQUEST_NOT_MET, Check.DEVICE_MISMATCH, Check.DEVICE_DRIFT)


class UnjudgedCheck(Value, frozen=True):
    """Checks that could not be made, wholly or for some objects, and why."""

    checks: tuple[Check, ...]
    reason: str


class UnjudgedClaims:
    """Collects allocated claims that were not compared with their devices, or not with all of them, by reason."""

    def __init__(self) -> None:
        self._claims: dict[tuple[str, Check], dict[str, None]] = {}

    def note(self, claim: str, reason: str, first: Check) -> None:
        """Note a claim, and the first check that it could not have: of its requests, or only of its selectors."""
        self._claims.setdefault((shortened(reason, _LONGEST_REASON), first), {})[claim] = None

    @property
    def reasons(self) -> Mapping[str, int]:
        """Return why claims were not compared, each reason with the number of its claims."""
        numbers: Counter[str] = Counter()
        for (reason, _), claims in self._claims.items():
            numbers[reason] += len(claims)
        return numbers

    @property
    def claims(self) -> Collection[str]:
        return set().union(*self._claims.values())

    def checks(self, missing: Collection[str] = ()) -> Iterator[UnjudgedCheck]:
        """Yield the checks by reason, except reasons that follow from a plural kind that is `missing`."""
        absent = frozenset(missing)
        for (reason, first), claims in self._claims.items():
            if not first.kinds & absent:
                checks = tuple(check for check in _COMPARING if not check.kinds & absent)
                noun = "claim" if len(claims) == 1 else "claims"
                yield UnjudgedCheck(checks=checks, reason=f"{noun} {claims_text(claims)}: {reason}")


_ALL_MODE: Final = "All"
_MOST_SPECS: Final = 1_000


class AskedDevices(NamedTuple):
    """What claims with one spec ask for: `options` by name of their results; `demand` is a rejection if it cannot be prepared."""

    options: Mapping[str, DeviceRequestBody]
    requests: tuple[str, ...]
    demand: Demand | Rejection


class RequestAudit:
    """Compares allocations with what their claims ask for.

    `budget` limits what one audit spends on expressions of tenants.  `unjudged` collects the claims that could not be compared.
    """

    def __init__(self, ledger: Ledger, devices: PublishedDevices, budget: Budget, unjudged: UnjudgedClaims) -> None:
        self._ledger = ledger
        self._devices = devices
        self._programs = ProgramCache()
        self._verdicts = SelectorVerdicts()
        self._asked: dict[bytes, AskedDevices] = {}
        self._budget = budget
        self._unjudged = unjudged

    def findings(self, record: ClaimRecord) -> Iterator[AuditFinding]:
        """Find where the stored allocation of the claim is not what the claim asks for."""
        allocation = record.claim.status.allocation
        requested = None if allocation is None or record.unreadable else self._asked_by(record)
        if allocation is None or requested is None:
            return
        about = f"claim {record.claim.metadata.full_name}"
        for detail in _deviations(requested, allocation.devices.results):
            yield finding(Check.REQUEST_NOT_MET, about, detail)
        if isinstance(requested.demand, Rejection):
            reason = self._reason(requested, requested.demand)
            self._unjudged.note(record.claim.metadata.full_name, reason, Check.DEVICE_MISMATCH)
            return
        for result in allocation.devices.results:
            option = requested.demand.option("", result.request)
            if option is not None:
                yield from self._device(record, option, result, about)
        for option in (option for request in requested.demand.claims[0].requests for option in request.options):
            if option.count == ALL and any(result.request == option.name for result in allocation.devices.results):
                yield from self._left_out(record, allocation, option, about)

    def _asked_by(self, record: ClaimRecord) -> AskedDevices | None:
        key = record.spec_digest or record.claim.metadata.uid.encode()
        cached = self._asked.get(key)
        if cached is None:
            try:
                claim = record.claim_with_spec
            except ModelError as problem:
                self._unjudged.note(record.claim.metadata.full_name, str(problem), Check.REQUEST_NOT_MET)
                return None
            except SpecNotKeptError:
                reason = "what they ask for is not kept in memory"
                self._unjudged.note(record.claim.metadata.full_name, reason, Check.REQUEST_NOT_MET)
                return None
            demand = build_demand(
                (NamedClaim("", claim),),
                self._ledger.classes,
                self._programs,
                Features(),
                self._verdicts,
                self._budget,
            )
            options = dict(claim.spec.options)
            requests = tuple(request.name for request in claim.spec.devices.requests or ())
            cached = AskedDevices(options, requests, demand)
            if len(self._asked) >= _MOST_SPECS:
                self._asked.clear()
            self._asked[key] = cached
        return cached

    def _reason(self, requested: AskedDevices, rejection: Rejection) -> str:
        """Return why no demand can be prepared; claims with one reason have one text."""
        if rejection.code is Code.SEARCH_LIMIT:
            return SELECTORS_TOO_LONG
        classes = (option.device_class_name for option in requested.options.values())
        gone = next((name for name in classes if name not in self._ledger.classes), "")
        if rejection.code is Code.CLASS_MISSING and gone:
            return f"device class {gone} does not exist"
        return f"{rejection.code}: {rejection.detail}" if rejection.detail else str(rejection.code)

    def _device(
        self, record: ClaimRecord, option: SearchableRequest, result: DeviceResult, about: str
    ) -> Iterator[AuditFinding]:
        candidates = self._devices.named(result.device_id)
        problems = [self._mismatch(record, option, result, candidate) for candidate in candidates]
        if not problems or not all(problems):
            return
        certain = all(_is_as_old(record, option.device_class, candidate.published) for candidate in candidates)
        check = Check.DEVICE_MISMATCH if certain else Check.DEVICE_DRIFT
        since = "" if certain else "; its slice or class may have changed since"
        device = "/".join(result.device_id)
        yield finding(check, about, f"device {device} does not match request {result.request}: {problems[0]}{since}")

    def _mismatch(
        self, record: ClaimRecord, option: SearchableRequest, result: DeviceResult, candidate: SlicePosition
    ) -> str:
        """Say why the device is none that the request means; empty if it is one, or if the budget is spent."""
        problem = self._selector_problem(record, option, candidate)
        if problem or problem is None or result.share_id is None:
            return problem or ""
        return _consumption_mismatch(option, result, candidate)

    def _selector_problem(self, record: ClaimRecord, option: SearchableRequest, device: SlicePosition) -> str | None:
        """Say which selector is not true of the device; None if the budget is spent."""
        try:
            row = None if option.selectors.is_empty else option.selectors.row(device.published)
            matches = row is None or row.matches(device.published, device.position, self._budget)
        except SelectorError as problem:
            return str(problem)
        except SelectionTimeoutError:
            self._unjudged.note(record.claim.metadata.full_name, SELECTORS_TOO_LONG, Check.DEVICE_MISMATCH)
            return None
        return "" if matches else "a selector is false"

    def _left_out(
        self, record: ClaimRecord, allocation: AllocationResult, option: SearchableRequest, about: str
    ) -> Iterator[AuditFinding]:
        """Find devices on the node of the allocation that mode All leaves out; slices that changed since do not count."""
        named = named_nodes(allocation)
        node = self._ledger.nodes.get(min(named)) if named is not None and len(named) == 1 else None
        if node is None:
            return
        allocated = {result.device_id for result in allocation.devices.results}
        slices = self._ledger.slices
        for published in (*slices.local(node.name), *slices.near(node)):
            if _is_as_old(record, option.device_class, published) and is_for(published, node):
                for position, device in enumerate(published.devices):
                    device_id = (*published.pool_id, device.name)
                    try:
                        offered = not published.per_device_node_selection or reaches(device, node)
                    except ModelError:
                        offered = False
                    candidate = SlicePosition(published, position)
                    if (
                        offered
                        and device_id not in allocated
                        and self._selector_problem(record, option, candidate) == ""
                    ):
                        detail = f"request {option.name} asks for all devices and has not {'/'.join(device_id)}"
                        yield finding(Check.REQUEST_NOT_MET, about, detail)


def _deviations(requested: AskedDevices, results: Sequence[DeviceResult]) -> Iterator[str]:
    """Say which results no request asks for, and which requests have other numbers of devices than they ask for."""
    for result in results:
        option = requested.options.get(result.request)
        if option is not None and bool(option.admin_access) != bool(result.admin_access):
            access = "with" if option.admin_access else "without"
            yield f"request {result.request} asks for devices {access} admin access, {result.device} is allocated otherwise"
    numbers = Counter(result.request for result in results)
    for name in sorted(numbers.keys() - requested.options.keys()):
        yield f"a device is allocated for request {name}, which the claim does not have"
    for request in requested.requests:
        names = [name for name in requested.options if name.partition("/")[0] == request and name in numbers]
        if not names:
            yield f"request {request} has no device"
        elif len(names) > 1:
            yield f"request {request} has devices of several alternatives: {', '.join(names)}"
        for option, name in ((requested.options[name], name) for name in names):
            if option.allocation_mode != _ALL_MODE and numbers[name] != (option.count or 1):
                yield f"request {name} asks for {option.count or 1} devices and has {numbers[name]}"


def _consumption_mismatch(option: SearchableRequest, result: DeviceResult, candidate: SlicePosition) -> str:
    """Say where the share takes another amount than the request and the request policy of the device give."""
    capacity = candidate.device.capacity
    try:
        amounts = needs(option.capacity, capacity, fractional=True)
        consumed = {name: parse_quantity(text) for name, text in (result.consumed_capacity or {}).items()}
    except (CapacityError, QuantityError) as problem:
        return str(problem)
    if isinstance(amounts, CapacityMismatch):
        return f"it {amounts.reason}"
    for (name, published), amount in zip(capacity, amounts, strict=True):
        if consumed.get(name, 0) != amount:
            share, expected = (amount_text(quantity, published.text) for quantity in (consumed.get(name, 0), amount))
            return f"its share takes {share} of {name}, the request gives {expected}"
    return ""


def _is_as_old(record: ClaimRecord, device_class: DeviceClass, published: ResourceSlice) -> bool:
    """Return whether slice and class are known not to have changed since the claim was allocated."""
    allocated = seconds_of(allocated_at(record.claim) or record.claim.metadata.creation_timestamp)
    metadata = device_class.metadata
    class_since = seconds_of(metadata.creation_timestamp) if metadata.generation == 1 else None
    slice_since = seconds_of(published.unchanged_since)
    if allocated is None or class_since is None or slice_since is None:
        return False
    return max(class_since, slice_since) < allocated

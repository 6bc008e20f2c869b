"""The smallest changes after which a waiting pod fits; each is tried with the service's own rules before it is named."""

import copy
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from itertools import chain, combinations
from typing import Any, Final, NamedTuple

import msgspec

from dra_extender.allocator.demand.demand import Demand, SearchableRequest
from dra_extender.allocator.demand.selectors import activation_of
from dra_extender.allocator.explain.messages import taint_text
from dra_extender.allocator.state.rejection import Code, Rejection
from dra_extender.cel.explain.evaluation import ExplainableExpression
from dra_extender.cel.explain.relaxation import relaxed
from dra_extender.cel.program import Program
from dra_extender.inspection.cluster_view import ClusterView, ObjectChange, TrialView
from dra_extender.inspection.why.report import DEVICES_ONLY, HolderShare, NearestDevice, NextStep
from dra_extender.ledger.state.claim_record import ClaimRecord
from dra_extender.model.device import Device
from dra_extender.model.pod import Pod
from dra_extender.model.resource_slice import ResourceSlice
from dra_extender.scheduling.claims.lookup import find_claims

_MOST_TRIALS: Final = 16
_MOST_NAMED: Final = 3
_MOST_ENDED: Final = 6
_BLOCKING: Final = ("NoSchedule", "NoExecute")
_OF_TRIAL: Final = "-trial"

Json = dict[str, Any]


class _Edit(NamedTuple):
    """What a person may do, and the objects as they are then."""

    text: str
    changes: tuple[ObjectChange, ...]


class NextSteps:
    """Tries what would help one pod."""

    def __init__(self, view: ClusterView, pod: Pod) -> None:
        self._view = view
        self._pod = pod
        self._trial = TrialView(view)
        self._left = _MOST_TRIALS

    def for_device(
        self, rejection: Rejection, nearest: NearestDevice | None, demand: Demand | None, nodes: Sequence[str]
    ) -> NextStep | None:
        """The first change that makes the pod fit on some of these nodes; None if none was found."""
        wanted = None if demand is None else demand.option(rejection.claim, rejection.request)
        edits = chain(
            self._for_claim(rejection, wanted),
            () if nearest is None else self._for_nearest(rejection, nearest, wanted),
        )
        for edit in edits:
            if self._left <= 0:
                return None
            self._left -= 1
            fitting = self._fitting(edit, nodes)
            if fitting:
                return NextStep(text=edit.text, nodes=fitting[:_MOST_NAMED], verified=DEVICES_ONLY)
        return None

    def _fitting(self, edit: _Edit, nodes: Sequence[str]) -> tuple[str, ...]:
        with self._trial.changed(edit.changes):
            return tuple(self._view.try_on(self._pod, nodes).fits)

    def _for_claim(self, rejection: Rejection, wanted: SearchableRequest | None) -> Iterator[_Edit]:
        """Changes that follow from the reason alone."""
        record = self._record(rejection.claim)
        if record is None:
            return
        if rejection.code is Code.CLASS_MISSING:
            for missing in _classes(record, rejection.request):
                for name in get_close_matches(missing, list(self._view.ledger.classes)):
                    yield self._edited(record, rejection.request, f"use the DeviceClass {name}", _with_class(name))
        elif rejection.code is Code.COMBINATION and wanted is not None:
            for count in range(wanted.count - 1, 0, -1):
                text = f"ask for {count} {'device' if count == 1 else 'devices'}"
                yield self._edited(record, rejection.request, text, _with_count(count))

    def _for_nearest(
        self, rejection: Rejection, nearest: NearestDevice, wanted: SearchableRequest | None
    ) -> Iterator[_Edit]:
        """Changes that follow from what keeps the nearest device away."""
        record, published = self._record(rejection.claim), self._published(nearest)
        match rejection.code:
            case Code.NO_MATCH if record is not None and wanted is not None and published is not None:
                yield from self._other_selectors(record, rejection.request, wanted, *published)
            case Code.TAINTED if record is not None and published is not None:
                taints = [each for each in published[1].taints if each.effect in _BLOCKING]
                texts = ", ".join(map(taint_text, taints))
                yield self._edited(record, rejection.request, f"tolerate {texts}", _with_tolerations(taints))
            case Code.IN_USE | Code.COUNTERS | Code.CAPACITY | Code.GROUPS:
                yield from self._ended(nearest.holders)

    def _ended(self, holders: Sequence[HolderShare]) -> Iterator[_Edit]:
        """Ends of the claims that are in the way: as few as possible, of these the ones that free least."""
        by_claim = {each.holder.claim: each for each in holders if each.holder.consumers}
        least_first = sorted(by_claim.values(), key=lambda each: sum(amount for _, amount in each.counters))
        for count in range(1, min(len(least_first), _MOST_ENDED) + 1):
            for chosen in combinations(least_first[:_MOST_ENDED], count):
                changes = tuple(self._released(each.holder.claim) for each in chosen)
                names = dict.fromkeys(name for each in chosen for name in each.holder.consumers)
                if all(change is not None for change in changes):
                    yield _Edit(f"end {', '.join(names)}", tuple(each for each in changes if each is not None))

    def _released(self, claim: str) -> ObjectChange | None:
        namespace, _, name = claim.partition("/")
        record = self._view.ledger.claims.by_key(namespace, name)
        if record is None or not record.raw:
            return None
        before = msgspec.json.decode(record.raw)
        after = {**before, "status": {}}
        return ObjectChange("resourceclaims", before, after)

    def _other_selectors(
        self, record: ClaimRecord, request: str, wanted: SearchableRequest, published: ResourceSlice, device: Device
    ) -> Iterator[_Edit]:
        """The request's own selectors with the values of the device; a class's selectors are the administrator's."""
        activation = activation_of(published, device)
        edits: dict[str, str] = {}
        conditions: list[str] = []
        own = len(wanted.device_class.spec.selectors)
        for index, program in enumerate(wanted.selectors.programs):
            if not isinstance(program, Program):
                return
            if program.matches(activation):
                continue
            found = (
                None if index < own else relaxed(ExplainableExpression(program.expression, program.emulate), activation)
            )
            if found is None:
                return
            edits[program.expression] = found.expression
            conditions += found.conditions
        if edits:
            yield self._edited(record, request, f"ask for {' and '.join(conditions)}", _with_expressions(edits))

    def _edited(self, record: ClaimRecord, request: str, text: str, edit: Callable[[Json], None]) -> _Edit:
        """The claim with another request, as a claim of its own: the spec of a claim cannot be changed."""
        before = msgspec.json.decode(record.raw)
        after = copy.deepcopy(before)
        after["metadata"]["uid"] += _OF_TRIAL
        for body in _bodies(after, request):
            edit(body)
        return _Edit(text, (ObjectChange("resourceclaims", before, after),))

    def _record(self, label: str) -> ClaimRecord | None:
        found = find_claims(self._pod, self._view.ledger)
        if isinstance(found, Rejection):
            return None
        return next((each.record for each in found if each.label == label and each.record.raw), None)

    def _published(self, nearest: NearestDevice) -> tuple[ResourceSlice, Device] | None:
        driver, pool, name = nearest.device.split("/")
        for published in self._view.ledger.slices.of_pool((driver, pool)):
            for device in published.devices:
                if device.name == name:
                    return published, device
        return None


def _classes(record: ClaimRecord, request: str) -> Iterator[str]:
    for body in _bodies(msgspec.json.decode(record.raw), request):
        yield body.get("deviceClassName", "")


def _bodies(claim: Json, request: str) -> Iterator[Json]:
    """What a claim asks for under the name of a request, or of one of its alternatives."""
    main, _, alternative = request.partition("/")
    for each in claim["spec"]["devices"].get("requests") or ():
        if each.get("name") != main:
            continue
        if each.get("exactly"):
            yield each["exactly"]
        for option in each.get("firstAvailable") or ():
            if not alternative or option.get("name") == alternative:
                yield option


def _with_class(name: str) -> Callable[[Json], None]:
    def edit(body: Json) -> None:
        body["deviceClassName"] = name

    return edit


def _with_count(count: int) -> Callable[[Json], None]:
    def edit(body: Json) -> None:
        body["count"] = count

    return edit


def _with_tolerations(taints: Sequence[Any]) -> Callable[[Json], None]:
    def edit(body: Json) -> None:
        added = [{"key": each.key, "operator": "Equal", "value": each.value, "effect": each.effect} for each in taints]
        body["tolerations"] = [*(body.get("tolerations") or ()), *added]

    return edit


def _with_expressions(edits: dict[str, str]) -> Callable[[Json], None]:
    def edit(body: Json) -> None:
        for each in body.get("selectors") or ():
            cel = each.get("cel") or {}
            if cel.get("expression") in edits:
                cel["expression"] = edits[cel["expression"]]

    return edit

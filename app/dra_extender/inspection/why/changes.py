"""Changes that a person may make so that a pod fits, as the objects are after them."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dra_extender.allocator.state.rejection import Rejection
from dra_extender.cel.values.quantity import format_quantity
from dra_extender.inspection.cluster_view import ClusterView, ObjectChange
from dra_extender.inspection.holders import Holder
from dra_extender.ledger.state.claim_record import ClaimRecord
from dra_extender.model.api_json import decode_object
from dra_extender.model.device import DeviceTaint
from dra_extender.model.metadata import split_key
from dra_extender.model.pod import Pod
from dra_extender.scheduling.claims.lookup import find_claims

_OF_TRIAL: Final = "-trial"
_GROUPS: Final = "podgroups "
_END: Final = "end "

Json = dict[str, Any]
EditRequest = Callable[[Json], None]
"""Changes what a claim asks for under the name of a request, in place."""


class ProposedChange(NamedTuple):
    """What a person may do, the objects as they are then, and the pods (`namespace/name`) that are gone."""

    text: str
    changes: tuple[ObjectChange, ...]
    ended: tuple[str, ...] = ()


def together(changes: Sequence[ProposedChange]) -> ProposedChange:
    """Changes that are made one after the other, as one; pods that several of them end are named together."""
    if len(changes) == 1:
        return changes[0]
    return ProposedChange(
        joined([each.text for each in changes]),
        tuple(each for one in changes for each in one.changes),
        tuple(name for one in changes for name in one.ended),
    )


def joined(texts: Sequence[str]) -> str:
    """What several changes say; what is ended stands at the end, in one list."""
    ends = [each.removeprefix(_END) for each in texts if each.startswith(_END)]
    others = [each for each in texts if each and not each.startswith(_END)]
    return ", ".join([*others, *([_END + ", ".join(ends)] if ends else [])])


class ClaimChanges:
    """Changes of the claims of one pod, and ends of other claims."""

    def __init__(self, view: ClusterView, pod: Pod) -> None:
        self._view = view
        members = () if pod.pod_group is None else view.ledger.pods.members(pod.namespace, pod.pod_group)
        self._own = frozenset((*(each.key for each in members), f"{_GROUPS}{pod.namespace}/{pod.pod_group}"))
        found = find_claims(pod, view.ledger)
        claims = () if isinstance(found, Rejection) else found
        self._records = {each.label: each.record for each in claims if each.record.raw}

    def classes(self, claim: str, request: str) -> Iterator[str]:
        """The device classes that a request of a claim names."""
        record = self._records.get(claim)
        for body in () if record is None else _bodies(decode_object("ResourceClaim", record.raw), request):
            yield body.get("deviceClassName", "")

    def counts(self, claim: str) -> Mapping[str, int]:
        """How many devices each request of a claim asks for, of those that ask for a number of them."""
        record = self._records.get(claim)
        found: dict[str, int] = {}
        body = {} if record is None else decode_object("ResourceClaim", record.raw)
        for each in body.get("spec", {}).get("devices", {}).get("requests") or ():
            exact = each.get("exactly") or {}
            if exact.get("allocationMode") == "ExactCount":
                found[each["name"]] = exact.get("count", 1)
        return found

    def of_request(self, claim: str, request: str, text: str, edit: EditRequest) -> ProposedChange | None:
        """The claim with another request; None if the claim is none of the API."""

        def all_bodies(after: Json) -> None:
            for body in _bodies(after, request):
                edit(body)

        return self.of_claim(claim, text, all_bodies)

    def of_claim(self, claim: str, text: str, edit: Callable[[Json], None]) -> ProposedChange | None:
        """The claim after `edit`, as a claim of its own: the spec of a claim cannot be changed."""
        record = self._records.get(claim)
        if record is None:
            return None
        before = decode_object("ResourceClaim", record.raw)
        after = copy.deepcopy(before)
        after["metadata"]["uid"] += _OF_TRIAL
        edit(after)
        return ProposedChange(text, (ObjectChange("resourceclaims", before, after),))

    def of_class(self, name: str, text: str, edits: Mapping[str, str]) -> ProposedChange | None:
        """The device class with other expressions, by the present ones; None if it is not known."""
        before = self._view.stored("deviceclasses", name)
        if before is None:
            return None
        after = copy.deepcopy(before)
        with_expressions(edits)(after["spec"])
        return ProposedChange(text, (ObjectChange("deviceclasses", before, after),))

    def can_be_ended(self, holder: Holder) -> bool:
        """Return whether the end of the holder's consumers frees the device, and none of them is in the pod's own PodGroup."""
        return holder.can_be_ended and self._own.isdisjoint(holder.consumers)

    def ended(self, holders: Sequence[Holder]) -> ProposedChange | None:
        """The pods that these claims are reserved for end, and the claims are deallocated; None if a claim is not known."""
        changes: list[ObjectChange] = []
        for each in holders:
            record = self._view.ledger.claims.by_key(*split_key(each.claim))
            if record is None or not record.raw:
                return None
            changes.append(_deallocated(record))
        used = dict.fromkeys(name for each in holders for name in each.consumers)
        ends = dict.fromkeys(name for each in holders for name in each.consumers if not each.leaving)
        texts = [f"end {', '.join(ends)}"] if ends else []
        texts += [f"delete claim {each.claim}, which no pod uses" for each in holders if not each.consumers]
        texts += [
            f"wait until claim {each.claim} is released, whose pods {'are' if 'being' in each.leaving else 'have'} {each.leaving}"
            for each in holders
            if each.leaving
        ]
        return ProposedChange(", ".join(texts), tuple(changes), tuple(self._pods(used)))

    def _pods(self, consumers: Mapping[str, None]) -> Iterator[str]:
        """The pods among the consumers, and the members of the PodGroups."""
        for each in consumers:
            if each.startswith(_GROUPS):
                group = split_key(each.removeprefix(_GROUPS))
                yield from (pod.key for pod in self._view.ledger.pods.members(*group))
            else:
                yield each


def without_request(name: str) -> Callable[[Json], None]:
    """The claim does not ask for what this request asks for; constraints do not name it any more."""
    main = name.partition("/")[0]

    def edit(claim: Json) -> None:
        devices = claim["spec"]["devices"]
        devices["requests"] = [each for each in devices.get("requests") or () if each.get("name") != main]
        constraints = []
        for each in devices.get("constraints") or ():
            named = each.get("requests") or ()
            kept = [request for request in named if request.partition("/")[0] != main]
            if kept or not named:
                constraints.append({**each, "requests": kept} if named else each)
        devices["constraints"] = constraints

    return edit


def with_class(name: str) -> EditRequest:
    """The request names another device class."""

    def edit(body: Json) -> None:
        body["deviceClassName"] = name

    return edit


def with_count(count: int) -> EditRequest:
    """The request asks for another number of devices."""

    def edit(body: Json) -> None:
        body["count"] = count

    return edit


def with_capacity(amounts: Mapping[str, int]) -> EditRequest:
    """The request asks for other amounts of capacities, in nano-units."""

    def edit(body: Json) -> None:
        capacity = body.setdefault("capacity", {})
        written = {name: format_quantity(amount) for name, amount in amounts.items()}
        capacity["requests"] = {**(capacity.get("requests") or {}), **written}

    return edit


def with_tolerations(taints: Sequence[DeviceTaint]) -> EditRequest:
    """The request tolerates these taints."""

    def edit(body: Json) -> None:
        added = [{"key": each.key, "operator": "Equal", "value": each.value, "effect": each.effect} for each in taints]
        body["tolerations"] = [*(body.get("tolerations") or ()), *added]

    return edit


def with_expressions(edits: Mapping[str, str]) -> EditRequest:
    """The request's selectors are other ones, by the present ones."""

    def edit(body: Json) -> None:
        for each in body.get("selectors") or ():
            cel = each.get("cel") or {}
            if cel.get("expression") in edits:
                cel["expression"] = edits[cel["expression"]]

    return edit


def without_constraint(attribute: str, *, distinct: bool) -> Callable[[Json], None]:
    """The claim has no constraint of this kind on the attribute."""
    key = "distinctAttribute" if distinct else "matchAttribute"

    def edit(claim: Json) -> None:
        devices = claim["spec"]["devices"]
        devices["constraints"] = [each for each in devices.get("constraints") or () if each.get(key) != attribute]

    return edit


def _deallocated(record: ClaimRecord) -> ObjectChange:
    before = decode_object("ResourceClaim", record.raw)
    return ObjectChange("resourceclaims", before, {**before, "status": {}})


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

"""Changes that a person may make so that a pod fits."""

import copy
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from math import inf
from typing import Any, Final, NamedTuple, Self

import msgspec

from dra_extender.cel.values.quantity import format_quantity
from dra_extender.inspection.cluster_view import ClusterView, ObjectChange
from dra_extender.inspection.near_names import instead
from dra_extender.inspection.why.report import DEVICES_AND_NODES, DEVICES_ONLY, ReasonKind
from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.model.api_json import ModelError, decode_shallow, listed, number_of
from dra_extender.model.metadata import split_key
from dra_extender.model.pod import Pod
from dra_extender.model.templated_claim import Owner, claim_from, read_template
from dra_extender.scheduling.claims.extended_need import EXTENDED_LABEL, requests_named
from dra_extender.scheduling.claims.lookup import MOST_CLAIMS
from dra_extender.simulator.apiserver.objects import StoredKind, key_of

_MOST_MEMBERS: Final = 256
"""Members of a gang whose claims are changed together."""
_OF_TRIAL: Final = "-trial"
_END: Final = "end "
_STATES: Final = {"ask": "asks", "do": "does", "tolerate": "tolerates", "use": "uses"}
"""Verbs of changes as they are afterwards."""

_NAMING: Final = {
    StoredKind.CLAIM: "resourceClaimName",
    StoredKind.TEMPLATE: "resourceClaimTemplateName",
    StoredKind.POD_GROUP: "podGroupName",
}
"""The field in which a pod names an object of a kind."""

Json = dict[str, Any]
Place = tuple[str, str]
"""A claim of the pod, by the pod's name for it, and one of its requests."""
Edit = Callable[[Json], None]
"""Changes an object, or what a claim asks for under the name of a request, in place."""


class ProposedChange(NamedTuple):
    """What a person may do, the objects as they are then, and the pods (`namespace/name`) that are gone.

    `advice`: what to do, one thing after the other; `ends`: whom to end, which is named last.  `harmful`: as in NextStep.
    `place`: the pod, its claim, request and alternative that change, as far as it is one; `only_count`: only the number of devices
    of a request, `drops`: the pod does without it.  `once`: what is so afterwards.  `named`: the text begins with a name.
    """

    advice: tuple[str, ...] = ()
    changes: tuple[ObjectChange, ...] = ()
    ended: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    harmful: bool = False
    place: tuple[str, ...] = ()
    only_count: bool = False
    drops: bool = False
    once: str = ""
    named: bool = False

    @property
    def text(self) -> str:
        """What to do, with a comma before each further thing; names within one are joined by `and`."""
        return ", ".join((*self.advice, _END + ", ".join(self.ends)) if self.ends else self.advice)

    @property
    def state(self) -> str:
        """What is so afterwards, such as `it asks for 1 device`."""
        name, _, text = self.text.partition(": ") if self.named else ("it", "", self.text)
        verb, _, rest = text.partition(" ")
        if verb == "have":
            return self.once or rest.replace(" ask for ", " asks for ", 1)
        return self.once or f"{name} {_STATES.get(verb, verb)} {rest}"

    def makes_needless(self, earlier: Self) -> bool:
        """Return whether an earlier change makes no difference beside this one."""
        replaces = self.drops or (self.only_count and earlier.only_count)
        return replaces and earlier.place[: len(self.place)] == self.place

    @property
    def only_ends(self) -> bool:
        return bool(self.ends) and not self.advice

    def of(self, name: str) -> Self:
        """Return the change with this name before its text; without a name, as it is."""
        if not (name and self.text):
            return self
        first, *others = self.advice or (self.text,)
        ends = self.ends if self.advice else ()
        return self._replace(advice=(f"{name}: {first}", *others), ends=ends, named=True)

    def ending_only(self, ends: Collection[str]) -> Self:
        """Return the change that ends only these of its pods, and leaves the claims of the others allocated."""
        staying = set(self.ends) - set(ends)
        kept = (change for change in self.changes if staying.isdisjoint(_users(change.before)))
        ended = tuple(name for name in self.ended if name not in staying)
        return self._replace(changes=tuple(kept), ended=ended, ends=tuple(name for name in self.ends if name in ends))

    def is_said_by(self, other: Self) -> bool:
        """Return whether another change contains all that this one advises, also for several pods; of alternatives the first."""
        texts, said = ([text.partition(", or ")[0] for text in change.advice] for change in (self, other))
        is_advised = all(any(text == part or part.endswith(f": {text}") for part in said) for text in texts)
        return is_advised and set(self.ends) <= set(other.ends)

    @property
    def effect(self) -> Hashable:
        """What is equal for changes, in whatever order, that leave the same objects and end the same pods."""
        contents = {key_of(entry.kind, entry.after): _without_version(entry.after) for entry in self.changes}
        return frozenset(contents.items()), frozenset(self.ended)


def _without_version(item: Mapping[str, Any]) -> bytes:
    """Return the object without its version, which each trial raises."""
    return msgspec.json.encode({**item, "metadata": {**item["metadata"], "resourceVersion": ""}})


class ProposedStep(NamedTuple):
    """A change, the first nodes on which the pod fits after it (none if that was not tried), and how it was tried, as in NextStep.

    `preemption`: what kube-scheduler's preemption does about the pods that are ended, as in EndedPod.
    """

    change: ProposedChange
    nodes: tuple[str, ...] = ()
    verified: str = ""
    untried: tuple[ReasonKind, ...] = ()
    preemption: str = ""

    @property
    def helps(self) -> bool:
        """Whether it was found to help with all that is known."""
        return self.verified == DEVICES_AND_NODES

    @property
    def order(self) -> tuple[bool, bool, int]:
        """Put first what harms nobody, then what was tried with all that is known, then the smallest."""
        return self.change.harmful, self.verified == DEVICES_ONLY, self.change.text.count(",")


def advised(text: str, name: str = "") -> ProposedStep:
    """Return what a person may do that was not tried, with this name before its text."""
    ends = text.startswith(_END)
    change = ProposedChange(ends=(text.removeprefix(_END),), harmful=True) if ends else ProposedChange((text,))
    return ProposedStep(change.of(name))


def together(changes: Iterable[ProposedChange]) -> ProposedChange:
    """Return changes that are made one after the other, as one.

    What a later change makes needless is not named.  What begins with a name comes last: what follows is read as that pod's.
    """
    changes = tuple(changes)
    named = [
        change
        for number, change in enumerate(changes, 1)
        if not any(later.makes_needless(change) for later in changes[number:])
    ]
    return ProposedChange(
        advice=tuple(text for change in sorted(named, key=lambda change: change.named) for text in change.advice),
        changes=tuple(entry for change in changes for entry in change.changes),
        ended=tuple(name for change in changes for name in change.ended),
        ends=tuple(name for change in changes for name in change.ends),
        harmful=any(change.harmful for change in changes),
        named=any(change.named for change in changes),
    )


NO_CHANGE: Final = ProposedChange()


def staying_pods(view: ClusterView, names: Iterable[str]) -> list[Pod]:
    """Return those of the pods (`namespace/name`) that neither have ended nor are being deleted, each once."""
    pods = (view.pod(*split_key(name)) for name in dict.fromkeys(names))
    return [pod for pod in pods if pod is not None and not pod.ending]


def with_fields(
    view: ClusterView, pods: Sequence[Pod], change: ProposedChange, fields: Mapping[str, object]
) -> ProposedChange:
    """Return the change with these fields in the specs of the pods; pods that are not known are left out."""
    stored = (view.stored("pods", pod.name, pod.namespace) for pod in pods)
    changes = (
        ObjectChange(StoredKind.POD, before, {**before, "spec": {**before["spec"], **fields}})
        for before in stored
        if before is not None
    )
    return change._replace(changes=tuple(changes))


def without_gates(view: ClusterView, pods: Sequence[Pod]) -> ProposedChange:
    """Return the pods without scheduling gates, for which a person can only wait."""
    gates = listed(list(dict.fromkeys(gate for pod in pods for gate in pod.gates)))
    text = f"wait until the scheduling gates of {listed([pod.name for pod in pods])} are removed: {gates}"
    return with_fields(view, pods, ProposedChange((text,)), {"schedulingGates": []})


class ClaimChanges:
    """Changes of what one pod asks for."""

    def __init__(self, view: ClusterView, pod: Pod, *, names_pod: bool = False) -> None:
        """`names_pod`: the texts of changes of the pod's own claims and resources begin with its name."""
        self._view = view
        self._pod = pod
        self.name = pod.name if names_pod else ""
        self._members = () if pod.pod_group is None else view.ledger.pods.members(pod.namespace, pod.pod_group)
        # Alone, because the claims of a pod are not found together if one is missing.
        alone = (msgspec.structs.replace(pod, claims=(entry,)) for entry in pod.claims[:MOST_CLAIMS])
        claims = (claim for pod_with_one in alone for claim in view.claims_of(pod_with_one))
        self._records = {claim.label: claim.record for claim in claims if claim.record.raw}
        self._stored = dict[str, Json]()

    def classes(self, place: Place) -> Iterator[str]:
        return (body.get("deviceClassName", "") for body in _bodies(self._claim(place[0]), place[1]))

    def expressions(self, place: Place) -> Sequence[str]:
        selectors = (
            selector for body in _bodies(self._claim(place[0]), place[1]) for selector in body.get("selectors") or ()
        )
        expressions = ((selector.get("cel") or {}).get("expression") for selector in selectors)
        return [expression for expression in expressions if expression]

    def where(self, claim: str, request: str = "") -> str:
        """Return ` in request r of claim gpu`, as far as the claim has several requests or alternatives, the pod several claims."""
        bodies = [body for stored in _requests_in(self._claim(claim)) for body in _bodies_of(stored)]
        several_claims = len(self._pod.claims) > 1
        in_request = f" in request {request}" if request and (several_claims or len(bodies) > 1) else ""
        return in_request + (f" of claim {claim}" if several_claims else "")

    def place(self, claim: str, request: str = "") -> tuple[str, ...]:
        return (self._pod.key, claim, *filter(None, request.split("/")))

    def counts(self, claim: str) -> Mapping[str, float]:
        """Return how many devices each request of a claim asks for, `inf` for all; without requests that have alternatives."""
        requests = ((request["name"], request.get("exactly")) for request in _requests_in(self._claim(claim)))
        return {
            name: exact.get("count", 1) if exact.get("allocationMode") == "ExactCount" else inf
            for name, exact in requests
            if exact
        }

    def of_request(self, place: Place, text: str, edit: Edit) -> ProposedChange | None:
        """Return the claim with another request, which the text names if it is one of several; None without the claim."""
        claim, request = place

        def all_bodies(after: Json) -> None:
            for body in _bodies(after, request):
                edit(body)

        change = self.of_claim(claim, text + self.where(claim, request), all_bodies)
        return None if change is None else change._replace(place=self.place(claim, request))

    def of_claim(self, claim: str, text: str, edit: Edit) -> ProposedChange | None:
        """Return the claim after `edit`, as a claim of its own: the spec of a claim cannot be changed."""

        def edit_copy(after: Json) -> None:
            metadata = after["metadata"]
            metadata["uid"] = metadata.get("uid", "") + _OF_TRIAL
            edit(after)

        return _edited(StoredKind.CLAIM, self._claim(claim), text, edit_copy, of=self.name)

    def created_again(self, key: str, text: str) -> ProposedChange | None:
        """Return the claim (`namespace/name`) as it is when it was created again; None if it is not known."""
        namespace, name = split_key(key)

        def edit(after: Json) -> None:
            for field in ("deletionTimestamp", "finalizers"):
                after["metadata"].pop(field, None)
            after["status"] = {}

        before = self._view.stored("resourceclaims", name, namespace)
        change = _edited(StoredKind.CLAIM, before, text, edit, of=self.name)
        return None if change is None else change._replace(once="the claim is created again")

    def of_class(self, name: str, text: str, edits: Mapping[str, str]) -> ProposedChange | None:
        """Return the device class with other expressions, by the present ones; None if it is not known."""
        stored = self._view.stored("deviceclasses", name)
        return _edited(StoredKind.CLASS, stored, text, lambda after: with_expressions(edits)(after["spec"]))

    def _of_pod(self, text: str, edit: Edit, *further: ObjectChange) -> ProposedChange | None:
        """Return the pod after `edit`, with what changes besides; None if the pod is not known."""
        stored = self._view.stored("pods", self._pod.name, self._pod.namespace)
        return _edited(StoredKind.POD, stored, text, edit, *further, of=self.name)

    def _of_resources(self, text: str, edit: Callable[[int, Json], Json]) -> ProposedChange | None:
        """Return the pod whose containers ask for other resources; `edit` has the number of a container, and its amounts."""

        def edit_containers(after: Json) -> None:
            # An edited snapshot may lack init containers, or containers.
            fields = ("initContainers", "containers")
            containers = (container for field in fields for container in after["spec"].get(field) or ())
            for index, container in enumerate(containers):
                for field, amounts in (container.get("resources") or {}).items():
                    if isinstance(amounts, dict):
                        container["resources"][field] = edit(index, amounts)

        return self._of_pod(text, edit_containers)

    def of_all_members(self, change: ProposedChange | None) -> ProposedChange | None:
        """Return a change of a claim for the equal claims of all waiting members of the gang; None if no other has such a claim."""
        claims = [
            (entry.before, entry.after)
            for entry in (() if change is None else change.changes)
            if entry.kind is StoredKind.CLAIM and entry.before is not None
        ]
        if change is None or len(claims) != len(change.changes):
            return None
        names, changes, changed = [self._pod.name], list(change.changes), set[str]()
        for member in islice(self._members, _MOST_MEMBERS):
            if member.uid == self._pod.uid or not member.waits_for_node:
                continue
            for claim in self._view.claims_of(member):
                before = _claim_in(claim.record) if claim.record.raw else {}
                after = next((edited for stored, edited in claims if stored.get("spec") == before.get("spec")), None)
                uid = before.get("metadata", {}).get("uid", "")
                if (
                    after is None
                    or uid in changed
                    or any(stored["metadata"].get("uid", "") == uid for stored, _ in claims)
                ):
                    continue
                changed.add(uid)
                names.append(member.name)
                metadata = {**before["metadata"], "uid": uid + _OF_TRIAL}
                changes.append(
                    ObjectChange(StoredKind.CLAIM, before, {**before, "metadata": metadata, "spec": after["spec"]})
                )
        text = f"{listed(sorted(dict.fromkeys(names)))}: {change.text.removeprefix(f'{self.name}: ')}"
        return change._replace(advice=(text,), changes=tuple(changes)) if changed else None

    def with_count(self, place: Place, number: int) -> ProposedChange | None:
        """Return the claim, or of extended resources the pod, that asks for so many devices; None if it is not known."""
        if place[0] == EXTENDED_LABEL:
            return self._with_extended_resource(place[1], number)
        change = self.of_request(
            place,
            f"ask for {number_of(number, 'device')}",
            lambda body: body.update(allocationMode="ExactCount", count=number),
        )
        return None if change is None else change._replace(only_count=True)

    def without_request(self, claim: str, request: str) -> ProposedChange | None:
        """Return the claim without a request, and without the request in its constraints."""
        main = request.partition("/")[0]
        text = f"do without request {request}{self.where(claim)}"
        change = self.of_claim(claim, text, without_requests({main}))
        return None if change is None else change._replace(place=self.place(claim, main), drops=True)

    def without_alternative(self, claim: str, request: str) -> ProposedChange | None:
        text = f"do without alternative {request}{self.where(claim)}"
        change = self.of_claim(claim, text, without_alternative(*request.split("/")))
        return None if change is None else change._replace(place=self.place(claim, request), drops=True)

    def without_claim(self, claim: str) -> ProposedChange | None:
        """Return the pod without one of its claims; None if that is its only one, or if it is none of its spec."""
        change = self.without([(claim, "")], f"do without claim {claim}")
        return None if change is None else change._replace(place=self.place(claim), drops=True)

    def _with_extended_resource(self, request: str, number: int) -> ProposedChange | None:
        asking = next(requests_named(self._pod.extended_requests, request), None)
        if asking is None:
            return None
        container, resource = asking[0].index, asking[1].resource

        def edit(index: int, amounts: Json) -> Json:
            return {**amounts, resource: str(number)} if index == container and resource in amounts else amounts

        return self._of_resources(f"ask for {number} of {resource}", edit)

    def with_resources(self, renamed: Mapping[str, str]) -> ProposedChange | None:
        """Return the pod that asks for extended resources by other names; None if it is not known."""
        text = f"ask for {' and '.join(map(instead, renamed.values(), renamed))}"
        return self._of_resources(
            text, lambda _, amounts: {renamed.get(name, name): amount for name, amount in amounts.items()}
        )

    def without_extended_resources(self) -> ProposedChange | None:
        """Return the pod without the extended resources for which it gets devices."""
        return self.without_resources(
            [name for name in self._pod.extended_resources if name in self._view.ledger.backing]
        )

    def without_resources(self, names: Sequence[str]) -> ProposedChange | None:
        """Return the pod without these extended resources; None without any."""
        if not names:
            return None
        return self._of_resources(
            f"do without {' and '.join(names)}",
            lambda _, amounts: {name: amount for name, amount in amounts.items() if name not in names},
        )

    def with_name(self, kind: StoredKind, missing: str, name: str) -> ProposedChange | None:
        """Return the pod that names another claim, template or PodGroup, with the claims that are made from the template.

        Return None if the pod does not name the missing object, or if the template cannot be read.
        """
        field, created = _NAMING[kind], dict[str, Json]()
        stored = self._view.stored("pods", self._pod.name, self._pod.namespace) or {"spec": {}}

        def entries_of(pod: Json) -> list[Json]:
            named_in = (pod["spec"].get("schedulingGroup") or {}, *(pod["spec"].get("resourceClaims") or ()))
            return [entry for entry in named_in if entry.get(field) == missing]

        for entry in entries_of(stored) if kind is StoredKind.TEMPLATE else ():
            claim = self._claim_from(name, entry["name"])
            if claim is None:
                return None
            created[entry["name"]] = claim

        def edit(after: Json) -> None:
            for entry in entries_of(after):
                entry[field] = name
            _record_claims(after, created)

        text = f"name {kind.singular} {instead(name, missing)}"
        changes = (ObjectChange(StoredKind.CLAIM, None, claim) for claim in created.values())
        return self._of_pod(text, edit, *changes) if entries_of(stored) else None

    def with_generated_claims(self) -> ProposedChange | None:
        """Return the pod with the claims that are made from its templates and are not there yet; None without any."""
        entries = [entry for entry in self._pod.claims[:MOST_CLAIMS] if entry.name not in self._records]
        templates = ((entry.name, entry.resource_claim_template_name) for entry in entries)
        made = {name: claim for name, template in templates if template and (claim := self._claim_from(template, name))}
        changes = (ObjectChange(StoredKind.CLAIM, None, claim) for claim in made.values())
        return self._of_pod("", lambda after: _record_claims(after, made), *changes) if made else None

    def _claim_from(self, template: str, entry: str) -> Json | None:
        """Return the claim that is made from a template for an entry of the pod; None if the template cannot be read."""
        owner = Owner("v1", StoredKind.POD.singular, self._pod.namespace, self._pod.name, self._pod.uid)
        with suppress(ModelError):
            data = self._view.encoded(StoredKind.TEMPLATE, template, self._pod.namespace) or b""
            return decode_shallow("ResourceClaim", claim_from(read_template(data), owner, entry))
        return None

    def other_alternatives(self, claim: str, rejected: str) -> Iterator[tuple[str, ProposedChange]]:
        """Yield the other alternatives (`request/alternative`) of one, each with the claim that asks only for it."""
        request, _, alternative = rejected.partition("/")
        for body in _bodies(self._claim(claim), request) if alternative else ():
            name = body.get("name")

            def edit(after: Json, only: str = f"{request}/{name}") -> None:
                for request_body in after["spec"]["devices"]["requests"]:
                    if request_body["name"] == request:
                        request_body["firstAvailable"] = list(_bodies(after, only))

            change = None if name in (None, alternative) else self.of_claim(claim, "", edit)
            if change is not None:
                yield f"{request}/{name}", change

    def without(self, places: Iterable[tuple[str, str]], text: str = "") -> ProposedChange | None:
        """Return the pod without these requests (claim, request), and without the claims of which none is named.

        Return None if the pod would ask for nothing, or if it asks by other means than its claims.
        """
        dropped: dict[str, set[str]] = {}
        for claim, request in places:
            dropped.setdefault(claim, set()).add(request.partition("/")[0])
        labels = {entry.name for entry in self._pod.claims}
        if not labels.issuperset(dropped):
            return None
        requests = {
            label: {request.get("name", "") for request in _requests_in(self._claim(label))} for label in dropped
        }
        gone = {label for label, names in dropped.items() if "" in names or names >= requests[label]}
        if gone == labels:
            return None
        changes = [self.of_claim(label, "", without_requests(dropped[label])) for label in dropped if label not in gone]

        def edit(after: Json) -> None:
            entries = after["spec"]["resourceClaims"]
            after["spec"]["resourceClaims"] = [entry for entry in entries if entry.get("name") not in gone]

        return self._of_pod(text, edit, *(change for proposal in changes if proposal for change in proposal.changes))

    def _claim(self, label: str) -> Json | None:
        """Return a claim of the pod, decoded once; None if it is none of the API."""
        record = self._records.get(label)
        if record is not None and label not in self._stored:
            self._stored[label] = _claim_in(record)
        return self._stored.get(label)


def _record_claims(pod: Json, created: Mapping[str, Json]) -> None:
    """Write into a pod's status which claims were made for its entries."""
    statuses = pod.setdefault("status", {}).setdefault("resourceClaimStatuses", [])
    statuses += ({"name": name, "resourceClaimName": claim["metadata"]["name"]} for name, claim in created.items())


def _edited(
    kind: StoredKind, before: Json | None, text: str, edit: Edit, *further: ObjectChange, of: str = ""
) -> ProposedChange | None:
    """Return an object after `edit`, after what changes besides; None without the object.  `of`: whose it is, in the text."""
    if before is None:
        return None
    after = copy.deepcopy(before)
    edit(after)
    return ProposedChange((text,) if text else (), (*further, ObjectChange(kind, before, after))).of(of)


def without_requests(names: Collection[str]) -> Edit:
    """Return an edit that takes requests out of a claim, and out of its constraints."""

    def edit(claim: Json) -> None:
        devices = claim["spec"]["devices"]
        devices["requests"] = [request for request in devices["requests"] if request.get("name") not in names]
        constraints = []
        for constraint in devices.get("constraints") or ():
            named = constraint.get("requests") or ()
            remaining = [request for request in named if request.partition("/")[0] not in names]
            if remaining or not named:
                constraints.append({**constraint, "requests": remaining} if named else constraint)
        devices["constraints"] = constraints

    return edit


def without_alternative(request: str, alternative: str) -> Edit:
    """Return an edit that takes an alternative out of a request of a claim."""

    def edit(claim: Json) -> None:
        for body in claim["spec"]["devices"]["requests"]:
            if body["name"] == request:
                body["firstAvailable"] = [other for other in body["firstAvailable"] if other.get("name") != alternative]

    return edit


def with_capacity(amounts: Mapping[str, int]) -> Edit:
    """Return an edit that asks for other amounts of capacities, in nano-units."""
    written = {name: format_quantity(amount) for name, amount in amounts.items()}

    def edit(body: Json) -> None:
        capacity = body.setdefault("capacity", {})
        capacity["requests"] = {**(capacity.get("requests") or {}), **written}

    return edit


def with_constraint(field: str, attribute: str, meant: str | None) -> Edit:
    """Return an edit of a claim that gives its constraints on an attribute another attribute; without one, that removes them."""

    def edit(claim: Json) -> None:
        devices = claim["spec"]["devices"]
        if meant is None:
            devices["constraints"] = [stored for stored in devices["constraints"] if stored.get(field) != attribute]
        for stored in devices["constraints"]:
            if stored.get(field) == attribute:
                stored[field] = meant

    return edit


def with_expressions(edits: Mapping[str, str]) -> Edit:
    """Return an edit that replaces expressions of selectors, by the present ones."""

    def edit(body: Json) -> None:
        for selector in body.get("selectors") or ():
            cel = selector.get("cel") or {}
            if cel.get("expression") in edits:
                cel["expression"] = edits[cel["expression"]]

    return edit


def _users(claim: Json | None) -> Iterator[str]:
    """Yield the pods (`namespace/name`) for which a claim is reserved; nothing of another object."""
    metadata, status = (claim or {}).get("metadata", {}), (claim or {}).get("status", {})
    return (f"{metadata.get('namespace')}/{user.get('name')}" for user in status.get("reservedFor") or ())


def _claim_in(record: ClaimRecord) -> Json:
    return decode_shallow("ResourceClaim", record.raw)


def _requests_in(claim: Json | None) -> Sequence[Json]:
    return () if claim is None else claim.get("spec", {}).get("devices", {}).get("requests") or ()


def _bodies(claim: Json | None, request: str) -> Iterator[Json]:
    """Yield what a claim asks for under the name of a request, or of one of its alternatives."""
    main, _, alternative = request.partition("/")
    for request_body in _requests_in(claim):
        if request_body.get("name") == main:
            for body in _bodies_of(request_body):
                if not alternative or body.get("name") in (None, alternative):
                    yield body


def _bodies_of(request: Json) -> Iterator[Json]:
    """Yield what a request asks for, or each of its alternatives, which have names."""
    if request.get("exactly"):
        yield request["exactly"]
    yield from request.get("firstAvailable") or ()

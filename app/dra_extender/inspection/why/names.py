"""What pods and selectors name and does not exist, and which names were probably meant."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final

import msgspec

from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.cel.analysis.corrections import DEVICE_MAPS, PublishedNames
from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.explain.nearness import may_hold
from dra_extender.cel.program import Program
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.near_names import meant_name, names_there
from dra_extender.inspection.objects import unread
from dra_extender.inspection.why.report import EXAMPLES
from dra_extender.model.api_json import ModelError, decode, listed
from dra_extender.model.pod import Pod, PodResourceClaim
from dra_extender.model.resource_claim import ClaimSpec
from dra_extender.model.templated_claim import read_template
from dra_extender.scheduling.claims.lookup import find_claims
from dra_extender.simulator.apiserver.objects import StoredKind

_MOST_DEVICES: Final = 20_000
_MOST_NAMES: Final = 1_000


def existing_names(view: ClusterView, pod: Pod, rejection: Rejection) -> str:
    """Return what exists in the place of the class, claim, template or PodGroup that a rejection says does not; else empty.

    That is where else an object of the name is, otherwise what exists in its namespace.
    """
    if rejection.code is Code.CLASS_MISSING:
        return names_there(re.split("[ /]", rejection.detail)[-1], view.ledger.classes)
    missing = missing_object(view, pod, rejection)
    if missing is None:
        return ""
    kind, name = missing
    elsewhere = [f"{namespace}/{name}" for namespace in sorted(view.namespaces_of(kind, name))]
    return f"; there is {listed(elsewhere)}" if elsewhere else names_there(name, view.names(kind, pod.namespace))


def missing_object(view: ClusterView, pod: Pod, rejection: Rejection) -> tuple[StoredKind, str] | None:
    """Return kind and name of the claim, template or PodGroup that a rejection says does not exist; None if it says none."""
    in_namespace = rejection.detail.startswith(f"{pod.namespace}/")
    missing = rejection.detail.rpartition("/")[2]
    match rejection.code:
        case Code.CLAIM_MISSING if in_namespace:
            return StoredKind.CLAIM, missing
        case Code.CLAIM_NOT_CREATED if rejection.detail.startswith("from template "):
            template = rejection.detail.split()[2]
            exists = template in view.names(StoredKind.TEMPLATE, pod.namespace)
            return None if exists else (StoredKind.TEMPLATE, template)
        case Code.POD_GROUP_MISSING if in_namespace:
            return StoredKind.POD_GROUP, missing
    return None


def published_names(view: ClusterView) -> PublishedNames:
    """Return the names of devices, as far as the first ones show them."""
    words: dict[str, None] = {}
    domains: dict[tuple[str, str], set[str]] = {}
    devices = ((part.driver, device) for part in view.ledger.slices.by_name.values() for device in part.devices)
    complete = not unread(view.origin, {StoredKind.SLICE})
    for number, (driver, device) in enumerate(devices):
        if number == _MOST_DEVICES or len(words) > _MOST_NAMES:
            complete = False
            break
        words[driver] = None
        for kind, published in zip(DEVICE_MAPS, (device.attributes, device.capacity), strict=True):
            for full_name, _ in published:
                domain, _, name = full_name.rpartition("/")
                words.update(dict.fromkeys((domain or driver, name)))
                domains.setdefault((kind, name), set()).add(domain or driver)
    return PublishedNames(words, domains, partial(meant_name, names=words), complete)


def may_all_hold(programs: Iterable[Program | CelCompileError], driver: str) -> bool:
    """Return whether all these selectors can be true for a device of the driver; those that do not compile do not count."""
    return all(
        may_hold(program.expression, driver, program.emulate) for program in programs if isinstance(program, Program)
    )


_MISSING: Final = frozenset({Code.CLAIM_MISSING, Code.POD_GROUP_MISSING})
_SPEC: Final = msgspec.json.Decoder(ClaimSpec)
_MOST_ENTRIES: Final = 32
"""Entries of `spec.resourceClaims` that are looked at."""


def missing_names(view: ClusterView, pod: Pod) -> Sequence[str]:
    """Return a sentence about each object that the claims of a pod name and that does not exist, the first few."""
    sentences = (text for entry in islice(pod.claims, _MOST_ENTRIES) for text in _missing(view, pod, entry))
    return list(islice(dict.fromkeys(sentences), EXAMPLES))


def _missing(view: ClusterView, pod: Pod, entry: PodResourceClaim) -> Iterator[str]:
    if unread(view.origin, {"resourceclaims", "podgroups"}, pod.namespace):
        return
    found_claims = find_claims(msgspec.structs.replace(pod, claims=(entry,)), view.ledger)
    template = entry.resource_claim_template_name
    if not isinstance(found_claims, Rejection):
        for claim in found_claims:
            if claim.record.has_spec and not claim.record.unreadable and claim.record.claim.status.allocation is None:
                yield from _missing_classes(view, entry, claim.record.spec)
    elif found_claims.code in _MISSING:
        yield found_claims.text + existing_names(view, pod, found_claims)
    elif (
        found_claims.code is Code.CLAIM_NOT_CREATED
        and template
        and not unread(view.origin, {StoredKind.TEMPLATE}, pod.namespace)
    ):
        data = view.encoded(StoredKind.TEMPLATE, template, pod.namespace)
        if data is None:
            near = names_there(template, view.names(StoredKind.TEMPLATE, pod.namespace))
            yield f'claim "{entry.name}": ResourceClaimTemplate {template} does not exist{near}'
            return
        with suppress(ModelError):
            spec = decode("ResourceClaimTemplate", _SPEC, bytes(read_template(data).spec.spec))
            yield from _missing_classes(view, entry, spec)


def _missing_classes(view: ClusterView, entry: PodResourceClaim, spec: ClaimSpec) -> Iterator[str]:
    if unread(view.origin, {"deviceclasses"}):
        return
    for name, request in spec.options:
        device_class = request.device_class_name
        if device_class and device_class not in view.ledger.classes:
            near = names_there(device_class, view.ledger.classes)
            yield f'claim "{entry.name}", request "{name}": device class {device_class} does not exist{near}'

"""What stands in the way of a pod beside its scheduling gates: claims, templates and DeviceClasses that do not exist."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Final

import msgspec

from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.near_names import names_there
from dra_extender.inspection.objects import unread
from dra_extender.inspection.why.names import existing_names
from dra_extender.model.api_json import ModelError, decode
from dra_extender.model.pod import Pod, PodResourceClaim
from dra_extender.model.resource_claim import ClaimSpec
from dra_extender.model.templated_claim import read_template
from dra_extender.scheduling.claims.lookup import find_claims
from dra_extender.simulator.apiserver.objects import StoredKind

_CLASSES: Final = frozenset({"deviceclasses"})
_CLAIMS: Final = frozenset({"resourceclaims", "podgroups"})
_TEMPLATES: Final = frozenset({"resourceclaimtemplates"})
_MISSING: Final = frozenset({Code.CLAIM_MISSING, Code.POD_GROUP_MISSING})
_SPEC: Final = msgspec.json.Decoder(ClaimSpec)
_MOST_ENTRIES: Final = 32
"""Entries of `spec.resourceClaims` that are looked at."""
_MOST_NAMED: Final = 3


def beside_gates(view: ClusterView, pod: Pod) -> Iterator[str]:
    """Yield a sentence about each object that the claims of a gated pod name and that does not exist, the first few."""
    sentences = (text for entry in islice(pod.claims, _MOST_ENTRIES) for text in _missing(view, pod, entry))
    yield from (f"beside its gates: {text}" for text in islice(dict.fromkeys(sentences), _MOST_NAMED))


def _missing(view: ClusterView, pod: Pod, entry: PodResourceClaim) -> Iterator[str]:
    if unread(view.origin, _CLAIMS, pod.namespace):
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
        found_claims.code is Code.CLAIM_NOT_CREATED and template and not unread(view.origin, _TEMPLATES, pod.namespace)
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
    if unread(view.origin, _CLASSES):
        return
    for request in spec.devices.requests or ():
        bodies = [(f"{request.name}/{option.name}", option.device_class_name) for option in request.first_available]
        bodies += [(request.name, request.exactly.device_class_name)] if request.exactly else []
        for name, device_class in bodies:
            if device_class and device_class not in view.ledger.classes:
                near = names_there(device_class, view.ledger.classes)
                yield f'claim "{entry.name}", request "{name}": device class {device_class} does not exist{near}'

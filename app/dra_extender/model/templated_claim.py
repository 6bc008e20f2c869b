"""Claims that are made from templates for pods and PodGroups: what marks them, their names and their content.

They equal those of kube-controller-manager 1.37 (KEP-5729, KEP-3063) except for the name: upstream ends it with random letters.
Here the letters follow from the owner, so that a create that is repeated after a crash finds the existing claim.
"""

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, NamedTuple

import msgspec

from dra_extender.model.api_json import ModelError, Value, as_stored, reader
from dra_extender.model.fields import Described, Mark
from dra_extender.model.metadata import ObjectMeta, TemplateMeta
from dra_extender.model.resource_claim import ClaimHead, ClaimSpec

ENTRY_ANNOTATION: Final = "resource.kubernetes.io/pod-claim-name"
"""Names the entry of the owner, pod or PodGroup, for which a claim was made."""
DRAFTED_ENTRY_ANNOTATION: Final = "resource.kubernetes.io/podgroup-claim-name"
"""The same for PodGroups in the drafts of KEP-5729; no release writes it."""

_RESERVED: Final = ("dra-extender.io", "resource.kubernetes.io")
"""Domains of the labels and annotations with which the extender and kube-controller-manager mark claims."""
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX: Final = 5
_LONGEST_BASE: Final = 57


class Owner(NamedTuple):
    """A pod or PodGroup for which claims are made."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class _TemplateMetadata(Value, frozen=True):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _TemplateSpec(Value, frozen=True):
    metadata: Annotated[_TemplateMetadata, Described(TemplateMeta), Mark.LEFT_OUT] | None = None
    spec: Annotated[msgspec.Raw, Described(ClaimSpec)] = msgspec.Raw(b"{}")


class ClaimTemplate(Value, frozen=True):
    """A ResourceClaimTemplate; the spec of its claims is handed on as it is."""

    unread: ClassVar[Mapping[str, Any]] = {"metadata": Annotated[ObjectMeta, Mark.REQUIRED]}
    spec: _TemplateSpec = _TemplateSpec()


read_template = reader("ResourceClaimTemplate", ClaimTemplate)


def generated_for(claim: ClaimHead) -> tuple[str, str] | None:
    """Return the UID of the controller and the entry for which the claim was made from a template; None for any other claim."""
    meta = claim.metadata
    entry = meta.annotations.get(ENTRY_ANNOTATION) or meta.annotations.get(DRAFTED_ENTRY_ANNOTATION)
    return (meta.controller.uid, entry) if entry and meta.controller is not None else None


def generated_name(owner: Owner, entry: str) -> str:
    """Return `<owner>-<entry>-<suffix>`, at most 63 characters, the same at every call and another for another UID.

    Owner and entry are cut in proportion to their lengths, as upstream does.
    """
    return generated_base(owner.name, entry) + suffix_of(f"{owner.uid}/{entry}")


def suffix_of(text: str) -> str:
    """Return five characters as the API server appends them to a generateName, but ones that follow from the text."""
    number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
    return "".join(_ALPHABET[number // len(_ALPHABET) ** place % len(_ALPHABET)] for place in range(_SUFFIX))


def claim_from(template: ClaimTemplate, owner: Owner, entry: str) -> bytes:
    """Return the claim (API JSON) that the template makes for an entry of the owner.

    As kube-controller-manager does, it copies labels and annotations of the template and no other metadata.  Unlike there, those
    that mark claims are left out: the template's author is a user, while the account that creates the claim may write them.

    Raises:
        ModelError: the template has no spec for claims.
    """
    # Its parts that are limited in bytes are parameters; what is shorter as a whole has none that are too long.
    spec = as_stored(template.spec.spec)
    if not bytes(spec).startswith(b"{"):
        raise ModelError("ResourceClaimTemplate: expected an object - at `$.spec.spec`")
    template_metadata = template.spec.metadata or _TemplateMetadata()
    metadata: Mapping[str, Any] = {
        "name": generated_name(owner, entry),
        "namespace": owner.namespace,
        "labels": _unreserved(template_metadata.labels),
        "annotations": {**_unreserved(template_metadata.annotations), ENTRY_ANNOTATION: entry},
        # Without blockOwnerDeletion, as upstream: it would need the right to change the owner's finalizers.
        "ownerReferences": [
            {
                "apiVersion": owner.api_version,
                "kind": owner.kind,
                "name": owner.name,
                "uid": owner.uid,
                "controller": True,
            }
        ],
    }
    return msgspec.json.encode(
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}
    )


def _unreserved(texts: Mapping[str, str] | None) -> dict[str, str]:
    return {key: value for key, value in (texts or {}).items() if not _is_reserved(key)}


def _is_reserved(key: str) -> bool:
    domain = key.rpartition("/")[0].lower()
    return any(domain == reserved or domain.endswith(f".{reserved}") for reserved in _RESERVED)


def generated_base(owner: str, entry: str) -> str:
    """Return `<owner>-<entry>-`, both cut in proportion so that a name with its suffix stays within a DNS label."""
    longest = _LONGEST_BASE - 1
    total = len(owner) + len(entry)
    if total > longest:
        room = max(1, longest * len(owner) // total)
        # What is cut off may leave a dot or a hyphen at the end, which cannot be followed by another.
        owner, entry = owner[:room].rstrip("-."), entry[: longest - room].rstrip("-.")
    return f"{owner}-{entry}-"

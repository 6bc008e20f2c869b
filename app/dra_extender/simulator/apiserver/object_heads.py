"""The part of an object that is looked at before it is taken over from another cluster: what finds it, and what edits rely on."""

from typing import Any, Final

import msgspec

from dra_extender.model.api_json import ModelError, Value, decode
from dra_extender.model.metadata import ObjectMeta
from dra_extender.simulator.apiserver.objects import StoredKind

_NEED_SPEC: Final = (StoredKind.POD, StoredKind.SLICE)


class _Consumer(Value, frozen=True):
    uid: str = ""
    name: str = ""


class _ClaimEntry(Value, frozen=True):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class _GroupReference(Value, frozen=True):
    pod_group_name: str | None = None
    pod_group: str | None = None


class _Pool(Value, frozen=True):
    name: str = ""


class _Spec(Value, frozen=True):
    node_name: str | None = None
    resource_claims: tuple[_ClaimEntry, ...] | None = None
    scheduling_group: _GroupReference | None = None
    workload_ref: _GroupReference | None = None
    taints: tuple[dict[str, Any], ...] | None = None
    pool: _Pool | None = None


class _Status(Value, frozen=True):
    phase: str | None = None
    reserved_for: tuple[_Consumer, ...] | None = None
    resource_claim_statuses: tuple[_ClaimEntry, ...] | None = None


class ObjectHead(Value, frozen=True):
    """What finds an object, and the fields of any kind on whose types edits rely."""

    metadata: ObjectMeta
    spec: _Spec | None = None
    status: _Status | None = None


_DECODER: Final = msgspec.json.Decoder(ObjectHead)


def read_object_head(kind: StoredKind, data: bytes) -> ObjectHead:
    """Read the head of an object (API JSON).

    Raises:
        ModelError: a field has another type, or name, UID, namespace or spec are missing.
    """
    head = decode(kind.singular, _DECODER, data)
    metadata = head.metadata
    if not (metadata.name and metadata.uid) or bool(metadata.namespace) is not kind.namespaced:
        raise ModelError(f"{kind.singular}: expected a name, a UID, and a namespace where the kind has one")
    if head.spec is None and kind in _NEED_SPEC:
        raise ModelError(f"{kind.singular}: expected a spec")
    return head

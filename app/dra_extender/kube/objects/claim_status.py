from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from dra_extender.kube.client.errors import RequestIntent
from dra_extender.kube.client.resources import ResourceKind
from dra_extender.kube.client.retry import perform
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import STRATEGIC_MERGE_PATCH, ApiCall, ApiTransport
from dra_extender.model.api_json import ModelError, Value, decode
from dra_extender.scheduling.ports.cluster import RequestRejectedError, ServerUnavailableError


class StatusPrecondition(NamedTuple):
    """The state of a pod or PodGroup from which it was decided what to record."""

    kind: ResourceKind
    namespace: str
    name: str
    uid: str
    version: str


class _Entry(Value, frozen=True):
    name: str = ""
    resource_claim_name: str | None = None


class _Status(Value, frozen=True):
    resource_claim_statuses: tuple[_Entry, ...] = ()


class _Stored(Value, frozen=True):
    status: _Status = _Status()


_DECODER: Final = msgspec.json.Decoder(_Stored)


async def record_claims(
    transport: ApiTransport, settings: KubeSettings, thing: StatusPrecondition, claims: Mapping[str, str]
) -> None:
    """Add {entry: claim} to `status.resourceClaimStatuses`; other entries stay.

    A strategic merge uses the list's key, and the resourceVersion prevents replacing entries of other writers.

    Raises:
        ConflictError: the object is not in this version any more.
        RequestRejectedError: also if the server did not keep the entries.
        ClusterError: any other kind.
    """
    intent = RequestIntent("patch", f"{thing.kind.plural}/status", f"{thing.namespace}/{thing.name}")
    entries = [{"name": entry, "resourceClaimName": claim} for entry, claim in sorted(claims.items())]
    change = {
        "metadata": {"uid": thing.uid, "resourceVersion": thing.version},
        "status": {"resourceClaimStatuses": entries},
    }
    call = ApiCall(
        intent,
        "PATCH",
        thing.kind.path(thing.namespace, thing.name, "status"),
        settings.timeouts.write,
        query={"fieldManager": settings.identity},
        body=msgspec.json.encode(change),
        content_type=STRATEGIC_MERGE_PATCH,
    )
    answer = await perform(transport, call)
    try:
        stored = decode(str(intent), _DECODER, answer)
    except ModelError as problem:
        raise ServerUnavailableError(f"the answer cannot be read: {problem}") from problem
    kept = {each.name: each.resource_claim_name for each in stored.status.resource_claim_statuses}
    lost = [entry for entry, claim in sorted(claims.items()) if kept.get(entry) != claim]
    if lost:
        raise RequestRejectedError(
            f"{intent}: the API server does not keep status.resourceClaimStatuses of {', '.join(lost)} "
            "(DRAWorkloadResourceClaims is off there?)"
        )

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from app.kube.errors import Intent
from app.kube.kinds import Kind
from app.kube.requests import perform
from app.kube.settings import KubeSettings
from app.kube.transport import STRATEGIC_MERGE_PATCH, Call, Transport


class Recorded(NamedTuple):
    """The state of a pod or PodGroup from which it was decided what to record."""

    kind: Kind
    namespace: str
    name: str
    uid: str
    version: str


async def record_claims(
    transport: Transport, settings: KubeSettings, thing: Recorded, claims: Mapping[str, str]
) -> None:
    """Add {entry: claim} to `status.resourceClaimStatuses`; other entries stay.

    A strategic merge knows the list's key, and the resourceVersion makes sure that nobody else's entry is replaced.

    Raises:
        Conflict: the object is not in this version any more.
        ClusterError: any other kind.
    """
    intent = Intent("patch", f"{thing.kind.plural}/status", f"{thing.namespace}/{thing.name}")
    entries = [{"name": entry, "resourceClaimName": claim} for entry, claim in sorted(claims.items())]
    change = {
        "metadata": {"uid": thing.uid, "resourceVersion": thing.version},
        "status": {"resourceClaimStatuses": entries},
    }
    call = Call(
        intent,
        "PATCH",
        thing.kind.path(thing.namespace, thing.name, "status"),
        settings.timeouts.write,
        query={"fieldManager": settings.identity},
        body=msgspec.json.encode(change),
        content_type=STRATEGIC_MERGE_PATCH,
    )
    await perform(transport, call)

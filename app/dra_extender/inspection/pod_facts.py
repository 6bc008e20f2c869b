"""What a pod says of its own state for people: its age, its scheduling gates, and why kube-scheduler has not placed it."""

from typing import Final

import msgspec

from dra_extender.model.api_json import Value, decode
from dra_extender.model.metadata import OwnerReference, seconds_of
from dra_extender.model.pod import PodObject

SCHEDULING_GATED: Final = "SchedulingGated"
"""The reason in the condition PodScheduled that the API server gives, and no scheduler."""
_SCHEDULED: Final = "PodScheduled"


class PodFacts(Value, frozen=True, rename=None):
    """Times are seconds since the epoch, None where the pod does not tell.

    `reason` and `message` are those of the condition PodScheduled while it is not true.
    """

    key: tuple[str, str]
    phase: str = ""
    created: float | None = None
    gates: tuple[str, ...] = ()
    reason: str = ""
    message: str = ""
    uid: str = ""
    owners: tuple[OwnerReference, ...] = ()


_DECODER: Final = msgspec.json.Decoder(PodObject)


def read_pod_facts(data: bytes) -> PodFacts:
    """The facts in a pod (API JSON).

    Raises:
        ModelError: not a Pod; the message names the field.
    """
    pod = decode("Pod", _DECODER, data)
    waiting = next(
        (each for each in pod.status.conditions or () if each.type == _SCHEDULED and each.status != "True"), None
    )
    return PodFacts(
        key=pod.metadata.key,
        phase=pod.status.phase or "",
        created=seconds_of(pod.metadata.creation_timestamp),
        gates=tuple(each.name for each in pod.spec.scheduling_gates or ()),
        reason="" if waiting is None else waiting.reason,
        message="" if waiting is None else waiting.message,
        uid=pod.metadata.uid,
        owners=pod.metadata.owner_references,
    )

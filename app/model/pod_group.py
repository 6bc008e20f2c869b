import msgspec

from app.model.base import Value, decode
from app.model.metadata import ObjectMeta
from app.model.pod import PodClaimStatus, PodResourceClaim


class PodGroupSpec(Value, frozen=True):
    """`spec` of a PodGroup, as far as claims are concerned."""

    resource_claims: tuple[PodResourceClaim, ...] = ()


class PodGroupStatus(Value, frozen=True):
    """`status` of a PodGroup, as far as claims are concerned."""

    resource_claim_statuses: tuple[PodClaimStatus, ...] = ()


class PodGroup(Value, frozen=True):
    """A PodGroup of scheduling.k8s.io; the same fields in v1alpha2, v1alpha3 and v1beta1."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


_DECODER = msgspec.json.Decoder(PodGroup)


def read_pod_group(data: bytes) -> PodGroup:
    """The PodGroup in `data` (API JSON).

    Raises:
        ModelError: not a PodGroup; the message names the field.
    """
    return decode("PodGroup", _DECODER, data)

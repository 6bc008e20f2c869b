"""The fields of a pod that kube-scheduler's own filters read."""

from typing import Annotated

import msgspec

from dra_extender.model.allocation import DeviceToleration
from dra_extender.model.api_json import Value
from dra_extender.model.fields import Empty, Format, Mark, Name, Word
from dra_extender.model.node_selector import NodeSelector, NodeSelectorTerm


class Toleration(Value, frozen=True):
    """A toleration of a pod for taints of nodes."""

    key: Annotated[str, Format.TOLERATION_KEY] = ""
    operator: Word = ""
    value: Name = ""
    effect: Word = ""
    toleration_seconds: int | None = None

    def of_device(self) -> DeviceToleration:
        """Return the same for taints of devices: one rule decides about both."""
        return DeviceToleration(key=self.key, operator=self.operator, value=self.value, effect=self.effect)


class PreferredTerm(Value, frozen=True):
    """A term of node affinity that need not hold."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Value, frozen=True):
    """The nodes that a pod may go to, and those that it prefers."""

    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: tuple[PreferredTerm, ...] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class PodTerm(Value, frozen=True):
    """A term of affinity to pods."""

    topology_key: Word = ""


class PodTerms(Value, frozen=True):
    """Affinity to pods, or the opposite."""

    required: tuple[PodTerm, ...] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(Value, frozen=True):
    """`spec.affinity` of a pod."""

    node_affinity: Annotated[NodeAffinity, Mark.WHOLE] | None = None
    pod_affinity: PodTerms | None = None
    pod_anti_affinity: PodTerms | None = None


class SpreadConstraint(Value, frozen=True):
    """An entry of `spec.topologySpreadConstraints`."""

    when_unsatisfiable: Word = ""


class VolumeClaim(Value, frozen=True):
    """The PersistentVolumeClaim of a volume."""

    claim_name: Name = ""


class Volume(Value, frozen=True):
    """A volume of a pod; what is in it is nobody's business."""

    name: Name = ""
    ephemeral: Empty | None = None
    persistent_volume_claim: VolumeClaim | None = None

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from tests.controlplane.objects import DRIVER, Object

Identity = Literal["own", "admin"]
WITH_POD_GROUP_CLAIMS: Final[Mapping[str, bool]] = {"GenericWorkload": True, "DRAWorkloadResourceClaims": True}
WITHOUT_POD_GROUP_CLAIMS: Final[Mapping[str, bool]] = {"GenericWorkload": True, "DRAWorkloadResourceClaims": False}


def gpus(count: int) -> tuple[Object, ...]:
    """Devices `gpu-0`, `gpu-1`, ... with their number as the attribute `index`."""
    return tuple({"name": f"gpu-{number}", "attributes": {"index": {"int": number}}} for number in range(count))


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """How a node is started.

    `gates` are the kubelet's, `labels` the node's.  The driver publishes `devices`, and `counter_sets` in a slice of their own, as
    one pool that is called like the node.  `identity` is the kubelet's: `own` is the user `system:node:NAME` of the group
    `system:nodes`, which the control plane must know (see `ControlPlaneOptions.users`), and which the Node authorizer lets read
    what is bound to the node, up to half a minute later; `admin` reads at once.
    """

    gates: Mapping[str, bool] = field(default_factory=lambda: dict(WITH_POD_GROUP_CLAIMS))
    identity: Identity = "own"
    driver: str = DRIVER
    devices: Sequence[Object] = field(default_factory=lambda: gpus(4))
    counter_sets: Sequence[Object] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

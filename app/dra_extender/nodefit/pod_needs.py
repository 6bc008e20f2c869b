"""What kube-scheduler's own filters read of a pod: amounts of resources, ports, tolerations, node selector and node affinity."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dra_extender.model.allocation import DeviceToleration
from dra_extender.model.api_json import Value, decode, from_json
from dra_extender.model.metadata import ObjectMeta
from dra_extender.model.node_selector import NodeSelector
from dra_extender.nodefit.pod_requests import Amounts, Container, HostPort, Resources, host_ports, pod_requests

_ENDED: Final = frozenset({"Succeeded", "Failed"})


class Toleration(Value, frozen=True):
    """A toleration of a pod for taints of nodes."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""

    def of_device(self) -> DeviceToleration:
        """The same for taints of devices: one rule decides about both."""
        return DeviceToleration(key=self.key, operator=self.operator, value=self.value, effect=self.effect)


class _NodeAffinity(Value, frozen=True):
    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class _Affinity(Value, frozen=True):
    node_affinity: _NodeAffinity | None = None


class _Spec(Value, frozen=True):
    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: _Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    overhead: Amounts | None = None
    host_network: bool | None = None
    resources: Resources | None = None
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None


class _Status(Value, frozen=True):
    phase: str | None = None


class _WirePod(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    def needs(self) -> "PodNeeds":
        spec, affinity = self.spec, self.spec.affinity
        node_affinity = None if affinity is None else affinity.node_affinity
        containers, init_containers = spec.containers or (), spec.init_containers or ()
        running = (*containers, *(each for each in init_containers if each.restart_policy == "Always"))
        ports = (port for each in running for port in each.ports or ())
        return PodNeeds(
            key="/".join(self.metadata.key),
            node=spec.node_name or "",
            ended=self.status.phase in _ENDED,
            amounts=pod_requests(containers, init_containers, spec.resources, spec.overhead),
            ports=tuple(host_ports(ports, host_network=bool(spec.host_network))),
            tolerations=spec.tolerations or (),
            node_selector=spec.node_selector or {},
            affinity=None if node_affinity is None else node_affinity.required,
        )


class PodNeeds(Value, frozen=True, rename=None):
    """Amounts are nano-units, by resource.  `node` is where the pod runs or is to run; empty as long as it has none.

    `ended`: it has run to its end and takes nothing.
    """

    key: str
    node: str = ""
    ended: bool = False
    amounts: Mapping[str, int] = {}
    ports: tuple[HostPort, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    node_selector: Mapping[str, str] = {}
    affinity: NodeSelector | None = None


_DECODER: Final = msgspec.json.Decoder(_WirePod)


def read_pod_needs(data: bytes) -> PodNeeds:
    """The needs of the pod in `data` (API JSON).

    Raises:
        ModelError: not a Pod; the message names the field.
    """
    return decode("Pod", _DECODER, data).needs()


def pod_needs_from(raw: Any) -> PodNeeds:
    """As `read_pod_needs`, from decoded JSON."""
    return from_json("Pod", _WirePod, raw).needs()

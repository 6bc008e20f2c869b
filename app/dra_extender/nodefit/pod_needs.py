"""What kube-scheduler's own filters read of a pod: amounts of resources, ports, tolerations, node selector and node affinity."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dra_extender.model.api_json import Value, decode, from_json
from dra_extender.model.node_selector import NodeSelector
from dra_extender.model.pod import WholePod
from dra_extender.model.pod_placement import Toleration
from dra_extender.nodefit.pod_requests import HostPort, host_ports, pod_requests

_ENDED: Final = frozenset({"Succeeded", "Failed"})


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


_DECODER: Final = msgspec.json.Decoder(WholePod)


def read_pod_needs(data: bytes) -> PodNeeds:
    """Return the needs of the pod in `data` (API JSON).

    Raises:
        ModelError: not a Pod; the message names the field.
    """
    return _pod_needs(decode("Pod", _DECODER, data))


def pod_needs_from(raw: Any) -> PodNeeds:
    """Return the needs of `read_pod_needs` from decoded JSON."""
    return _pod_needs(from_json("Pod", WholePod, raw))


def _pod_needs(pod: WholePod) -> PodNeeds:
    spec, affinity = pod.spec, pod.spec.affinity
    node_affinity = None if affinity is None else affinity.node_affinity
    containers, init_containers = spec.containers or (), spec.init_containers or ()
    running = (*containers, *(each for each in init_containers if each.restart_policy == "Always"))
    ports = (port for each in running for port in each.ports or ())
    return PodNeeds(
        key="/".join(pod.metadata.key),
        node=spec.node_name or "",
        ended=pod.status.phase in _ENDED,
        amounts=pod_requests(containers, init_containers, spec.resources, spec.overhead),
        ports=tuple(host_ports(ports, host_network=bool(spec.host_network))),
        tolerations=spec.tolerations or (),
        node_selector=spec.node_selector or {},
        affinity=None if node_affinity is None else node_affinity.required,
    )

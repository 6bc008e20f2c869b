"""What kube-scheduler's own filters read of a pod: amounts of resources, ports, tolerations, node selector and node affinity."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from dra_extender.cel.values.quantity import NANO, QuantityError, parse_quantity
from dra_extender.model.api_json import Value, decode, from_json
from dra_extender.model.names import HUGE_PAGES_PREFIX, NATIVE_DOMAIN
from dra_extender.model.node_selector import NodeSelector
from dra_extender.model.pod import FINISHED_PHASES, Amounts, Container, Port, Resources, WholePod, is_extended
from dra_extender.model.pod_placement import Toleration

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"
_MILLI: Final = NANO // 1_000
_VOLUMES: Final = "attachable-volumes-"
_ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - the API's own word for all addresses
_TCP: Final = "TCP"


class HostPort(Value, frozen=True, rename=None):
    """A port of the host on one of its addresses, or on all of them."""

    port: int
    protocol: str
    address: str

    def __str__(self) -> str:
        """E.g. `8080/TCP`; an address stands before it, unless all are meant."""
        where = "" if self.address == _ANY_ADDRESS else f"{self.address}:"
        return f"{where}{self.port}/{self.protocol}"


def pod_requests(
    containers: Iterable[Container],
    init_containers: Iterable[Container],
    pod_resources: Resources | None,
    overhead: Amounts | None,
) -> Mapping[str, int]:
    """Return the requests of the pod by resource, only those of NodeResourcesFit; amounts that are no quantities count as nothing.

    `pod_resources`: what the pod asks for in the place of its containers (KEP-2837).
    """
    requests = _of_containers(containers, init_containers)
    requests |= _of_whole(pod_resources, requests)
    for name, amount in _parsed(overhead).items():
        requests[name] = requests.get(name, 0) + amount
    return in_units({name: amount for name, amount in requests.items() if name != PODS})


def in_units(amounts: Mapping[str, int]) -> Mapping[str, int]:
    """Return the resources that NodeResourcesFit knows, CPU rounded up to thousandths, others to one (`framework.Resource`)."""
    return {
        name: -(-amount // unit) * unit
        for name, amount in amounts.items()
        if _is_known(name)
        for unit in (_MILLI if name == CPU else NANO,)
    }


def read_amounts(listed: Mapping[str, str | float] | None) -> dict[str, int]:
    """Return quantities by resource, in whole units; those that cannot be read are left out."""
    return dict(in_units(_parsed(listed)))


def _of_containers(containers: Iterable[Container], init_containers: Iterable[Container]) -> dict[str, int]:
    """Return all containers and sidecars together, or if more, an init container with the sidecars before it (KEP-753)."""
    total: Counter[str] = Counter()
    for container in containers:
        total.update(_amounts(container.resources))
    sidecars: Counter[str] = Counter()
    largest: dict[str, int] = {}
    for container in init_containers:
        own = Counter(_amounts(container.resources))
        if container.restart_policy == "Always":
            total.update(own)
            sidecars.update(own)
            own = sidecars
        else:
            own.update(sidecars)
        for name, amount in own.items():
            largest[name] = max(amount, largest.get(name, 0))
    return {name: max(total[name], largest.get(name, 0)) for name in {*total, *largest}}


def _of_whole(pod_resources: Resources | None, of_containers: Mapping[str, int]) -> dict[str, int]:
    """Return CPU, memory and huge pages of the pod as a whole.

    A limit without a request is a request only where no container asks for the resource; for huge pages, which are never
    overcommitted, in any case.
    """
    if pod_resources is None:
        return {}
    requests, limits = _parsed(pod_resources.requests), _parsed(pod_resources.limits)
    defaults = {
        name: amount
        for name, amount in limits.items()
        if name.startswith(HUGE_PAGES_PREFIX) or name not in of_containers
    }
    return {
        name: amount
        for name, amount in {**defaults, **requests}.items()
        if name in (CPU, MEMORY) or name.startswith(HUGE_PAGES_PREFIX)
    }


def _amounts(resources: Resources | None) -> dict[str, int]:
    """Return the requests; a limit without a request counts as a request, as in the API server."""
    return {} if resources is None else {**_parsed(resources.limits), **_parsed(resources.requests)}


def _is_known(name: str) -> bool:
    """Return whether `framework.Resource` counts the resource; it counts no others, such as `storage`."""
    if name in (CPU, MEMORY, EPHEMERAL_STORAGE, PODS):
        return True
    return name.startswith((HUGE_PAGES_PREFIX, _VOLUMES)) or NATIVE_DOMAIN in name or is_extended(name)


def _parsed(amounts: Mapping[str, str | float] | None) -> dict[str, int]:
    quantities: dict[str, int] = {}
    for name, text in (amounts or {}).items():
        try:
            quantities[name] = parse_quantity(str(text))
        except QuantityError:
            continue
    return quantities


def host_ports(ports: Iterable[Port], *, host_network: bool) -> Iterator[HostPort]:
    """Yield the ports of containers that are ports of the host; with `host_network` all are, as the API server fills them in."""
    for port in ports:
        number = port.host_port or (port.container_port if host_network else 0)
        if number > 0:
            yield HostPort(port=number, protocol=port.protocol or _TCP, address=port.host_ip or _ANY_ADDRESS)


def conflicting(requested: Iterable[HostPort], used: Iterable[HostPort]) -> Iterator[HostPort]:
    """Yield the requested ports that are in use on the same address, or on all (`framework.HostPortInfo.CheckConflict`)."""
    used_addresses: dict[tuple[int, str], set[str]] = {}
    for port in used:
        used_addresses.setdefault((port.port, port.protocol), set()).add(port.address)
    for port in requested:
        addresses = used_addresses.get((port.port, port.protocol))
        if addresses and (port.address == _ANY_ADDRESS or not addresses.isdisjoint((port.address, _ANY_ADDRESS))):
            yield port


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


class _AmountsSpec(Value, frozen=True):
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    overhead: Amounts | None = None
    resources: Resources | None = None


class _AmountsObject(Value, frozen=True):
    spec: _AmountsSpec = _AmountsSpec()


_AMOUNTS_DECODER: Final = msgspec.json.Decoder(_AmountsObject)


def read_pod_amounts(data: bytes) -> Mapping[str, int]:
    """Return what the pod in `data` (API JSON) requests, in nano-units by resource.

    Raises:
        ModelError: not a Pod; the message names the field.
    """
    spec = decode("Pod", _AMOUNTS_DECODER, data).spec
    return pod_requests(spec.containers or (), spec.init_containers or (), spec.resources, spec.overhead)


def pod_needs_from(raw: Any) -> PodNeeds:
    return _pod_needs(from_json("Pod", WholePod, raw))


def _pod_needs(pod: WholePod) -> PodNeeds:
    spec, affinity = pod.spec, pod.spec.affinity
    node_affinity = None if affinity is None else affinity.node_affinity
    containers, init_containers = spec.containers or (), spec.init_containers or ()
    running = (*containers, *(container for container in init_containers if container.restart_policy == "Always"))
    ports = (port for container in running for port in container.ports or ())
    return PodNeeds(
        key=pod.metadata.full_name,
        node=spec.node_name or "",
        ended=pod.status.phase in FINISHED_PHASES,
        amounts=pod_requests(containers, init_containers, spec.resources, spec.overhead),
        ports=tuple(host_ports(ports, host_network=bool(spec.host_network))),
        tolerations=spec.tolerations or (),
        node_selector=spec.node_selector or {},
        affinity=None if node_affinity is None else node_affinity.required,
    )

"""What kube-scheduler's own filters read of a pod: amounts of resources, tolerations, node selector and node affinity."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec

from dra_extender.model.api_json import Value, decode
from dra_extender.model.metadata import ObjectMeta
from dra_extender.model.node_selector import NodeSelector
from dra_extender.model.quantity import QuantityError, parse_quantity

_ENDED: Final = frozenset({"Succeeded", "Failed"})
_POD_LEVEL: Final = ("cpu", "memory", "hugepages-")
"""Resources (or prefixes of them) that a pod may ask for as a whole, in the place of its containers (KEP-2837)."""

Amounts = dict[str, str | int | float]


class Toleration(Value, frozen=True):
    """A toleration of a pod for taints of nodes."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class _Resources(Value, frozen=True):
    requests: Amounts | None = None
    limits: Amounts | None = None


class _Container(Value, frozen=True):
    restart_policy: str | None = None
    resources: _Resources | None = None


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
    resources: _Resources | None = None
    containers: tuple[_Container, ...] | None = None
    init_containers: tuple[_Container, ...] | None = None


class _Status(Value, frozen=True):
    phase: str = ""


class _WirePod(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


class PodNeeds(Value, frozen=True, rename=None):
    """Amounts are nano-units, by resource.  `node` is where the pod runs or is to run; empty as long as it has none."""

    key: str
    node: str = ""
    ended: bool = False
    amounts: Mapping[str, int] = {}
    tolerations: tuple[Toleration, ...] = ()
    node_selector: Mapping[str, str] = {}
    affinity: NodeSelector | None = None


_DECODER: Final = msgspec.json.Decoder(_WirePod)


def read_pod_needs(data: bytes) -> PodNeeds:
    """The needs of the pod in `data` (API JSON); amounts that are no quantities count as nothing.

    Raises:
        ModelError: not a Pod; the message names the field.
    """
    pod = decode("Pod", _DECODER, data)
    spec, affinity = pod.spec, pod.spec.affinity
    node_affinity = None if affinity is None else affinity.node_affinity
    return PodNeeds(
        key="/".join(pod.metadata.key),
        node=spec.node_name or "",
        ended=pod.status.phase in _ENDED,
        amounts=_requested(spec),
        tolerations=spec.tolerations or (),
        node_selector=spec.node_selector or {},
        affinity=None if node_affinity is None else node_affinity.required,
    )


def _requested(spec: _Spec) -> Mapping[str, int]:
    """As component-helpers `resource.PodRequests`: all containers and sidecars, or the largest init container with them."""
    total: Counter[str] = Counter()
    for each in spec.containers or ():
        total.update(_amounts(each.resources))
    sidecars: Counter[str] = Counter()
    largest: dict[str, int] = {}
    for each in spec.init_containers or ():
        own = Counter(_amounts(each.resources))
        if each.restart_policy == "Always":
            total.update(own)
            sidecars.update(own)
            own = sidecars
        else:
            own.update(sidecars)
        for name, amount in own.items():
            largest[name] = max(amount, largest.get(name, 0))
    found = {name: max(total[name], largest.get(name, 0)) for name in {*total, *largest}}
    found |= {name: amount for name, amount in _amounts(spec.resources).items() if name.startswith(_POD_LEVEL)}
    for name, amount in _parsed(spec.overhead).items():
        found[name] = found.get(name, 0) + amount
    return found


def _amounts(resources: _Resources | None) -> dict[str, int]:
    """What is requested; a limit without a request is a request, as the API server has it."""
    return {} if resources is None else {**_parsed(resources.limits), **_parsed(resources.requests)}


def _parsed(amounts: Amounts | None) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, text in (amounts or {}).items():
        try:
            found[name] = parse_quantity(str(text))
        except QuantityError:
            continue
    return found

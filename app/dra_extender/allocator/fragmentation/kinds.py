"""The kinds of pods that are expected: what one pod of a kind asks for, and how often such pods come."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from dra_extender.allocator.demand.demand import ALL, Demand, SearchableRequest
from dra_extender.model.resource_claim import ResourceClaim

MOST_KINDS: Final = 64
"""How many kinds are expected at most; the lightest are left out."""
MOST_SHAPES: Final = 64
"""How many shapes the expected kinds have together at most: each one costs time in every search."""
_AMOUNT_BITS: Final = 2
_SHARE_BITS: Final = 4
_MOST_REQUESTS: Final = 8
_MOST_DEVICES: Final = 128
_MOST_DRIVERS: Final = 4
_CPU_OF_A_DEVICE: Final = 1_000
_MEMORY_OF_A_DEVICE: Final = 2**30


class NodeAmounts(NamedTuple):
    """CPU in thousandths and memory in bytes."""

    cpu: int
    memory: int

    def without(self, amounts: "NodeAmounts") -> "NodeAmounts":
        return NodeAmounts(self.cpu - amounts.cpu, self.memory - amounts.memory)

    def rounded(self) -> "NodeAmounts":
        """Return the nearest of 1, 1.5, 2, 3, 4, 6 and so on, equal for pods that differ little."""
        return NodeAmounts(_rounded(self.cpu, _AMOUNT_BITS), _rounded(self.memory, _AMOUNT_BITS))


NO_AMOUNTS: Final = NodeAmounts(0, 0)

ShapeKey = Hashable
"""Equal for requests that the same devices serve with the same share."""


class WholeDevice(NamedTuple):
    """The shape of a whole device of a driver, whatever its class: of devices that share counters, the one that is most of them.

    Where none is more than half of them, there are only parts.
    """

    driver: str


class ShapeCount(NamedTuple):
    """So many devices, each of this shape."""

    shape: ShapeKey
    request: SearchableRequest | WholeDevice
    devices: int


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """What one pod asks for; pods of one kind have equal `key`."""

    key: Hashable
    label: str
    requests: tuple[ShapeCount, ...]
    amounts: NodeAmounts

    @property
    def devices(self) -> int:
        return sum(request.devices for request in self.requests)


class ExpectedPod(NamedTuple):
    """A pod that the administrator expects: what it asks for, and how often such pods come beside the others."""

    name: str
    weight: float
    amounts: NodeAmounts
    claim: ResourceClaim


def shape_of(request: SearchableRequest) -> ShapeKey:
    """Return the shape of a request; unlike its `equivalence_key`, it stays equal while caches of selectors come and go.

    Shares that differ by less than a sixteenth mostly have one shape, that of the first.
    """
    capacity = tuple(sorted((name, _rounded(amount, _SHARE_BITS)) for name, amount in request.capacity.items()))
    return request.device_class.name, request.selectors.expressions, request.tolerations, capacity


def kind_of(demand: Demand, amounts: NodeAmounts) -> Kind | None:
    """Return the kind of a pod with this demand; None for a pod that no expectation can be made of.

    CPU and memory are rounded (to 1, 1.5, 2, 3, 4, 6 and so on), because pods that differ little are expected as one kind.
    Of a request with alternatives, the first counts.  Requests with admin access take nothing.  A pod that asks for all devices of
    a node, for more than 128 devices or with more than 8 shapes is of no kind, which bounds what expected kinds cost.
    """
    counts: dict[ShapeKey, tuple[SearchableRequest, int]] = {}
    for claim in demand.claims:
        for request in claim.requests:
            option = request.options[0]
            if option.count == ALL:
                return None
            if option.admin or not option.count:
                continue
            shape = shape_of(option)
            earlier = counts.get(shape)
            counts[shape] = option, option.count + (0 if earlier is None else earlier[1])
    requests = tuple(ShapeCount(shape, *option_and_count) for shape, option_and_count in counts.items())
    if (
        not requests
        or len(requests) > _MOST_REQUESTS
        or sum(shape_count.devices for shape_count in requests) > _MOST_DEVICES
    ):
        return None
    amounts = amounts.rounded()
    key = (frozenset((shape_count.shape, shape_count.devices) for shape_count in requests), amounts)
    label = " + ".join(f"{devices} x {option.device_class.name}" for option, devices in counts.values())
    return Kind(key, label, requests, amounts)


def whole_kinds(devices: Mapping[str, int]) -> Iterator[Kind]:
    """Yield what pods ask for that want all, half, a quarter and so on of so many whole devices by driver.

    Each device comes with one core and 1 GiB.  Of drivers, the four with most devices count, which bounds the kinds.
    """
    for driver, device_count in sorted(
        devices.items(), key=lambda driver_and_count: (-driver_and_count[1], driver_and_count[0])
    )[:_MOST_DRIVERS]:
        shape, count = WholeDevice(driver), min(device_count, _MOST_DEVICES)
        while count:
            amounts = NodeAmounts(_CPU_OF_A_DEVICE * count, _MEMORY_OF_A_DEVICE * count)
            yield Kind((shape, count), f"{count} x {driver}", (ShapeCount(shape, shape, count),), amounts)
            count //= 2


def heaviest(weights: Mapping[Kind, float]) -> Sequence[Kind]:
    """Return the kinds that ask for most devices, weighted by how often they come; at most 64, with at most 64 shapes together."""
    ranked = sorted(weights, key=lambda kind: (-weights[kind] * kind.devices, kind.label, kind.amounts))
    chosen: list[Kind] = []
    shapes: frozenset[ShapeKey] = frozenset()
    for kind in ranked:
        joined = shapes.union(request.shape for request in kind.requests)
        if len(joined) <= MOST_SHAPES:
            chosen.append(kind)
            shapes = joined
    return chosen[:MOST_KINDS]


def _rounded(amount: int, bits: int) -> int:
    """Return the nearest amount with so many significant bits."""
    dropped = amount.bit_length() - bits
    if dropped <= 0:
        return amount
    return (amount + (1 << dropped >> 1)) >> dropped << dropped

"""Partitions of GPUs that come in a mix and end at random: how many are refused that would fit if all were placed anew."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple, Protocol

from tests.bench import workload
from tests.bench.fits.ours import Product
from tests.controlplane import objects
from tests.controlplane.objects import Object
from tests.support.allocator.mig import PROFILES

GPUS_OF_A_NODE: Final = 8
_SLICES: Final = 8
_LOAD: Final = 0.9
_CLASS: Final = "mig"
_CORES: Final = 8


class Placement(NamedTuple):
    """A partition: its GPU, counted over all nodes, and the memory slice at which it starts."""

    gpu: int
    profile: str
    start: int

    @property
    def mask(self) -> int:
        return mask(self.profile, self.start)

    @property
    def node(self) -> int:
        return self.gpu // GPUS_OF_A_NODE


def mask(profile: str, start: int) -> int:
    return ((1 << PROFILES[profile][1]) - 1) << start


class MigRule(Protocol):
    """Places partitions on GPUs whose used memory slices are the bits of `used`."""

    def place(self, used: Sequence[int], profile: str) -> Placement | None: ...

    def end(self, placement: Placement) -> None: ...


class Chosen:
    """The free placement with the least cost, of equal ones the first."""

    def __init__(self, cost: Callable[[Sequence[int], Placement], float]) -> None:
        self._cost = cost

    def place(self, used: Sequence[int], profile: str) -> Placement | None:
        return min(free(used, profile), key=lambda placement: self._cost(used, placement), default=None)

    def end(self, placement: Placement) -> None:
        pass


def free(used: Sequence[int], profile: str) -> Iterator[Placement]:
    placements = [(start, mask(profile, start)) for start in PROFILES[profile][2]]
    return (
        Placement(gpu, profile, start)
        for gpu, taken in enumerate(used)
        for start, wanted in placements
        if not taken & wanted
    )


def first_fit() -> MigRule:
    return Chosen(lambda used, placement: 0.0)


def best_fit() -> MigRule:
    """Return the rule that takes the GPU with the least left."""
    return Chosen(lambda used, placement: -used[placement.gpu].bit_count())


def in_tree() -> MigRule:
    """Return kube-scheduler's default: the node of which least is used, and there the first partition.

    Pods ask for CPU and memory in proportion to the slices of their partitions.
    """

    def taken(used: Sequence[int], placement: Placement) -> float:
        begin = placement.node * GPUS_OF_A_NODE
        return sum(mask.bit_count() for mask in used[begin : begin + GPUS_OF_A_NODE])

    return Chosen(taken)


class PreservedMig:
    """The product."""

    def __init__(self, gpus: int) -> None:
        self._nodes = [workload.node_name(number) for number in range(gpus // GPUS_OF_A_NODE)]
        self._product = Product(
            [objects.device_class(_CLASS)],
            [objects.node(name, cpu=str(_SLICES * GPUS_OF_A_NODE * _CORES)) for name in self._nodes],
            [each for name in self._nodes for each in node_slices(name)],
        )
        self._pods: dict[Placement, tuple[Object, Sequence[Object]]] = {}
        self._costs: dict[tuple[str, tuple[int, ...]], float | None] = {}
        self._count = 0

    def place(self, used: Sequence[int], profile: str) -> Placement | None:
        self._count += 1
        pod = objects.pod(
            f"pod-{self._count}", workload.NAMESPACE, cpu=cores(profile), claims={"gpu": f"c-{self._count}"}
        )
        selector = f'device.attributes["{objects.DRIVER}"].profile == "{profile}"'
        wanted = objects.request("gpu", _CLASS, selector, allocationMode="ExactCount")
        claims = [objects.resource_claim(f"c-{self._count}", workload.NAMESPACE, wanted)]
        if self._product.arrives(pod, claims):
            self._costs.clear()
        costs = [
            (cost, number)
            for number in range(len(self._nodes))
            if (cost := self._cost(used, profile, number)) is not None
        ]
        if not costs:
            self._product.end(pod, claims)
            return None
        node = min(costs)[1]
        (device,) = self._product.take(self._nodes[node])
        _, gpu, *_, start = device.split("-")
        placement = Placement(node * GPUS_OF_A_NODE + int(gpu), profile, int(start))
        self._pods[placement] = pod, claims
        return placement

    def _cost(self, used: Sequence[int], profile: str, node: int) -> float | None:
        state = tuple(sorted(used[node * GPUS_OF_A_NODE : (node + 1) * GPUS_OF_A_NODE]))
        key = profile, state
        if key not in self._costs:
            self._costs[key] = self._product.cost(self._nodes[node], state)
        return self._costs[key]

    def end(self, placement: Placement) -> None:
        self._product.end(*self._pods.pop(placement))


def cores(profile: str) -> str:
    return str(_CORES * PROFILES[profile][1])


def node_slices(name: str) -> Sequence[Object]:
    """The GPUs of a node as NVIDIA's DRA driver publishes them: a counter for each memory slice, a device for each placement."""
    counters, devices = [], []
    for gpu in range(GPUS_OF_A_NODE):
        counters.append(objects.counter_set(f"gpu-{gpu}", multiprocessors="7", **_memory(range(_SLICES))))
        for profile, (compute, memory, starts) in PROFILES.items():
            for start in starts:
                drawn = {"multiprocessors": str(compute), **_memory(range(start, start + memory))}
                devices.append(
                    objects.device(
                        f"gpu-{gpu}-{profile.replace('.', '-')}-{start}",
                        attributes={"profile": profile},
                        consumes=[objects.consumption(f"gpu-{gpu}", **drawn)],
                    )
                )
    parts = [devices[begin : begin + 64] for begin in range(0, len(devices), 64)]
    count = len(parts) + 1
    return [
        objects.resource_slice(f"{name}-counters", node=name, pool=name, counter_sets=counters, slice_count=count),
        *(
            objects.resource_slice(f"{name}-{number}", node=name, pool=name, devices=part, slice_count=count)
            for number, part in enumerate(parts)
        ),
    ]


def _memory(slices: range) -> Mapping[str, str]:
    return {f"memory-slice-{number}": "1" for number in slices}


def fits_anew(wanted: Mapping[str, int], gpus: int) -> bool:
    """Return whether so many GPUs have room for these partitions, wherever they are now.

    The halves of a GPU are independent: slices 0 to 3 and, with one start less for 1g.10gb and 2g.20gb, slices 4 to 7.
    """
    left = right = gpus - wanted["7g.80gb"]
    left -= wanted["4g.40gb"]
    right -= wanted["3g.40gb"]
    if right < 0:
        left, right = left + right, 0
    # Of a half that is left, each two slices serve one partition of 20 GB or two of 10 GB; the last two of a GPU serve no 2g.20gb
    # and one of 10 GB.
    pairs, last = 2 * left + right - wanted["2g.20gb"], right - wanted["1g.20gb"]
    if last < 0:
        pairs, last = pairs + last, 0
    return min(left, pairs) >= 0 and 2 * pairs + last >= wanted["1g.10gb"]


@dataclass(slots=True)
class Churn:
    """What became of the partitions that were asked for; `avoidable`: refused, but with room if all were placed anew."""

    asked: int = 0
    refused: int = 0
    avoidable: Counter[str] = field(default_factory=Counter)


def churn(rule: MigRule, gpus: int, events: int, random: Random) -> Churn:
    """Let partitions come and end at random, as many of each profile, so that those asked for take 90 % of the memory slices."""
    profiles = list(PROFILES)
    size = sum(memory for _, memory, _ in PROFILES.values()) / len(profiles)
    rate = _LOAD * _SLICES * gpus / size
    used, running, count, found = [0] * gpus, list[Placement](), Counter[str](), Churn()
    for _ in range(events):
        if random.random() * (rate + len(running)) >= rate:
            ended = running.pop(random.randrange(len(running)))
            used[ended.gpu] ^= ended.mask
            count[ended.profile] -= 1
            rule.end(ended)
            continue
        profile = random.choice(profiles)
        found.asked += 1
        placement = rule.place(used, profile)
        if placement is not None:
            used[placement.gpu] |= placement.mask
            running.append(placement)
            count[profile] += 1
            continue
        found.refused += 1
        if fits_anew(count + Counter([profile]), gpus):
            found.avoidable[profile] += 1
    return found

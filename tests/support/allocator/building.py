"""Short ways to say slices, claims and classes in allocator tests."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dra_extender.allocator.allocate import NodeSearch
from dra_extender.allocator.demand.build import build_demand
from dra_extender.allocator.demand.demand import Demand, NamedClaim
from dra_extender.allocator.pools.pools import NodePools, Pool, node_pools
from dra_extender.allocator.rules.violations import Violation, usage_violations
from dra_extender.allocator.state.features import OWN, Features, ReleaseBehaviour
from dra_extender.allocator.state.reasons import NoFit, Rejection
from dra_extender.allocator.state.usage import PoolUsage, Usage, any_compatibility_rule
from dra_extender.cel.program import ProgramCache
from dra_extender.cel.values.quantity import NANO
from dra_extender.model.allocation import DeviceHolding, Placement
from dra_extender.model.device import CounterConsumption, PoolId
from dra_extender.model.device_class import DeviceClass, device_class_from
from dra_extender.model.node import Node
from dra_extender.model.resource_claim import ResourceClaim, claim_from
from dra_extender.model.resource_slice import ResourceSlice, SliceReader

Json = dict[str, Any]
DRIVER = "gpu.example.com"
NODE = Node(name="node-1", labels={"region": "west"})
CLASSES: Mapping[str, DeviceClass] = {
    name: device_class_from({"metadata": {"name": name}, "spec": spec})
    for name, spec in {
        "any": {},
        "gpu": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]},
    }.items()
}

_PROGRAMS = ProgramCache()


def consuming(name: str, *groups: str, counter_set: str = "set", amount: int = 1, **more: Any) -> Json:
    """A device that draws `amount` of counter "c" of one counter set, with these compatibility groups."""
    entry: Json = {"counterSet": counter_set, "counters": {"c": {"value": str(amount)}}}
    if groups:
        entry["compatibilityGroups"] = list(groups)
    return {"name": name, "consumesCounters": [entry], **more}


def typed(name: str, kind: str) -> Json:
    """A device with a string attribute "type"."""
    return {"name": name, "attributes": {"type": {"string": kind}}}


def sized(name: str, value: str | None = "8", policy: Json | None = None, **more: Any) -> Json:
    """A device with so much of capacity "m", or with none; `policy` is the request policy."""
    capacity = {} if value is None else {"m": {"value": value, **({"requestPolicy": policy} if policy else {})}}
    return {"name": name, "capacity": capacity, **more}


def shareable(name: str, value: str | None = "8", policy: Json | None = None, **more: Any) -> Json:
    """A sized device that claims may share."""
    return sized(name, value, policy, allowMultipleAllocations=True, **more)


def slice_of(*devices: Json | str, name: str = "slice", pool: str = "pool", **spec: Any) -> ResourceSlice:
    """A slice on node-1 unless the spec says otherwise; generation and count of the pool as `generation=`, `count=`."""
    generation, count = spec.pop("generation", 1), spec.pop("count", 1)
    where = {"nodeName", "allNodes", "nodeSelector", "perDeviceNodeSelection"}
    raw: Json = {
        "driver": spec.pop("driver", DRIVER),
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
        **({} if where & set(spec) else {"nodeName": NODE.name}),
        **spec,
    }
    if devices:
        raw["devices"] = [{"name": each} if isinstance(each, str) else each for each in devices]
    return SliceReader().convert({"metadata": {"name": name}, "spec": raw})


def counters_of(name: str = "counters", pool: str = "pool", count: int = 2, **totals: int) -> ResourceSlice:
    """A slice with counter sets, each with one counter "c" of that total."""
    sets = [{"name": each, "counters": {"c": {"value": str(total)}}} for each, total in totals.items()]
    return slice_of(name=name, pool=pool, count=count, sharedCounters=sets)


def exactly(count: int = 1, name: str = "r", expression: str | None = None, **more: Any) -> Json:
    """A request for `count` devices of class "any"; `admin=True` for admin access."""
    body: Json = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": count, **more}
    if expression is not None:
        body["selectors"] = [{"cel": {"expression": expression}}]
    return {"name": name, "exactly": body}


def every(name: str = "r", expression: str | None = None, **more: Any) -> Json:
    """A request with mode All."""
    request = exactly(name=name, expression=expression, **more)
    request["exactly"] |= {"allocationMode": "All"}
    del request["exactly"]["count"]
    return request


def amount_of(amount: str, name: str = "r", **more: Any) -> Json:
    """A request for so much of capacity "m" of each device."""
    return exactly(1, name, capacity={"requests": {"m": amount}}, **more)


def either(*options: Json, name: str = "r") -> Json:
    """A request with alternatives, from the bodies of other requests; they are called a0, a1, ..."""
    return {"name": name, "firstAvailable": [{**each["exactly"], "name": f"a{i}"} for i, each in enumerate(options)]}


def claim_of(*requests: Json, name: str = "claim", **devices: Any) -> ResourceClaim:
    return claim_from({"metadata": {"name": name}, "spec": {"devices": {"requests": list(requests), **devices}}})


class Held:
    """Usage from holdings."""

    def __init__(self, *holdings: DeviceHolding) -> None:
        self._pools: dict[PoolId, dict[str, tuple[DeviceHolding, ...]]] = {}
        for holding in holdings:
            pool = self._pools.setdefault(holding.pool_id, {})
            pool[holding.device] = (*pool.get(holding.device, ()), holding)

    def pool(self, pool_id: PoolId) -> PoolUsage:
        return self._pools.get(pool_id, {})

    def has_compatibility_rules(self, pool_id: PoolId) -> bool:
        return any_compatibility_rule(self.pool(pool_id))


def held(device: str, pool: str = "pool", **more: Any) -> DeviceHolding:
    return DeviceHolding(driver=DRIVER, pool=pool, device=device, **more)


def share(device: str, amount: int | None = 1, share_id: str = "s", **more: Any) -> DeviceHolding:
    """A share of a device with so much of capacity "m"; None: it says no amount."""
    consumed = () if amount is None else (("m", amount * NANO),)
    return held(device, share_id=share_id, consumed_capacity=consumed, **more)


def frozen(*groups: str, amount: int = 1, counter_set: str = "set") -> tuple[CounterConsumption, ...]:
    """The snapshot of a device that `consuming` makes."""
    counters = (("c", amount * NANO),)
    return (CounterConsumption(counter_set=counter_set, counters=counters, compatibility_groups=groups),)


def pools_of(
    slices: Sequence[ResourceSlice],
    node: Node = NODE,
    features: Features | None = None,
    release: ReleaseBehaviour = OWN,
) -> NodePools:
    local = [each for each in slices if each.node_name == node.name]
    shared = [each for each in slices if each.node_name is None]
    whole_pool = lambda pool: [each for each in slices if each.pool_id == pool]  # noqa: E731
    return node_pools(node, local, shared, whole_pool, features or Features(), release)


def demand_of(*claims: ResourceClaim, features: Features | None = None, programs: ProgramCache = _PROGRAMS) -> Demand:
    demand = build_demand(named(*claims), CLASSES, programs, features or Features())
    assert isinstance(demand, Demand), demand
    return demand


def named(*claims: ResourceClaim) -> list[NamedClaim]:
    return [NamedClaim(f"c{index}", claim) for index, claim in enumerate(claims)]


def refusal(*claims: ResourceClaim, features: Features | None = None) -> Rejection:
    """What `build_demand` says against these claims."""
    found = build_demand(named(*claims), CLASSES, _PROGRAMS, features or Features())
    assert isinstance(found, Rejection)
    return found


def allocate(
    demand: Demand,
    node: Node,
    pools: NodePools,
    usage: Usage,
    *,
    deadline: Callable[[], bool] | None = None,
    **options: Any,
) -> Placement | NoFit:
    """Search without pauses; the options are those of NodeSearch."""
    return NodeSearch(demand, node, pools, usage, **options).decide(deadline)


def ask(
    slices: Sequence[ResourceSlice],
    *claims: ResourceClaim,
    usage: Iterable[DeviceHolding] = (),
    node: Node = NODE,
    features: Features | None = None,
    deadline: Callable[[], bool] | None = None,
    release: ReleaseBehaviour = OWN,
) -> Placement | NoFit:
    """One search from scratch."""
    demand = demand_of(*claims, features=features)
    pools = pools_of(slices, node, features, release)
    return allocate(demand, node, pools, Held(*usage), deadline=deadline)


def picks(found: Placement | NoFit) -> list[list[str]]:
    """Device names claim by claim; the search must have found a solution."""
    assert isinstance(found, Placement), found
    return [[result.device for result in claim.allocation.devices.results] for claim in found.claims]


def reasons(found: Placement | NoFit) -> NoFit:
    assert isinstance(found, NoFit), found
    return found


def preferring(*attributes: str, requests: tuple[str, ...] = ()) -> Json:
    """An entry of `config`."""
    parameters = {"apiVersion": "dra-extender.io/v1", "kind": "DevicePreferences", "matchAttributes": [*attributes]}
    named = {"requests": [*requests]} if requests else {}
    return {**named, "opaque": {"driver": "dra-extender.io", "parameters": parameters}}


def contradictions(pool: Pool, usage: PoolUsage) -> Sequence[Violation]:
    """Return every rule that the usage of this pool breaks."""
    return [violation for violation in usage_violations(pool, usage) if violation is not None]

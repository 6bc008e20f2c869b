"""What is left on nodes where no further copy of a pod fits: free devices and counters that none of them can use."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.rules.counters import CounterTable
from dra_extender.allocator.rules.held_consumption import held_consumption
from dra_extender.allocator.rules.verdict import published_pool
from dra_extender.allocator.state.rejection import Code
from dra_extender.cel.budget import Budget
from dra_extender.inspection.what_if.report import Stranded, StrandedCounter
from dra_extender.inspection.what_if.trial import Refusals, Trial
from dra_extender.model.device import Device, DeviceId, PoolId
from dra_extender.model.pod import Pod

SEVERAL_NODES: Final = ""
"""The node of devices that several nodes can reach."""
_NOT_MEANT: Final = frozenset({Code.NO_MATCH, Code.OTHER_NODE, Code.IN_USE, Code.SELECTOR_FAILED, Code.SEARCH_LIMIT})


class _Place(NamedTuple):
    """Devices of one node that share a reason."""

    node: str
    code: str
    text: str


class StrandedParts(NamedTuple):
    """What is stranded, by node and reason.  `complete`: all nodes were looked at; else the budget for expressions was spent."""

    parts: tuple[Stranded, ...]
    complete: bool = True


def stranded(trial: Trial, pod: Pod) -> StrandedParts:
    """By node and reason: the free devices that the pod means, and what is left of counters from which such devices draw."""
    refusals = trial.refusals(pod)
    if refusals.demand is None:
        return StrandedParts(())
    search = _Search(trial, refusals.demand, refusals)
    found = tuple(_places(search))
    return StrandedParts(found, search.complete)


def _places(search: "_Search") -> Iterator[Stranded]:
    for place in sorted(search.devices.keys() | search.counters.keys()):
        counters = search.counters.get(place, {})
        yield Stranded(
            node=place.node,
            code=place.code,
            text=place.text,
            devices=tuple(sorted("/".join(each) for each in search.devices.get(place, ()))),
            counters=tuple(counter for _, counter in sorted(counters.items())),
        )


class _Search:
    """Goes through the devices that each node can reach, once for each device."""

    def __init__(self, trial: Trial, demand: Demand, refusals: Refusals) -> None:
        self._trial = trial
        self._demand = demand
        self._refusals = refusals
        self._published: dict[PoolId, Mapping[str, Device]] = {}
        self._left: dict[PoolId, tuple[StrandedCounter, ...]] = {}
        self.devices: dict[_Place, set[DeviceId]] = defaultdict(set)
        self.counters: dict[_Place, dict[tuple[str, ...], StrandedCounter]] = defaultdict(dict)
        self.complete = True
        seen: set[DeviceId] = set()
        budget = trial.view.budget()
        for name in sorted(refusals.texts):
            if budget():
                self.complete = False
                break
            self._visit(name, seen, budget)

    def _visit(self, name: str, seen: set[DeviceId], budget: Budget) -> None:
        view, demand = self._trial.view, self._demand
        node = view.ledger.nodes.get(name)
        if node is None:
            return
        here: set[DeviceId] = set()
        for claim in demand.claims:
            for option in (option for request in claim.requests for option in request.options):
                request = (claim.label, option.name)
                for account in view.extender.accounts(demand, node, request, budget, explains_selectors=False):
                    if account.device_id not in seen and account.code not in _NOT_MEANT:
                        here.add(account.device_id)
                        self._note(name, account.device_id, account.code)
        seen |= here

    def _note(self, node: str, device_id: DeviceId, code: Code | None) -> None:
        pool_id = device_id[:2]
        reaching = self._trial.view.ledger.slices.nodes_of(pool_id)
        where = node if reaching is not None and len(reaching) == 1 else SEVERAL_NODES
        if code is None:
            place = _Place(where, self._refusals.codes[node], f"a copy does not fit: {self._refusals.texts[node]}")
        else:
            place = _Place(where, code.name, code.value)
        device = self._device(device_id)
        sets = set() if device is None else {each.counter_set for each in device.consumes_counters}
        if not sets or code is None:
            self.devices[place].add(device_id)
        for each in self._counters(pool_id) if sets else ():
            if each.counter_set in sets:
                self.counters[place][*pool_id, each.counter_set, each.counter] = each

    def _device(self, device_id: DeviceId) -> Device | None:
        pool_id = device_id[:2]
        if pool_id not in self._published:
            slices = self._trial.view.ledger.slices.of_pool(pool_id)
            self._published[pool_id] = {device.name: device for each in slices for device in each.devices}
        return self._published[pool_id].get(device_id[2])

    def _counters(self, pool_id: PoolId) -> tuple[StrandedCounter, ...]:
        """The counters of the pool that are not used up."""
        if pool_id not in self._left:
            ledger = self._trial.view.ledger
            pool = published_pool(pool_id, ledger.slices.of_pool(pool_id))
            members = held_consumption(pool.published, ledger.claims.usage.pool(pool_id))
            left = CounterTable(pool.totals, members).remaining
            self._left[pool_id] = tuple(
                StrandedCounter(counter_set=name, counter=counter, left=amount, total=pool.totals[name][counter])
                for (name, counter), amount in sorted(left.items())
                if amount > 0
            )
        return self._left[pool_id]

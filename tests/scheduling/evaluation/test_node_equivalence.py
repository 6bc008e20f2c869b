"""A node that is like another one gets the other one's answer, and that is the answer which a search on it would give."""

import gc
import json
import math
import tracemalloc
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
import pytest
from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.state.features import Features
from dra_extender.allocator.state.reasons import NoFit
from dra_extender.ledger.hold_book import Hold
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.allocation import Placement
from dra_extender.model.node_selector import only_node
from dra_extender.model.resource_claim import ConsumerReference
from dra_extender.runtime.clock import SystemClock
from dra_extender.scheduling.call_budget import CallBudget
from dra_extender.scheduling.claims.lookup import FoundClaim
from dra_extender.scheduling.evaluation.evaluator import NodeEvaluator
from dra_extender.scheduling.evaluation.filter_result import FilterResult
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.evaluation.node_equivalence import NodeEquivalence
from dra_extender.scheduling.evaluation.node_results import NodeResults
from dra_extender.scheduling.evaluation.result_table import ResultTable
from dra_extender.scheduling.ports.options import Options
from dra_extender.simulator.apiserver.objects import Json
from dra_extender.telemetry.metrics import Metrics
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.scheduling.world import DRIVER

NODES: Final = ("n0", "n1", "n2", "n3")
OTHER_DRIVER: Final = "net.example.com"
TYPE: Final = f'device.attributes["{DRIVER}"].type'


SERIAL: Final = f'device.attributes["{DRIVER}"].serial.endsWith("0")'
READS: Final = frozenset({f"{DRIVER}/type"})


def consuming(name: str, amount: int, *groups: str) -> Json:
    consumption = {"counterSet": "set", "counters": {"units": {"value": str(amount)}}, "compatibilityGroups": groups}
    return {"name": name, "consumesCounters": [consumption]}


def typed(name: str, kind: str, **fields: Any) -> Json:
    return {"name": name, "attributes": {"type": {"string": kind}, "index": {"int": len(name)}}, **fields}


SHARED: Final = {
    "allowMultipleAllocations": True,
    "capacity": {"memory": {"value": "2", "requestPolicy": {"default": "1"}}},
}
DEVICES: Final[Sequence[Sequence[Json]]] = (
    [typed("d0", "a"), typed("d1", "b"), typed("d2", "a")],
    [typed("d0", "a"), typed("d1", "b"), typed("d2", "a", taints=[{"key": "k", "effect": "NoSchedule"}])],
    [typed("d0", "a", **SHARED), typed("d1", "b")],
    [consuming("d0", 2, "x"), consuming("d1", 1, "x"), consuming("d2", 1, "y")],
    [
        {**consuming("d0", 1), "compatibleOnlyWith": {"expression": f"{TYPE} == 'b'"}},
        consuming("d1", 1),
        {**consuming("d2", 1), **typed("d2", "b")},
    ],
    [typed("d0", "a", bindsToNode=True, bindingConditions=["c"], bindingFailureConditions=["f"]), typed("d1", "a")],
    [typed("d0", "a"), {"name": "d1"}],
    [typed("d0", "a", nodeName="n1"), typed("d1", "a", allNodes=True), typed("d2", "b", nodeName="n2")],
)


def zone(name: str) -> Json:
    return {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [name]}]}]}


PLACES: Final[Mapping[str, Json]] = {
    **{node: {"nodeName": node} for node in NODES},
    "all": {"allNodes": True},
    "east": {"nodeSelector": zone("east")},
    "west": {"nodeSelector": zone("west")},
    "choosy": {"perDeviceNodeSelection": True},
}
FABRICS: Final = {"all": "pool-n1-x", "east": "pool-n2-x", "west": "pool-n2-y"}
"""Pools of several nodes have names between those of single nodes, so that their places in the order differ."""
REQUESTS: Final[Sequence[Sequence[Json]]] = (
    [{"name": "r", "exactly": {"deviceClassName": "any"}}],
    [{"name": "r", "exactly": {"deviceClassName": "any", "count": 2}}],
    [{"name": "r", "exactly": {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": f"{TYPE} == 'b'"}}]}}],
    [{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}],
    [{"name": "r", "exactly": {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": SERIAL}}]}}],
    [{"name": "r", "exactly": {"deviceClassName": "gpu"}}, {"name": "s", "exactly": {"deviceClassName": "net"}}],
    [
        {
            "name": "r",
            "firstAvailable": [
                {"name": "two", "deviceClassName": "gpu", "count": 3},
                {"name": "one", "deviceClassName": "any"},
            ],
        }
    ],
)
POD: Final = ConsumerReference(resource="pods", name="p", uid="p")
CONSTRAINTS: Final[Sequence[Json]] = ({}, {"constraints": [{"matchAttribute": f"{DRIVER}/type"}]})

operations = st.lists(
    st.one_of(
        st.tuples(
            st.just("slice"),
            st.sampled_from((*sorted(PLACES), "all", "all", "east")),
            st.sampled_from(("own", "own", "own", "common", "second", "second")),
            st.integers(0, len(DEVICES) - 1),
            st.integers(1, 2),
        ),
        st.tuples(st.just("drop"), st.sampled_from(sorted(PLACES)), st.sampled_from(("own", "common", "second"))),
        st.tuples(st.just("node"), st.sampled_from(NODES), st.booleans(), st.booleans()),
        st.tuples(st.just("take"), st.sampled_from(NODES), st.integers(0, 5)),
        st.tuples(st.just("take"), st.sampled_from(NODES), st.sampled_from((0, 4))),
        st.tuples(st.just("free"), st.integers(0, 5)),
        st.tuples(st.just("hold"), st.sampled_from((*NODES, NODES)), st.integers(0, 5)),
        st.tuples(st.just("lapse"), st.integers(0, 3)),
        st.tuples(st.just("widen"), st.sampled_from(NODES)),
    ),
    min_size=4,
    max_size=14,
)


class CachedSearch:
    """A ledger, one service that remembers, and the plain search beside it."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.searching = NodeAllocator(self.ledger, Features(), Options())
        metrics, equivalence = Metrics(), NodeEquivalence(self.ledger, self.searching.features)
        results = NodeResults(self.ledger, self.searching, metrics, 10_000, equivalence)
        self.evaluator = NodeEvaluator(self.ledger, metrics, results, None)
        self.taken: list[str] = []
        self.held: list[str] = []
        self.version = 0
        self._demands: dict[tuple[int, int], Demand] = {}
        selector = {"any": "true", "gpu": f'device.driver == "{DRIVER}"', "net": f'device.driver == "{OTHER_DRIVER}"'}
        for name, expression in selector.items():
            self.feed("deviceclasses", name, spec={"selectors": [{"cel": {"expression": expression}}]})
        for node in NODES:
            self.apply(("node", node, True, True))
            self.apply(("slice", node, "own", 0, 1))

    def feed(self, kind: str, name: str, **parts: Any) -> None:
        self.version += 1
        metadata = {"name": name, "uid": name, "namespace": "default", "resourceVersion": str(self.version)}
        sinks_of(self.ledger)[kind].changed(json.dumps({"metadata": metadata, **parts}).encode())

    def apply(self, operation: tuple[Any, ...]) -> None:
        match operation:
            case ("slice", place, pool, devices, generation):
                self._publish(place, pool, DEVICES[devices], generation)
            case ("drop", place, pool):
                sinks_of(self.ledger)["resourceslices"].deleted("", f"{place}-{pool}", "")
            case ("node", node, east, features):
                declared = ["DRAOptionalNodeOperations"] if features else []
                metadata = {"name": node, "uid": node, "labels": {"zone": "east" if east else "west"}}
                raw = {"metadata": metadata, "status": {"declaredFeatures": declared}}
                sinks_of(self.ledger)["nodes"].changed(json.dumps(raw).encode())
            case ("take", node, demand):
                self._take(node, self.demand(demand % len(REQUESTS), 0))
            case ("free", number) if number < len(self.taken):
                name = self.taken.pop(number)
                sinks_of(self.ledger)["resourceclaims"].deleted("default", name, name)
            case ("hold", nodes, demand):
                self.hold((nodes,) if isinstance(nodes, str) else nodes, demand % len(REQUESTS))
            case ("lapse", number) if number < len(self.held):
                self.ledger.hold_book.end(self.held.pop(number))
            case ("widen", node):
                self._publish(node, "own", [*DEVICES[0], typed("extra", "b")], 1)

    def _publish(self, place: str, pool: str, devices: Sequence[Json], generation: int) -> None:
        names = {"own": f"pool-{place}", "common": "common", "second": f"second-{place}"}
        if place in FABRICS:
            names["own"] = FABRICS[place]
        counted = any("consumesCounters" in each for each in devices)
        driver = OTHER_DRIVER if pool == "second" else DRIVER
        shape = {"name": names[pool], "generation": generation, "resourceSliceCount": 2 if counted else 1}
        spec = {"driver": driver, "pool": shape, **PLACES[place]}
        serial = {"serial": {"string": f"{place}-{self.version % 3}"}}
        marked = [{**each, "attributes": {**each.get("attributes", {}), **serial}} for each in devices]
        self.feed("resourceslices", f"{place}-{pool}", spec={**spec, "devices": marked})
        if counted:
            sets = [{"name": "set", "counters": {"units": {"value": "3"}}}]
            self.feed("resourceslices", f"{place}-{pool}-sets", spec={**spec, "sharedCounters": sets})

    def demand(self, requests: int, constraints: int) -> Demand:
        """The same in the whole life of the service."""
        if (requests, constraints) in self._demands:
            return self._demands[requests, constraints]
        name = f"wanted-{requests}-{constraints}"
        raw = [json.loads(json.dumps(each)) for each in REQUESTS[requests]]
        for each in raw:
            for body in (each.get("exactly"), *each.get("firstAvailable", ())):
                if body is not None:
                    body.setdefault("allocationMode", "ExactCount")
                    body.setdefault("count", 1)
        self.feed("resourceclaims", name, spec={"devices": {"requests": raw, **CONSTRAINTS[constraints]}})
        record = self.ledger.claims.by_key("default", name)
        assert record is not None
        found = self.searching.demand([FoundClaim("claim", record, POD)])
        assert isinstance(found, Demand)
        self._demands[requests, constraints] = found
        return found

    def _take(self, node: str, demand: Demand) -> None:
        answer = self.search(demand, node)
        if isinstance(answer, NoFit):
            return
        allocation = msgspec.to_builtins(answer.claims[0].allocation)
        name = f"taken-{self.version}"
        self.taken.append(name)
        self.feed("resourceclaims", name, spec={"devices": {}}, status={"allocation": allocation})

    def hold(self, nodes: Sequence[str], requests: int) -> None:
        """A pod is promised its devices on each of these nodes where it fits."""
        demand = self.demand(requests, 0)
        answers = {node: self.search(demand, node) for node in nodes}
        placements = {node: each.claims[0] for node, each in answers.items() if isinstance(each, Placement)}
        if placements:
            claim = f"held-{self.version}"
            self.held.append(claim)
            self.ledger.hold_book.place(Hold(claim, placements, dict.fromkeys(placements, 0), 100.0, {claim}))

    def search(self, demand: Demand, node: str) -> Placement | NoFit:
        return self.searching.search(demand, self.ledger.nodes[node], self.ledger.usage(), lambda: False)

    def in_flight(self, node: str, requests: int) -> None:
        """A claim gets its devices on the node, and the write of it is under way."""
        demand = self.demand(requests, 0)
        answer = self.search(demand, node)
        assert isinstance(answer, Placement)
        self.feed("resourceclaims", f"flying-{node}", spec={"devices": {}})
        self.ledger.begin_pending(f"flying-{node}", answer.claims[0])

    def classes(self, *nodes: str) -> list[Hashable]:
        equivalence = NodeEquivalence(self.ledger, Features())
        return [self.class_of(equivalence, node) for node in nodes]

    def class_of(self, equivalence: NodeEquivalence, name: str, reads: frozenset[str] | None = READS) -> Hashable:
        node = self.ledger.nodes[name]
        inventory = equivalence.inventory(node)
        return None if inventory is None else equivalence.class_of(node, inventory, reads)

    def evaluate(self, demand: Demand, nodes: Sequence[str], max_feasible: int, result: FilterResult) -> None:
        budget = CallBudget(SystemClock(), math.inf)
        self.evaluator.evaluate_nodes("", demand, nodes, max_feasible, budget, result)

    def compare(self, turn: int = 0) -> None:
        """Some demands on every node, cached and searched; all of them within three turns."""
        for requests in range(turn % 3, len(REQUESTS), 3):
            for constraints in range(len(CONSTRAINTS)):
                demand = self.demand(requests, constraints)
                for node in NODES:
                    result = FilterResult()
                    self.evaluate(demand, [node], 2, result)
                    searched = self.search(demand, node)
                    assert result_of(result, node) == plain(searched), (requests, constraints, node)


def result_of(result: FilterResult, node: str) -> Any:
    fit = result.fits.get(node)
    if fit is not None:
        assert fit.placement is not None
        return plain(fit.placement)
    return result.reasons[result.texts[node]][1]


def plain(answer: Placement | NoFit) -> Any:
    """What counts of an answer: share ids are drawn anew each time, and steps are no part of it."""
    if isinstance(answer, NoFit):
        return answer.rejections[0]
    text = msgspec.json.encode(answer.claims).decode()
    for claim in answer.claims:
        for result in claim.allocation.devices.results:
            if result.share_id is not None:
                text = text.replace(result.share_id, "share")
    return text


@given(operations)
@examples(40)
def test_results_for_equivalent_nodes_are_those_of_a_search(sequence: list[tuple[Any, ...]]) -> None:
    cached = CachedSearch()
    for turn in range(3):
        cached.compare(turn)
    for turn, operation in enumerate(sequence):
        cached.apply(operation)
        cached.compare(turn)


def test_nodes_that_are_equal_but_for_names_are_equivalent() -> None:
    classes = CachedSearch().classes(*NODES)
    assert classes[0] is not None
    assert classes == [classes[0]] * len(NODES)


def test_nodes_that_differ_in_unread_attributes_are_equivalent() -> None:
    cached = CachedSearch()
    equivalence = NodeEquivalence(cached.ledger, Features())
    for reads, equal in ((READS, True), (None, False), (READS | {f"{DRIVER}/serial"}, False)):
        first, second = (cached.class_of(equivalence, name, reads) for name in ("n0", "n1"))
        assert (first == second) is equal


@pytest.mark.parametrize("value", [{"version": "1.0.0-x."}, {}, {"version": "1.0.0"}])
def test_an_attribute_that_may_be_defective_counts_though_nobody_reads_it(value: Json) -> None:
    cached = CachedSearch()
    pool = {"name": "pool-n0", "generation": 1, "resourceSliceCount": 1}
    devices = [json.loads(json.dumps(each)) for each in DEVICES[0]]
    for each in devices:
        each["attributes"]["serial"] = value
    cached.feed("resourceslices", "n0-own", spec={"driver": DRIVER, "pool": pool, **PLACES["n0"], "devices": devices})
    first, second = cached.classes("n0", "n1")
    assert first != second


def test_nodes_with_the_same_device_taken_are_equivalent() -> None:
    cached = CachedSearch()
    cached.apply(("take", "n0", 0))
    cached.apply(("take", "n1", 0))
    first, second, third = cached.classes("n0", "n1", "n2")
    assert first == second
    assert first != third


def _other_driver(cached: CachedSearch) -> None:
    cached.apply(("drop", "n0", "own"))
    cached.apply(("slice", "n0", "second", 0, 1))


def _old_generation(cached: CachedSearch) -> None:
    for node, generation in (("n0", 2), ("n1", 1)):
        cached.apply(("slice", node, "own", 3, 1))
        cached.apply(("slice", node, "own", 0, generation))


def _without_operations(cached: CachedSearch) -> None:
    place = {"nodeName": "n0", "skipNodeOperations": ["NodePrepareResources"]}
    pool = {"name": "pool-n0", "generation": 1, "resourceSliceCount": 1}
    cached.feed("resourceslices", "n0-own", spec={"driver": DRIVER, "pool": pool, **place, "devices": DEVICES[0]})


def _features(cached: CachedSearch) -> None:
    cached.apply(("node", "n0", True, False))


def _reach(cached: CachedSearch) -> None:
    cached.apply(("node", "n0", False, True))
    cached.apply(("slice", "east", "own", 0, 1))
    cached.apply(("slice", "west", "own", 0, 1))


def _frozen(cached: CachedSearch) -> None:
    for node, devices in (("n0", 3), ("n1", 4)):
        cached.apply(("slice", node, "own", devices, 1))
        cached.in_flight(node, 0)
        cached.apply(("slice", node, "own", 3, 1))


@pytest.mark.parametrize(
    "change",
    [_other_driver, _old_generation, _without_operations, _features, _reach, _frozen],
    ids=lambda it: it.__name__,
)
def test_nodes_that_differ_in_what_a_search_reads_are_not_equivalent(change: Callable[[CachedSearch], None]) -> None:
    cached = CachedSearch()
    assert cached.classes("n0") == cached.classes("n1")
    change(cached)
    first, second = cached.classes("n0", "n1")
    assert first is None or first != second


def test_a_pool_of_several_nodes_that_changes_makes_another_class() -> None:
    cached = CachedSearch()
    cached.apply(("slice", "all", "own", 0, 1))
    equivalence = NodeEquivalence(cached.ledger, Features())
    before = cached.class_of(equivalence, "n0")
    cached.apply(("slice", "all", "own", 1, 1))
    changed = cached.class_of(equivalence, "n0")
    cached.apply(("take", "n2", 0))
    taken = cached.class_of(equivalence, "n0")
    assert len({before, changed, taken}) == 3


@pytest.mark.parametrize(
    "published",
    [
        pytest.param(("n0", "own", 4), id="compatible-only-with"),
        pytest.param(("choosy", "own", 7), id="devices-choose-nodes"),
    ],
)
def test_a_node_with_such_devices_is_equivalent_to_no_other(published: tuple[str, str, int]) -> None:
    cached = CachedSearch()
    cached.apply(("slice", *published, 1))
    assert cached.classes("n0") == [None]


def test_the_result_for_an_equivalent_node_names_its_own_pool_and_node() -> None:
    cached = CachedSearch()
    demand = cached.demand(0, 0)
    result = FilterResult()
    cached.evaluate(demand, NODES, len(NODES), result)
    for node in NODES:
        fit = result.fits[node]
        assert fit is not None
        placement = fit.placement
        assert placement is not None
        claim = placement.claims[0]
        assert [each.pool for each in claim.allocation.devices.results] == [f"pool-{node}"]
        assert [each.pool for each in claim.holdings] == [f"pool-{node}"]
        assert claim.allocation.node_selector == only_node(node)


@pytest.mark.parametrize("held", [(), NODES])
def test_equal_nodes_are_searched_once(held: Sequence[str]) -> None:
    cached = CachedSearch()
    cached.hold(held, 0)
    demand = cached.demand(0, 0)
    searched: list[str] = []
    search = cached.searching.search

    def counting(demand: Demand, node: Any, usage: Any, deadline: Any, usage_key: Any = None) -> Placement | NoFit:
        searched.append(node.name)
        return search(demand, node, usage, deadline, usage_key)

    cached.searching.search = counting  # type: ignore[method-assign]
    cached.evaluate(demand, NODES, len(NODES) + 1, FilterResult())
    assert searched == ["n0"]


def test_a_device_that_is_held_counts_like_one_that_is_allocated() -> None:
    cached = CachedSearch()
    cached.in_flight("n0", 0)
    cached.hold(["n1"], 0)
    node, equivalence = cached.ledger.nodes["n1"], NodeEquivalence(cached.ledger, Features())
    inventory = equivalence.inventory(node)
    assert inventory is not None
    under_holds = equivalence.class_of(node, inventory, READS, cached.ledger.usage())
    assert under_holds == cached.class_of(equivalence, "n0")


def test_a_node_under_holds_that_reaches_pools_of_several_nodes_is_equivalent_to_no_other() -> None:
    cached = CachedSearch()
    cached.apply(("slice", "all", "own", 0, 1))
    node, equivalence = cached.ledger.nodes["n0"], NodeEquivalence(cached.ledger, Features())
    inventory = equivalence.inventory(node)
    assert inventory is not None
    assert equivalence.class_of(node, inventory, READS, cached.ledger.usage()) is None


def test_what_ever_other_requests_read_takes_bounded_memory() -> None:
    cached = CachedSearch()
    equivalence = NodeEquivalence(cached.ledger, Features())
    read = "read.example.com"
    for index in range(600):
        cached.class_of(equivalence, "n0", frozenset({f"{read}/{index}"}))
    gc.collect()
    kept = [
        name
        for names in gc.get_objects()
        if isinstance(names, frozenset)
        for name in names
        if isinstance(name, str) and name.startswith(read)
    ]
    assert len(kept) < 300


def test_long_names_that_requests_read_take_bounded_memory() -> None:
    cached = CachedSearch()
    equivalence = NodeEquivalence(cached.ledger, Features())
    tracemalloc.start()
    try:
        for index in range(100):
            cached.class_of(equivalence, "n0", frozenset({f"{index}/{'x' * 2**18}"}))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 10 * 2**20


def kept_tables() -> int:
    """The result tables of this process, those of other tests included."""
    gc.collect()
    return sum(isinstance(kept, ResultTable) for kept in gc.get_objects())


def test_ever_other_demands_take_bounded_memory() -> None:
    before = kept_tables()
    cached = CachedSearch()
    demand, budget = cached.demand(0, 0), CallBudget(SystemClock(), math.inf)
    results = NodeResults(
        cached.ledger, cached.searching, Metrics(), 200_000, NodeEquivalence(cached.ledger, Features())
    )
    for number in range(1_200):
        results.begin(replace(demand, signature=b"%d" % number), budget, 4)
    assert 0 < kept_tables() - before <= 1_000


def test_a_node_that_shares_a_pool_in_part_is_equivalent_to_no_other() -> None:
    cached = CachedSearch()
    cached.apply(("slice", "n0", "common", 0, 1))
    assert cached.classes("n0") != [None]
    cached.apply(("slice", "n1", "common", 1, 1))
    assert cached.classes("n0", "n1") == [None, None]

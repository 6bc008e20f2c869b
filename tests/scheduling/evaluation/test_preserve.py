"""`scheduling.placement: preserve`: the nodes and devices that come first, through filter, prioritize and bind."""

import asyncio
import gc
import math
import weakref
from typing import Any

import pytest
from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.fragmentation.kinds import MOST_KINDS, NO_AMOUNTS, NodeAmounts
from dra_extender.allocator.state.reasons import Rejection, SearchPaused
from dra_extender.config.policy_file import parse_policy
from dra_extender.model.pod import Pod
from dra_extender.runtime.clock import SystemClock
from dra_extender.scheduling.call_budget import CallBudget
from dra_extender.scheduling.claims.lookup import find_claims
from dra_extender.scheduling.evaluation import least_loss as least_loss_module
from dra_extender.scheduling.evaluation.evaluator import Prefetch
from dra_extender.scheduling.evaluation.expected_demand import ExpectedDemand
from dra_extender.scheduling.evaluation.filter_result import FilterResult
from dra_extender.scheduling.evaluation.least_loss import LeastLoss, _among
from dra_extender.scheduling.evaluation.node_ranking import NodeRanking
from dra_extender.scheduling.evaluation.node_results import NodeEvaluation, NodeResults
from dra_extender.scheduling.ports.options import Options, PlacementPolicy
from dra_extender.scheduling.prioritize import PlainPods
from dra_extender.simulator.apiserver.objects import Json, StoredKind
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tests.controlplane.objects import consumption, counter_set, device, device_class, resource_slice
from tests.support.examples import examples
from tests.support.scheduling.world import DRIVER, InMemoryExtender, Ticking


class Preserving(InMemoryExtender):
    """Nodes with shareable GPUs of capacity 8."""

    def __init__(self, placement: PlacementPolicy = PlacementPolicy.PRESERVE, **nodes: int) -> None:
        """`nodes`: GPUs by node."""
        super().__init__(Options(hold_wait_seconds=0.0, placement=placement))
        self.create(StoredKind.CLASS, device_class("gpu"))
        for name, gpus in nodes.items():
            self.gpu_node(name, gpus)

    @property
    def expected(self) -> ExpectedDemand:
        """What the service expects."""
        assert self.extender.expected is not None
        return self.extender.expected

    def gpu_node(self, name: str, gpus: int, cpu: str = "64") -> None:
        status = {"allocatable": {"cpu": cpu, "memory": "256Gi"}}
        self.create(StoredKind.NODE, {"metadata": {"name": name}, "status": status})
        devices: list[Json] = [
            {"name": f"gpu-{number}", "allowMultipleAllocations": True, "capacity": {"part": {"value": "8"}}}
            for number in range(gpus)
        ]
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
        self.create(StoredKind.SLICE, {"metadata": {"name": name}, "spec": spec})

    def ask(
        self,
        name: str,
        part: int,
        count: int = 1,
        cpu: str = "1",
        node: str | None = None,
        device_class: str = "gpu",
    ) -> Pod:
        """Create a pod with a claim, and return it; one that runs on the `node` already if one is given.

        `part`: the share of each device; 0: whole devices.
        """
        capacity: Json = {"capacity": {"requests": {"part": str(part)}}} if part else {}
        self.add_claim(name, count=count, class_name=device_class, **capacity)
        where = {} if node is None else {"nodeName": node}
        self.add_pod(name, name, resources={"cpu": cpu, "memory": "1Gi"}, **where)
        return self.known_pod(name)

    async def place(self, name: str) -> tuple[str, str]:
        """Return the node that prioritize rates best, and the device there, of a pod that is bound to it."""
        pod = self.known_pod(name)
        response = await self.extender.filter(pod, list(self.ledger.nodes))
        scores = dict(await self.extender.prioritize(pod, response.fitting))
        node = min(response.fitting, key=lambda each: (-scores[each], each))
        async with self.watching():
            await self.extender.bind("default", name, pod.uid, node, asyncio.Event())
        self.sync()
        for _ in range(50):
            await asyncio.sleep(0)
        allocation: Any = self.known_claim(name).claim.status.allocation
        return node, allocation.devices.results[0].device

    async def fill(self, *pods: tuple[str, int, int]) -> list[tuple[str, str]]:
        placed = []
        for name, part, count in pods:
            self.ask(name, part, count)
            placed.append(await self.place(name))
        return placed


PAIRS = parse_policy(
    b"expected: [{name: pairs, cpu: 1, devices: [{deviceClassName: gpu, count: 2, capacity: {part: 8}}]}]", "policy"
).expected


def of_largest_node(devices: int) -> set[str]:
    """The kinds that are expected before any pod, if the largest node has so many devices."""
    return {f"{count} x {DRIVER}" for count in (devices, devices // 2, devices // 4) if count}


async def test_before_any_pod_whole_devices_are_expected() -> None:
    """Shares go together, because all or half of a node's devices may be asked for; nodes that come or go change how many."""
    world = Preserving(n1=2, n2=4)
    expected = world.expected
    world.extender.learn_expected()
    assert expected.report().keys() == of_largest_node(4)
    placed = await world.fill(("a", 2, 1), ("b", 2, 1))
    assert placed[0] == placed[1]
    world.gpu_node("n3", 8)
    world.extender.learn_expected()
    assert expected.report().keys() >= {f"8 x {DRIVER}", *of_largest_node(4)}
    for name in ("n2", "n3"):
        world.delete(StoredKind.SLICE, name)
    world.extender.learn_expected()
    assert expected.report().keys() - {"1 x gpu"} == of_largest_node(2)


async def test_a_device_that_one_node_gets_renews_nothing_among_many() -> None:
    world = Preserving()
    for number in range(20):
        world.gpu_node(f"n{number}", 1)
    expected = world.expected
    world.extender.learn_expected()
    world.gpu_node("n20", 1)
    assert not expected.renew(world.extender.allocator, 1)
    for number in range(21, 24):
        world.gpu_node(f"n{number}", 1)
    assert expected.renew(world.extender.allocator, 1)


async def test_shares_go_together_so_that_whole_devices_stay() -> None:
    world = Preserving(n1=2, n2=2)
    placed = await world.fill(*[(f"share-{number}", 4, 1) for number in range(4)])
    assert len({node for node, _ in placed}) == 1
    assert [placed[0], placed[2]] == [placed[1], placed[3]]


async def test_what_a_node_loses_counts_and_not_what_it_has() -> None:
    """The small node has less to lose in all, but would lose its only whole device."""
    world = Preserving(n2=4)
    await world.fill(("first", 4, 1))
    world.gpu_node("n1", 1)
    world.extender.learn_expected()
    ((node, _),) = await world.fill(("second", 4, 1))
    assert node == "n2"


async def test_upstream_takes_the_first_devices() -> None:
    world = Preserving(PlacementPolicy.UPSTREAM, n1=2)
    assert await world.fill(("whole", 8, 1), ("share", 4, 1)) == [("n1", "gpu-0"), ("n1", "gpu-1")]


async def test_a_share_leaves_the_node_on_which_a_pair_of_devices_is_free() -> None:
    """Pairs are expected: a share goes to the node that has no pair any more, though both nodes have a whole device."""
    world = Preserving(n1=2, n2=3)
    await world.fill(("pair", 8, 2))
    placed = await world.fill(("share", 2, 1), ("further", 2, 1))
    assert len(set(placed)) == 1


async def test_a_node_without_cpu_is_used_first() -> None:
    world = Preserving()
    world.gpu_node("large", 2)
    world.gpu_node("small", 2, cpu="5")
    world.ask("first", 8, cpu="4")
    first = await world.place("first")
    world.ask("second", 2, cpu="1")
    assert {first[0], (await world.place("second"))[0]} == {"small"}


@pytest.mark.parametrize("placement", list(PlacementPolicy))
async def test_every_pod_that_fits_is_placed(placement: PlacementPolicy) -> None:
    world = Preserving(placement, n1=1, n2=2)
    assert len(set(await world.fill(("a", 8, 1), ("b", 8, 1), ("c", 8, 1)))) == 3


async def test_expected_pods_are_exported_and_fade() -> None:
    world = Preserving(n1=4)
    await world.fill(("a", 8, 1), ("b", 8, 1), ("c", 2, 1))
    exposition = (await world.metrics.render()).decode()
    shares = {
        labels["devices"]: value
        for family in text_string_to_metric_families(exposition)
        for name, labels, value, *_ in family.samples
        if name == "dra_extender_expected_pods"
    }
    assert shares.keys() == {"1 x gpu", *of_largest_node(4)}
    assert shares["1 x gpu"] == pytest.approx(3 / 9, rel=0.01)
    assert 'dra_extender_expected_price{devices="1 x gpu"}' in exposition


async def test_a_new_process_learns_from_the_pods_that_run() -> None:
    world = Preserving(n1=4)
    await world.fill(("a", 8, 1), ("b", 8, 2))
    world.start()
    world.sync()
    world.extender.learn_expected()
    assert world.expected.report().keys() == {"1 x gpu", "2 x gpu", *of_largest_node(4)}


async def test_a_new_term_learns_from_the_pods_that_another_replica_has_placed() -> None:
    world = Preserving(n1=4)
    await world.fill(("a", 8, 1))
    world.extender.learn_expected()
    world.ask("b", 8, 2, node="n1")
    await world.extender.start()
    await world.extender.stop()
    world.extender.learn_expected()
    assert world.expected.report().keys() == {"1 x gpu", "2 x gpu", *of_largest_node(4)}


async def test_without_room_for_all_kinds_the_heaviest_are_expected() -> None:
    """What one namespace asks for in ever new shapes is bounded, and drives out nothing that comes more often."""
    world = Preserving(n1=1)
    for number in range(100):
        world.ask(f"odd-{number}", 1 + number % 8, 1, cpu=f"{2 ** (number // 8)}m", node="n1")
    for number in range(3):
        world.ask(f"pair-{number}", 8, 2, node="n1")
    world.start()
    world.sync()
    world.extender.learn_expected()
    expected = world.expected
    assert len(expected.fragmentation.kinds) == MOST_KINDS
    assert "2 x gpu" in expected.report()


async def test_ever_new_kinds_drive_out_none_that_comes_often() -> None:
    world = Preserving(n1=2)
    for number in range(3):
        world.ask(f"pair-{number}", 8, 2, node="n1")
    for number in range(300):
        world.ask(f"odd-{number}", 1 + number % 8, 1, cpu=f"{2 ** (number // 8)}m", node="n1")
    world.extender.learn_expected()
    expected = world.expected
    assert "2 x gpu" in expected.report()


async def test_rankings_keep_nothing_alive_of_what_was_expected_before() -> None:
    """The caches of expected kinds are large, and the rankings of pods that came once stay."""
    world = Preserving(n1=4)
    expected = world.expected
    before = []
    for part in (1, 2, 4, 8):
        world.extender.learn_expected()
        await world.extender.filter(world.ask(f"part-{part}", part), ["n1"])
        before.append(weakref.ref(expected.fragmentation))
        await asyncio.sleep(0)
    world.extender.learn_expected()
    gc.collect()
    assert [each() for each in before] == [None] * 4


async def test_pods_that_fit_nowhere_displace_no_kind() -> None:
    world = Preserving(n1=2)
    await world.fill(("real", 8, 1))
    for number in range(MOST_KINDS):
        pod = world.ask(f"huge-{number}", 8, 128, cpu=f"{number + 1}")
        assert (await world.extender.filter(pod, ["n1"])).fitting == ()
    for _ in range(2):
        world.extender.learn_expected()
        assert world.expected.report().keys() == {"1 x gpu", *of_largest_node(2)}
        world.start()
        world.sync()


async def test_what_the_administrator_expects_is_expected_alone() -> None:
    world = Preserving(n1=4)
    await world.fill(("a", 8, 1))
    world.extender.expect(PAIRS)
    world.extender.learn_expected()
    assert world.expected.report() == {"2 x gpu": (1.0, 1.0)}
    world.extender.expect(())
    world.extender.learn_expected()
    assert world.expected.report().keys() == {"1 x gpu", *of_largest_node(4)}


async def test_a_pod_without_devices_leaves_cpu_to_free_devices() -> None:
    """The node whose devices are taken is best for it, then the one where least is lost; without free devices nothing is said."""
    world = Preserving()
    for name, gpus, cpu in (("taken", 1, "8"), ("free", 1, "8")):
        world.gpu_node(name, gpus, cpu)
    await world.fill(("a", 8, 1))
    (used,) = {record.holdings[0].pool for record in world.ledger.claims.records()}
    world.extender.learn_expected()
    world.add_pod("plain", resources={"cpu": "4", "memory": "1Gi"})
    plain = world.known_pod("plain")
    scores = dict(await world.extender.prioritize(plain, ["taken", "free"]))
    assert scores == {used: 10, ({"taken", "free"} - {used}).pop(): 5}
    assert dict(await world.extender.prioritize(plain, [used])) == {used: 0}
    assert (await world.extender.filter(plain, ["taken", "free"])).fitting == ["taken", "free"]


async def test_a_call_for_a_pod_without_devices_rates_nodes_for_a_bounded_time() -> None:
    """Each look at the clock takes a second: every call rates one node."""
    world = Preserving(n1=1, n2=1, n3=1)
    expected = world.expected
    plain_pods = PlainPods(world.ledger, expected, world.extender.allocator, Ticking())
    assert [len(plain_pods._losses(NO_AMOUNTS)) for _ in range(3)] == [1, 2, 3]


async def test_pods_without_devices_that_differ_little_share_their_ratings() -> None:
    """Each call rates one node: pods of which each asks for something else would never know more than one."""
    world = Preserving(n1=1, n2=1, n3=1)
    expected = world.expected
    plain_pods = PlainPods(world.ledger, expected, world.extender.allocator, Ticking())
    asked = [NodeAmounts(cpu, 2**30) for cpu in (1_000, 1_001, 1_010, 3_000)]
    assert [len(plain_pods._losses(amounts)) for amounts in asked] == [1, 2, 3, 1]


@examples(10)
@given(st.lists(st.tuples(st.sampled_from((2, 4, 8)), st.integers(1, 2)), min_size=1, max_size=5))
def test_equal_histories_have_equal_placements(asked: list[tuple[int, int]]) -> None:
    pods = [(f"pod-{number}", part, count) for number, (part, count) in enumerate(asked)]

    async def placements() -> list[tuple[str, str]]:
        return await Preserving(n1=2, n2=4, n3=4).fill(*pods)

    assert asyncio.run(placements()) == asyncio.run(placements())


async def test_a_call_rates_a_bounded_number_of_nodes() -> None:
    world = Preserving()
    for number in range(100):
        world.gpu_node(f"n{number}", 1)
    pod = world.ask("a", 8)
    response = await world.extender.filter(pod, list(world.ledger.nodes))
    (table,) = world.extender._filter.evaluator._results._tables.values()
    (ranking,) = table.rankings.values()
    assert len(ranking.losses) == 64
    assert len(ranking.unrated) == 36
    assert len(table) == len(table.free) + len(table.held) + len(table.classes) + 64 + 36 // 4
    assert set(response.fitting) <= ranking.losses.keys()


def begun(world: Preserving) -> tuple[LeastLoss, NodeResults, NodeEvaluation]:
    """An evaluation of what the pod `a` asks for, none of whose nodes was searched."""
    found = find_claims(world.ask("a", 8), world.ledger)
    assert not isinstance(found, Rejection)
    demand = world.extender.allocator.demand(found)
    assert isinstance(demand, Demand)
    evaluator = world.extender._filter.evaluator
    least_loss, results = evaluator._least_loss, evaluator._results
    assert isinstance(least_loss, LeastLoss)
    return least_loss, results, results.begin_call(demand, CallBudget(SystemClock(), math.inf), 4)


def rate_due(least_loss: LeastLoss, results: NodeResults, evaluation: NodeEvaluation, ranking: NodeRanking) -> None:
    for name in least_loss.due(ranking, evaluation, 64):
        least_loss.rate(ranking, name, results.find(evaluation, name))


async def test_a_pause_leaves_all_nodes_without_a_rating_due(monkeypatch: pytest.MonkeyPatch) -> None:
    least_loss, results, evaluation = begun(Preserving(n1=1, n2=1))
    evaluation.under_holds = {"n2"}
    ranking = NodeRanking(NO_AMOUNTS, ["n1", "n2"])

    def paused(*_: object) -> None:
        raise SearchPaused

    with monkeypatch.context() as patch:
        patch.setattr(results.allocator, "search", paused)
        with pytest.raises(SearchPaused):
            rate_due(least_loss, results, evaluation, ranking)
    assert set(ranking.unrated) == {"n1", "n2"}
    rate_due(least_loss, results, evaluation, ranking)
    assert set(ranking.unrated) == {"n2"}


async def test_a_node_whose_search_was_stopped_stays_due_and_ends_the_ratings() -> None:
    least_loss, results, evaluation = begun(Preserving(n1=1, n2=1))
    evaluation.under_holds = frozenset()
    evaluation.budget.close()
    ranking = NodeRanking(NO_AMOUNTS, ["n1", "n2"])
    rate_due(least_loss, results, evaluation, ranking)
    assert set(ranking.unrated) == {"n1", "n2"}
    assert evaluation.searched == 1


async def test_a_node_whose_search_was_paused_is_rated_after_others(monkeypatch: pytest.MonkeyPatch) -> None:
    least_loss, results, evaluation = begun(Preserving(n1=1, n2=1))
    evaluation.under_holds = frozenset()
    ranking = NodeRanking(NO_AMOUNTS, ["n1", "n2"])
    monkeypatch.setattr(results.allocator, "defers_node", lambda _, node: node == "n2")
    rate_due(least_loss, results, evaluation, ranking)
    assert list(ranking) == ["n1"]
    assert set(ranking.unrated) == {"n2"}


async def test_ratings_end_with_the_slice_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the evaluation and after it, but for a few."""
    monkeypatch.setattr(least_loss_module, "_RATED_ANYWAY", 1)
    nodes = ["n1", "n2", "n3"]
    least_loss, results, evaluation = begun(Preserving(n1=1, n2=1, n3=1))
    evaluation.under_holds = frozenset()
    evaluation.fits = {name: results.find(evaluation, name) for name in nodes}
    evaluation.budget = budget = CallBudget(Ticking(), 1_000.0)
    budget.open_slice(1.5)
    ranking = NodeRanking(NO_AMOUNTS, nodes)
    rate_due(least_loss, results, evaluation, ranking)
    assert len(ranking.losses) == 2
    budget.open_slice(1.5)
    for rated in (["n1", "n2"], ["n1", "n2", "n3"]):
        result = FilterResult()
        least_loss.add_losses(least_loss.ranking("a", evaluation), evaluation, result)
        assert list(result.losses) == rated
        budget.close()


async def test_losses_after_a_search_are_those_of_a_new_ranking_under_the_present_prices() -> None:
    world = Preserving(n1=2, n2=4)
    least_loss, results, evaluation = begun(world)
    evaluation.under_holds = frozenset()
    evaluation.fits = {name: results.find(evaluation, name) for name in ("n1", "n2")}
    losses = []
    for expected in ((), PAIRS):
        world.extender.expect(expected)
        world.extender.learn_expected()
        kept = least_loss.ranking("a", evaluation)
        least_loss.add_losses(kept, evaluation, result := FilterResult())
        ranking = NodeRanking(kept.pod_amounts, evaluation.fits)
        rate_due(least_loss, results, evaluation, ranking)
        assert result.losses == ranking.losses
        losses.append(result.losses)
    assert all(losses[0].values())
    assert losses[0] != losses[1]


async def test_losses_under_earlier_prices_are_not_compared_with_new_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine, where calls have time for eight ratings and calls about other pods keep the prefetch busy."""
    monkeypatch.setattr(NodeEvaluation, "is_late", lambda _: True)
    monkeypatch.setattr(Prefetch, "start", lambda *_: None)
    world = Preserving()
    world.create(StoredKind.CLASS, device_class("part", 'device.driver == "parts.example.com"'))
    drawn = [consumption("card", memory="20")]
    for name in ("n1", "n2", "n3"):
        world.create(StoredKind.NODE, {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "64"}}})
        fields: dict[str, Any] = {"driver": "parts.example.com", "node": name, "slice_count": 2}
        parts = [device(f"part-{number}", consumes=drawn) for number in range(4)]
        sets = [counter_set("card", memory="100")]
        world.create(StoredKind.SLICE, resource_slice(f"{name}-sets", counter_sets=sets, **fields))
        world.create(StoredKind.SLICE, resource_slice(f"{name}-parts", devices=parts, **fields))
    for number in range(20):
        world.gpu_node(f"whole-{number}", 2)
    world.extender.learn_expected()
    nodes = set()
    for number in range(4):
        world.ask(f"part-{number}", 0, device_class="part")
        nodes.add((await world.place(f"part-{number}"))[0])
        world.extender.learn_expected()
    assert len(nodes) == 1


def test_many_names_are_looked_up_in_a_set() -> None:
    looked_up = 0

    class Names(list[str]):
        def __contains__(self, name: object) -> bool:
            nonlocal looked_up
            looked_up += 1
            return super().__contains__(name)

    ranked = [f"n{number}" for number in range(1_000)]
    assert list(_among(iter(ranked), Names(ranked[::2]))) == ranked[::2]
    assert looked_up == 32


@pytest.mark.parametrize(("late", "calls"), [(False, 1), (True, 4)])
async def test_a_renewal_looks_at_one_node_at_a_time_where_that_takes_long(*, late: bool, calls: int) -> None:
    """Once it has looked at the last node, the next call renews the prices."""
    world = Preserving(n1=2, n2=2, n3=2)
    expected = world.expected
    expected.expect(PAIRS)
    done = 0
    while expected.renew(world.extender.allocator, 8, lambda: late):
        done += 1
    assert done == calls
    assert expected.report() == {"2 x gpu": (1.0, 1.0)}


async def test_a_policy_that_comes_while_prices_are_renewed_is_in_force_after_the_next_renewal() -> None:
    world = Preserving(n1=2, n2=2)
    expected = world.expected
    assert expected.renew(world.extender.allocator, 1)
    expected.expect(PAIRS)
    world.extender.learn_expected()
    assert expected.report() == {"2 x gpu": (1.0, 1.0)}


async def test_a_given_pod_is_expected_as_soon_as_its_device_class_is_there() -> None:
    policy = b"expected: [{name: pairs, cpu: 1, devices: [{deviceClassName: late, count: 2}]}]"
    world = Preserving(n1=2)
    expected = world.expected
    expected.expect(parse_policy(policy, "policy").expected)
    world.extender.learn_expected()
    assert expected.report() == {}
    world.create(StoredKind.CLASS, device_class("late"))
    world.extender.learn_expected()
    assert expected.report() == {"2 x late": (1.0, 1.0)}

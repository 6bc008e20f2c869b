"""Claims whose specs are not kept are served like any others, from what the API server says of them at that moment."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from dra_extender.ledger.claim_record import Specs
from dra_extender.ledger.claims import ClaimIndex
from dra_extender.scheduling.ports.cluster import (
    ConflictError,
    NotFoundError,
    RequestRejectedError,
    ServerUnavailableError,
)
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.simulator.apiserver.objects import Key, StoredKind

from tests.scheduling.requeue.test_waker import add_device, pokes, refused
from tests.support.ledger.ledger_events import holdings_by_device
from tests.support.model.reading import pod_from
from tests.support.scheduling.gangs import GangExtender
from tests.support.scheduling.seam import Seam
from tests.support.scheduling.world import DRIVER, InMemoryExtender

OPTIONS = Options(hold_wait_seconds=0.0, watch_lag_seconds=30.0, new_claim_wait_seconds=0.0)
READS = "dra_extender_claims_read_again_total"
EVEN = f'device.attributes["{DRIVER}"].even'


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InMemoryExtender, "namespace_claim_bytes", 1)


def numbered(count: int) -> list[dict[str, Any]]:
    return [{"name": f"gpu-{i}", "attributes": {"even": {"bool": i % 2 == 0}}} for i in range(count)]


def prepared(*, known: bool = True) -> tuple[InMemoryExtender, Seam]:
    """Two nodes with two devices each, of which one is even; pod `p` with claim `c` for an even one; the calls about claims."""
    world = InMemoryExtender(OPTIONS)
    seam: Any = Seam(world.cluster.claims)
    world.claims = seam
    world.start()
    for node in ("n0", "n1"):
        world.node(node)
        world.slice(node, numbered(2))
    world.device_class()
    world.add_claim("c", selector=EVEN)
    world.add_pod("p", "c")
    if not known:
        # As a new process finds it: with the list alone.
        world.start()
        world.sync()
    return world, seam


def short(world: InMemoryExtender) -> int:
    return world.ledger.claims.kept.without_spec


@pytest.mark.parametrize("known", [True, False], ids=["watched", "after-a-restart"])
async def test_a_pod_is_filtered_with_one_read_and_bound_to_the_devices_it_asks_for(*, known: bool) -> None:
    world, seam = prepared(known=known)
    assert short(world) == 1
    assert set((await world.filter("p", "n0", "n1")).fitting) == {"n0", "n1"}
    assert seam.calls == ["read"]
    assert set((await world.filter("p", "n0", "n1")).fitting) == {"n0", "n1"}
    assert seam.calls == ["read"], "what it asks for is remembered"
    await world.bind_through("p", "n1")
    assert world.devices("c") == ["n1/gpu-0"]
    assert [each["name"] for each in world.claim("c")["status"]["reservedFor"]] == ["p"]


async def test_a_bind_without_a_filter_reads_the_claim_once_and_takes_the_right_device() -> None:
    world, seam = prepared(known=False)
    await world.bind_through("p", "n0")
    assert world.devices("c") == ["n0/gpu-0"]
    assert seam.calls.count("read") == 1


async def test_a_bind_whose_claim_changed_after_the_read_reads_it_again_for_the_write() -> None:
    world, seam = prepared(known=False)

    def label() -> None:
        raw = world.cluster.store.get(Key(StoredKind.CLAIM, "default", "c"))
        raw["metadata"]["labels"] = {"changed": "meanwhile"}
        world.cluster.store.update(StoredKind.CLAIM, raw)

    seam.before("update", label)
    await world.bind_through("p", "n0")
    assert seam.calls.count("read") == 2
    assert world.claim("c")["metadata"]["labels"] == {"changed": "meanwhile"}
    assert world.devices("c") == ["n0/gpu-0"]


async def test_devices_of_short_claims_are_never_given_to_others() -> None:
    world, _ = prepared()
    await world.bind_through("p", "n0")
    world.start()
    world.sync()
    assert short(world) == 1
    world.add_claim("d", selector=EVEN)
    world.add_pod("q", "d")
    answer = await world.filter("q", "n0", "n1")
    assert list(answer.fitting) == ["n1"]
    await world.bind_through("q", "n1")
    assert world.devices("d") == ["n1/gpu-0"]


@pytest.mark.parametrize(
    ("problem", "outcome"),
    [
        (ServerUnavailableError("no answer"), "failed"),
        (RequestRejectedError("no right"), "failed"),
        (ConflictError("?"), "failed"),
        (NotFoundError("gone"), "gone"),
    ],
)
@pytest.mark.parametrize("verb", ["filter", "bind", "preempt"])
async def test_a_read_that_fails_is_an_error_and_never_makes_a_pod_unschedulable(
    problem: Exception, outcome: str, verb: str
) -> None:
    world, seam = prepared()
    seam.before("read", problem)
    calls: dict[str, Callable[[], Any]] = {
        "filter": lambda: world.filter("p", "n0", "n1"),
        "bind": lambda: world.bind("p", "n0"),
        "preempt": lambda: world.extender.preempt(pod_from(world.pod("p")), {"n0": ["v"]}),
    }
    with pytest.raises(RetryableError, match="claim default/c"):
        await calls[verb]()
    assert len(world.ledger.holds) == 0
    assert list(world.extender.unschedulable.all()) == []
    assert world.messages("p") == []
    assert set((await world.filter("p", "n0", "n1")).fitting) == {"n0", "n1"}
    assert [await world.metric(READS, outcome=end) for end in (outcome, "ok")] == [1, 1]


async def test_an_api_server_that_does_not_answer_costs_seconds_and_not_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, seam = prepared()
    seam.before("read", asyncio.Event().wait)
    with monkeypatch.context() as patience:
        patience.setattr("dra_extender.scheduling.claims.live_reads._MOST_SECONDS", 0.01)
        patience.setattr("dra_extender.scheduling.claims.live_reads._LEAST_SECONDS", 0.01)
        with pytest.raises(RetryableError, match="did not answer in"):
            await world.filter("p", "n0")
    assert (await world.filter("p", "n0")).fitting


async def test_a_claim_that_is_made_anew_while_it_is_read_is_not_taken_for_the_old_one() -> None:
    world, seam = prepared()

    def renew() -> None:
        world.cluster.store.delete(Key(StoredKind.CLAIM, "default", "c"))
        body = {"deviceClassName": "gpu", "count": 2}
        spec = {"devices": {"requests": [{"name": "req", "exactly": body}]}}
        world.cluster.store.create(StoredKind.CLAIM, {"metadata": {"name": "c"}, "spec": spec})

    seam.before("read", renew)
    with pytest.raises(RetryableError, match="replaced by another of the same name"):
        await world.filter("p", "n0")
    world.sync()
    assert list((await world.filter("p", "n0", "n1")).fitting)
    await world.bind_through("p", "n0")
    assert world.devices("c") == ["n0/gpu-0", "n0/gpu-1"]


async def test_a_claim_that_is_allocated_by_another_scheduler_before_our_write_stays_theirs() -> None:
    world, seam = prepared()
    await world.filter("p", "n0", "n1")
    theirs = {"request": "req", "driver": DRIVER, "pool": "n1", "device": "gpu-1"}

    def allocate() -> None:
        raw = world.claim("c")
        raw["status"] = {"allocation": {"devices": {"results": [theirs]}}}
        world.cluster.store.update_status(StoredKind.CLAIM, raw)

    seam.before("read", allocate)
    async with world.watching():
        with pytest.raises(RetryableError, match="allocated by another scheduler"):
            await world.bind("p", "n0")
        await world.cluster.watch.caught_up()
    assert world.devices("c") == ["n1/gpu-1"]
    assert {pool for _, pool in holdings_by_device(world.ledger.claims.usage)} == {"n1"}


async def test_preempt_knows_what_a_short_claim_asks_for_and_what_short_claims_of_victims_free() -> None:
    world, _ = prepared()
    await world.bind_through("p", "n0")
    world.add_claim("odd", selector=f"!{EVEN}")
    world.add_claim("even", selector=EVEN)
    world.add_pod("high", "even")
    victim = {"n0": [world.uid("p")]}
    assert await world.extender.preempt(pod_from(world.pod("high")), victim) == victim
    world.add_claim("both", selector=EVEN, count=2)
    world.add_pod("higher", "both")
    assert await world.extender.preempt(pod_from(world.pod("higher")), victim) == {}


async def test_a_refused_pod_with_a_short_claim_is_woken_when_it_fits_and_not_before() -> None:
    async with refused() as world:
        assert short(world) == 2
        seam: Any = Seam(world.cluster.claims).before("read", ServerUnavailableError("not now"))
        world.extender._filter.spec_reader._claims = seam
        # What p2 asks for is remembered no more, nor is the claim.
        world.ledger.claims._specs.drop(world.claim("c2")["metadata"]["uid"])
        gpu = world.cluster.store.get(Key(StoredKind.CLASS, "", "gpu"))
        gpu["spec"]["selectors"].append({"cel": {"expression": "true"}})
        world.update(StoredKind.CLASS, gpu)
        before = await pokes(world)
        for _ in range(200):
            if len(seam.calls) > 1:
                break
            await pokes(world)
        assert seam.calls == ["read", "read"], "the one that failed was made again"
        assert await pokes(world) == before, "no reason to wake anybody"
        add_device(world, "gpu-8")
        for _ in range(200):
            if await pokes(world) > before:
                break
        assert await pokes(world) > before
        assert seam.calls == ["read", "read"]


@pytest.mark.parametrize("sizes", [("half",) * 4, ("whole", "half", "half", "any")])
async def test_a_gang_with_short_claims_is_placed_whole(sizes: tuple[str, ...]) -> None:
    world = GangExtender()
    for node in ("n0", "n1"):
        world.cards(node, 1)
    world.gang("g", len(sizes) if "any" not in sizes else 3)
    for index, size in enumerate(sizes):
        world.member("g", f"m{index}", size)
    wanted = [f"m{index}" for index in range(len(sizes))][: 3 if "any" in sizes else 4]
    assert short(world) == len(sizes)
    seats = {name: list((await world.filter(name, "n0", "n1")).fitting) for name in wanted}
    assert all(len(each) == 1 for each in seats.values())


async def test_claims_of_one_pod_that_cannot_be_read_again_together_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def small(limit: int = 8000) -> Specs:
        return Specs(limit)

    monkeypatch.setattr("dra_extender.ledger.claims.Specs", small)
    world, _ = prepared()
    for index in range(6):
        world.add_claim(f"more{index}", selector=f"{EVEN} || '{'x' * 600}{index}' == ''")
    world.add_pod("q", *(f"more{index}" for index in range(6)))
    with pytest.raises(RetryableError, match="too large to be read again together"):
        await world.filter("q", "n0")
    assert (await world.filter("p", "n0")).fitting


async def test_what_a_pod_needs_is_read_at_the_same_time_and_no_more_than_that() -> None:
    world, seam = prepared()
    for index in range(3):
        world.add_claim(f"more{index}")
    world.add_pod("q", "more0", "more1", "more2")
    await world.filter("q", "n0")
    assert seam.calls == ["read"] * 3


async def test_a_claim_falls_back_into_whole_form_with_the_next_event_when_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(InMemoryExtender, "namespace_claim_bytes", 5000)
    world, _ = prepared()
    world.add_claim("d", selector=f"{EVEN} && {'true && ' * 20} true")
    index: ClaimIndex = world.ledger.claims
    assert short(world) == 1
    world.delete(StoredKind.POD, "p")
    world.delete(StoredKind.CLAIM, "c")
    assert short(world) == 1
    raw = world.claim("d")
    raw["metadata"]["labels"] = {"a": "b"}
    world.update(StoredKind.CLAIM, raw)
    assert (short(world), index.kept.note()) == (0, None)

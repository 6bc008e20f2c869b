"""The device of a pod that is deleted while it waits to yield is not given to two pods of another scheduler."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from dra_extender.inspection.holders import consumer_text
from dra_extender.ledger.guard_index import GUARD_PREFIX, guard_reservations, is_guard_reservation, name_of_guard
from dra_extender.model.resource_claim import claim_from
from dra_extender.scheduling.binding import conflicts
from dra_extender.scheduling.binding import guards as module
from dra_extender.scheduling.binding.guards import MOST_WAIT_SECONDS
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import YieldPolicy
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind
from dra_extender.simulator.controllers.claims import ClaimController
from hypothesis import given
from hypothesis import strategies as st

from tests.scheduling.binding.test_guard_claims import GPU, OURS, a_world, at_work, foreign, guarded
from tests.scheduling.binding.test_guard_lifetime import UnreliableClaims
from tests.support.audit.raw_objects import audit
from tests.support.examples import examples
from tests.support.scheduling.in_tree import InTreeScheduler
from tests.support.scheduling.world import InMemoryExtender
from tests.support.turns import turns, until

_SHORT = 0.001


class Rivals:
    """A pod of ours that waits with the device, pods of the in-tree scheduler that want it, and kube-controller-manager."""

    def __init__(self, world: InMemoryExtender) -> None:
        self.world = world
        self.in_tree = InTreeScheduler(world, GPU)
        self.most_owners = 0
        self.binds: list[asyncio.Task[None]] = []
        self._controller = ClaimController(world.cluster.store)
        world.cluster.store.subscribe(lambda _: self._count())

    async def begin(self) -> asyncio.Task[None]:
        bind = await self.world.waiting()
        for name in ("first", "second", "third"):
            self.in_tree.add_pod(name)
        self.in_tree.allocate("first")
        await turns()
        return bind

    async def restart(self) -> None:
        """Stop the service, and go on as another process."""
        await self.world.extender.stop()
        self.world.start()
        self.world.sync()
        await self.world.extender.start()

    def bind_again(self) -> None:
        """Bind our pod again, as kube-scheduler does."""
        if self.exists(StoredKind.POD, "p1"):
            self.binds.append(asyncio.create_task(self.world.bind("p1", "n1")))

    def delete_guard(self) -> None:
        """Delete the guard claim, as a person may."""
        key = Key(StoredKind.CLAIM, OURS, name_of_guard(GPU))
        if self.world.cluster.store.find(key) is not None:
            self.world.cluster.store.delete(key)

    def delete_pod(self) -> None:
        if self.exists(StoredKind.POD, "p1"):
            self.world.delete(StoredKind.POD, "p1")

    def delete_claim(self) -> None:
        if self.exists(StoredKind.CLAIM, "c1"):
            self.world.delete(StoredKind.CLAIM, "c1")

    def reconcile(self) -> None:
        self._controller.reconcile()

    def withdraw(self, name: str) -> None:
        if self.exists(StoredKind.POD, name):
            self.in_tree.withdraw(name)

    def exists(self, kind: StoredKind, name: str) -> bool:
        return self.world.cluster.store.find(Key(kind, "default", name)) is not None

    def guard_consumers(self) -> list[Json]:
        """The reservations of our claim for guard claims."""
        claims = self.world.cluster.store.all(StoredKind.CLAIM)
        reserved = [each for claim in claims for each in claim.get("status", {}).get("reservedFor", [])]
        return [each for each in reserved if each["name"].startswith(GUARD_PREFIX)]

    def _count(self) -> None:
        self.most_owners = max(self.most_owners, len(self.in_tree.owners()))


@asynccontextmanager
async def rivals(monkeypatch: pytest.MonkeyPatch, mode: YieldPolicy = YieldPolicy.GUARD) -> AsyncIterator[Rivals]:
    monkeypatch.setattr(module, "LOOK_SECONDS", _SHORT)
    monkeypatch.setattr(conflicts, "LOOK_SECONDS", _SHORT)
    world = a_world(mode)
    await world.extender.start()
    scene = Rivals(world)
    async with world.watching():
        try:
            yield scene
        finally:
            await world.extender.stop()


async def ends(bind: asyncio.Task[None]) -> None:
    with pytest.raises(RetryableError):
        await asyncio.wait_for(bind, 60)


async def test_device_of_a_pod_that_is_deleted_while_it_waits_to_yield_stays_allocated_while_a_pod_competes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with rivals(monkeypatch) as scene:
        bind = await scene.begin()
        scene.delete_pod()
        await ends(bind)
        scene.reconcile()
        await turns()
        assert scene.in_tree.owners() == ["first"]
        assert scene.world.devices("c1") == ["n1/gpu-0"]
        scene.withdraw("second")
        scene.withdraw("third")
        await until(lambda: not scene.world.devices("c1"))
        await guarded(scene.world)
        scene.in_tree.add_pod("late")
        await turns()
        assert scene.in_tree.owners() == ["first"]
        assert scene.most_owners == 1


async def test_reservation_for_a_guard_claim_ends_after_one_backoff_of_kube_scheduler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with rivals(monkeypatch) as scene:
        bind = await scene.begin()
        scene.delete_pod()
        await ends(bind)
        scene.reconcile()
        await turns()
        assert len(scene.guard_consumers()) == 1
        scene.world.clock.seconds += MOST_WAIT_SECONDS
        await until(lambda: not scene.world.devices("c1"))


async def test_reservation_for_a_guard_claim_goes_with_the_reason_to_yield(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rivals(monkeypatch) as scene:
        bind = await scene.begin()
        assert len(scene.guard_consumers()) == 1
        scene.withdraw("second")
        scene.withdraw("third")
        scene.world.delete(StoredKind.POD, "first")
        scene.world.delete(StoredKind.CLAIM, "first")
        scene.reconcile()
        await until(lambda: not scene.guard_consumers())
        assert scene.world.devices("c1") == ["n1/gpu-0"]
        assert not bind.done()
        await scene.world.extender.stop()
        await ends(bind)


async def test_release_of_a_bind_takes_the_reservation_for_the_guard_claim_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One write each: the reservation, and the release."""
    async with rivals(monkeypatch) as scene:
        bind = await scene.begin()
        writes: list[str] = []
        scene.world.cluster.store.subscribe(lambda change: writes.append(change.key.name))
        scene.withdraw("second")
        scene.withdraw("third")
        await ends(bind)
        assert scene.world.devices("c1") == []
        await guarded(scene.world)
        status_and_snapshot = ["c1", "c1"]
        assert [name for name in writes if name == "c1"] == status_and_snapshot


async def test_nothing_is_reserved_for_a_guard_claim_where_no_pod_competes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rivals(monkeypatch) as scene:
        seen: list[bytes] = []
        scene.world.cluster.store.subscribe(
            lambda change: seen.append(change.data) if change.key.name == "c1" else None
        )
        bind = await scene.world.waiting()
        foreign(scene.world)
        await ends(bind)
        assert not any(GUARD_PREFIX.encode() in data for data in seen)


async def test_reservation_of_another_name_or_kind_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that is called like the guard claim of a device that the claim has not."""
    async with rivals(monkeypatch) as scene:
        bind = await scene.world.waiting()
        stored = scene.world.claim("c1")
        others = [
            {"apiGroup": "resource.k8s.io", "resource": "resourceclaims", "name": name, "uid": name}
            for name in (name_of_guard((*GPU[:2], "gpu-9")), "guard")
        ]
        other_kind = {"apiGroup": "example.com", "resource": "resourceclaims", "name": name_of_guard(GPU), "uid": "x"}
        stored["status"]["reservedFor"] += [*others, other_kind]
        scene.world.cluster.store.update_status(StoredKind.CLAIM, stored)
        await turns()
        scene.world.clock.seconds += MOST_WAIT_SECONDS
        await turns()
        assert [each["uid"] for each in scene.world.claim("c1")["status"]["reservedFor"]][1:] == [
            *(each["uid"] for each in others),
            "x",
        ]
        scene.world.delete(StoredKind.POD, "p1")
        await ends(bind)


async def test_audit_and_holders_name_the_guard_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rivals(monkeypatch) as scene:
        bind = await scene.begin()
        claim = claim_from(scene.world.claim("c1"))
        (guard,) = guard_reservations(claim)
        (consumer,) = (each for each in claim.status.reserved_for if is_guard_reservation(each))
        assert consumer.uid == guard
        assert consumer_text(consumer, "default") == f"guard claim {name_of_guard(GPU)}"
        assert "consumer" not in str(audit([claim], (), (), (), guard_namespace=OURS))
        scene.delete_pod()
        await ends(bind)


@asynccontextmanager
async def bound_while_a_guard_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[tuple[InMemoryExtender, InTreeScheduler, UnreliableClaims]]:
    """A second bind of the pod, while the deletion of the guard claim of its device is not answered."""
    monkeypatch.setattr(conflicts, "LOOK_SECONDS", _SHORT)
    world = a_world()
    claims = world.claims = UnreliableClaims(world.cluster.claims)
    world.start()
    in_tree = InTreeScheduler(world, GPU)
    async with at_work(world):
        bind = await world.waiting()
        foreign(world)
        await ends(bind)
        await guarded(world)
        claims.next_answer("slow")
        world.delete(StoredKind.CLAIM, "foreign")
        again = asyncio.create_task(world.bind("p1", "n1"))
        await turns()
        assert world.devices("c1") == []
        yield world, in_tree, claims
        world.delete(StoredKind.POD, "p1")
        await ends(again)


async def test_bind_takes_a_device_only_when_its_guard_claim_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deletion of the guard would remove our device from the other scheduler's set."""
    async with bound_while_a_guard_goes(monkeypatch) as (world, in_tree, claims):
        claims.answer_late_calls()
        await until(lambda: world.devices("c1"))
        await world.cluster.watch.caught_up()
        assert GPU in in_tree.allocated
        assert world.cluster.store.find(Key(StoredKind.CLAIM, OURS, name_of_guard(GPU))) is None


async def test_bind_goes_on_when_a_guard_claim_cannot_be_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bound_while_a_guard_goes(monkeypatch) as (world, _, claims):
        world.clock.seconds += MOST_WAIT_SECONDS
        await until(lambda: world.devices("c1"))
        claims.answer_late_calls()


async def test_start_leaves_allocated_guard_claims_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new allocation would begin with a release, and another scheduler's pod would be given the device."""
    async with rivals(monkeypatch) as scene:
        bind = await scene.world.waiting()
        scene.in_tree.add_pod("first")
        scene.in_tree.allocate("first")
        await ends(bind)
        await guarded(scene.world)
        scene.in_tree.add_pod("second")
        await scene.restart()
        await turns()
        assert scene.in_tree.owners() == ["first"]


async def _pause(scene: Rivals) -> None:
    await turns()


def _step(action: Callable[[Rivals], None]) -> Callable[[Rivals], Awaitable[None]]:
    async def step(scene: Rivals) -> None:
        action(scene)

    return step


def _pass_time(scene: Rivals) -> None:
    scene.world.clock.seconds += 1


_STEPS: dict[str, Callable[[Rivals], Awaitable[None]]] = {
    "pod-deleted": _step(Rivals.delete_pod),
    "claim-deleted": _step(Rivals.delete_claim),
    "bind-again": _step(Rivals.bind_again),
    "guard-deleted": _step(Rivals.delete_guard),
    "reconcile": _step(Rivals.reconcile),
    "restart": Rivals.restart,
    "time": _step(_pass_time),
    "second-goes": _step(lambda scene: scene.withdraw("second")),
    "pause": _pause,
}


@examples(50)
@given(steps=st.lists(st.tuples(st.sampled_from(sorted(_STEPS)), st.integers(0, 8)), max_size=9))
async def test_no_device_goes_to_two_pods_of_another_scheduler_in_any_order_of_events(
    steps: list[tuple[str, int]],
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        async with rivals(monkeypatch) as scene:
            bind = await scene.begin()
            for name, pause in steps:
                await _STEPS[name](scene)
                for _ in range(pause):
                    await asyncio.sleep(0)
            scene.delete_pod()
            await ends(bind)
            await asyncio.gather(*scene.binds, return_exceptions=True)
            scene.reconcile()
            await turns()
            scene.withdraw("second")
            scene.withdraw("third")
            await until(
                lambda: not scene.exists(StoredKind.CLAIM, "c1") or not scene.world.devices("c1"), scene.reconcile
            )
            await until(lambda: GPU in scene.in_tree.allocated)
            assert scene.most_owners == 1
            assert scene.guard_consumers() == []

"""The service is killed at any call to the API server while it yields a device: nothing is given twice, and nothing is left."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from dra_extender.ledger.guard_index import DEVICE_ANNOTATION, GUARD_PREFIX, name_of_guard
from dra_extender.scheduling.binding import conflicts
from dra_extender.scheduling.binding import guards as module
from dra_extender.scheduling.ports.cluster import Claims
from dra_extender.simulator.apiserver.objects import Json, StoredKind

from tests.scheduling.binding.test_guard_claims import GPU, OURS, a_world, guards
from tests.scheduling.binding.test_guard_reservations import Rivals, ends, rivals
from tests.support.turns import turns, until

_SHORT = 0.001
_MOST_CALLS = 40


class MortalClaims:
    """The claims of the cluster, for a process that dies at one of its calls: before the call is stored, or after that."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self.lives: float = float("inf")
        self.dies_before = False
        self.is_dead = False

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._claims, name)
        if not callable(value):
            return value

        async def call(*arguments: Any) -> Any:
            self.lives -= 1
            self.is_dead |= self.lives < 0
            if self.is_dead and self.dies_before:
                await asyncio.Event().wait()
            stored = await value(*arguments)
            if self.is_dead:
                await asyncio.Event().wait()
            return stored

        return call


class Mortals:
    """A contested device, and a service that dies once."""

    def __init__(self, calls: int, *, before: bool) -> None:
        world = a_world()
        self.claims = world.claims = MortalClaims(world.cluster.claims)
        world.start()
        self.scene = Rivals(world)
        self._calls = calls
        self.claims.dies_before = before
        self.has_died = False
        self._others = asyncio.all_tasks()

    async def bury(self) -> None:
        """End the tasks of the process that died: they wait for their last calls."""
        left = asyncio.all_tasks() - self._others - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def begin_to_count(self) -> None:
        self.claims.lives = self._calls

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for the condition, with the next process if this one dies."""
        await until(lambda: condition() or self.claims.is_dead, self.scene.reconcile)
        if self.claims.is_dead:
            self.has_died = True
            self.claims = MortalClaims(self.scene.world.cluster.claims)
            world = self.scene.world
            world.claims = self.claims
            world.start()
            world.sync()
            await world.extender.start()
            await until(condition, self.scene.reconcile)


async def pod_is_deleted(mortals: Mortals) -> None:
    mortals.scene.delete_pod()
    mortals.scene.reconcile()
    await turns()


async def pod_stays(mortals: Mortals) -> None:
    await turns()


async def _story(mortals: Mortals, event: Callable[[Mortals], Awaitable[None]]) -> None:
    """A device is lost while pods compete for it; the competitors go, and later the pod that has it."""
    scene = mortals.scene
    bind = await scene.begin()
    mortals.begin_to_count()
    await event(mortals)
    await mortals.until(lambda: scene.world.devices("c1") == ["n1/gpu-0"])
    scene.withdraw("second")
    scene.withdraw("third")
    await mortals.until(
        lambda: not scene.world.devices("c1") or (mortals.has_died and scene.exists(StoredKind.POD, "p1"))
    )
    bind.cancel()
    await asyncio.gather(bind, return_exceptions=True)
    scene.delete_pod()
    await mortals.until(lambda: not scene.world.devices("c1"))
    await mortals.until(lambda: any("allocation" in each.get("status", {}) for each in guards(scene.world)))
    # A guard claim is allocated anew; until then the other scheduler does not know that the device is taken.
    await turns()
    scene.in_tree.add_pod("late")
    await turns()
    assert scene.in_tree.owners() == ["first"]
    scene.withdraw("late")
    scene.withdraw("first")
    scene.world.delete(StoredKind.CLAIM, "first")
    await mortals.until(lambda: not guards(scene.world))
    assert scene.most_owners == 1
    assert scene.guard_consumers() == []
    assert GPU not in scene.in_tree.allocated


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("event", [pod_is_deleted, pod_stays])
async def test_service_that_is_killed_at_any_call_leaves_nothing_and_gives_nothing_twice(
    event: Callable[[Mortals], Awaitable[None]], monkeypatch: pytest.MonkeyPatch, *, before: bool
) -> None:
    for one in (module, conflicts):
        monkeypatch.setattr(one, "LOOK_SECONDS", _SHORT)
    for calls in range(_MOST_CALLS):
        mortals = Mortals(calls, before=before)
        world = mortals.scene.world
        await world.extender.start()
        async with world.watching():
            try:
                await _story(mortals, event)
            finally:
                await world.extender.stop()
                await mortals.bury()
        if not mortals.has_died:
            assert calls > 3
            return
    raise AssertionError("the story does not end")


def forge_reservation(scene: Rivals, *kept: Json) -> None:
    """Reserve the claim for a guard claim of its device, beside these consumers."""
    stored = scene.world.claim("c1")
    entry = {"apiGroup": "resource.k8s.io", "resource": "resourceclaims", "name": name_of_guard(GPU), "uid": "forged"}
    stored["status"]["reservedFor"] = [*kept, entry]
    scene.world.cluster.store.update_status(StoredKind.CLAIM, stored)


async def test_forged_guards_and_reservations_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guard claims that nobody needs, one of which has no device of its name, and a claim that is reserved for one of them."""
    async with rivals(monkeypatch) as scene:
        bind = await scene.world.waiting()
        other = (*GPU[:2], "gpu-9")
        for name, device in ((name_of_guard(GPU), GPU), (name_of_guard(other), other), (f"{GUARD_PREFIX}x", GPU)):
            metadata = {"name": name, "namespace": OURS, "annotations": {DEVICE_ANNOTATION: "/".join(device)}}
            scene.world.cluster.store.create(StoredKind.CLAIM, {"metadata": metadata, "spec": {}})
        forge_reservation(scene, *scene.world.claim("c1")["status"]["reservedFor"])
        await until(lambda: not scene.guard_consumers() and not guards(scene.world))
        assert scene.world.devices("c1") == ["n1/gpu-0"]
        scene.delete_pod()
        await ends(bind)
        scene.reconcile()
        assert scene.world.devices("c1") == []


async def test_forged_reservation_of_a_claim_without_pods_keeps_no_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rivals(monkeypatch) as scene:
        bind = await scene.world.waiting()
        forge_reservation(scene)
        scene.delete_pod()
        await until(lambda: not scene.world.devices("c1"))
        await ends(bind)

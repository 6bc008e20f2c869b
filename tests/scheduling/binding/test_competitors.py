"""A pod that lost its device to another scheduler waits for that scheduler's pods only where one could be given the device."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from dra_extender.scheduling.binding.conflict_release import MOST_WAIT_SECONDS
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.simulator.apiserver.objects import StoredKind

from tests.scheduling.binding.test_guard_claims import at_work, foreign, guarded, waiting
from tests.support.scheduling.world import DRIVER, InMemoryExtender
from tests.support.turns import turns

OWN_SECOND = "dra-extender-batch"
CONDITIONS = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"]}


def two_nodes() -> InMemoryExtender:
    """A device whose binding conditions make a bind wait, and a free one on another node."""
    world = InMemoryExtender(
        Options(
            settle_wait_seconds=0.0,
            watch_lag_seconds=30.0,
            device_cool_down_seconds=0,
            scheduler_names=("dra-extender-scheduler", OWN_SECOND),
        )
    )
    world.node("n1")
    world.node("n2")
    world.slice("n1", [{"name": "gpu-0", "attributes": {"model": {"string": "large"}}, **CONDITIONS}])
    world.slice("n2", [{"name": "gpu-0", "attributes": {"model": {"string": "large"}}}])
    world.device_class()
    world.add_claim("c1")
    world.add_pod("p1", "c1")
    return world


def their_pod(world: InMemoryExtender, claim: str = "theirs", scheduler: str = "theirs", **spec: Any) -> None:
    body = {
        "schedulerName": scheduler,
        "containers": [{"name": "main", "image": "pause"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
        **spec,
    }
    world.create(StoredKind.POD, {"metadata": {"name": "theirs"}, "spec": body})


def for_nic(world: InMemoryExtender) -> None:
    world.device_class("nic", 'device.driver == "nic.example.com"')
    world.add_claim("theirs", class_name="nic")
    their_pod(world)


def for_other_model(world: InMemoryExtender) -> None:
    world.add_claim("theirs", selector=f'device.attributes["{DRIVER}"].model == "small"')
    their_pod(world)


def on_other_node(world: InMemoryExtender) -> None:
    world.add_claim("theirs")
    affinity = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [affinity]}}
    their_pod(world, affinity={"nodeAffinity": required})


def on_no_node(world: InMemoryExtender) -> None:
    world.add_claim("theirs")
    their_pod(world, nodeSelector={"zone": "none"})


def gated(world: InMemoryExtender) -> None:
    world.add_claim("theirs")
    their_pod(world, schedulingGates=[{"name": "example.com/wait"}])


def without_claim(world: InMemoryExtender) -> None:
    their_pod(world, "missing")


def without_class(world: InMemoryExtender) -> None:
    world.add_claim("theirs", class_name="missing")
    their_pod(world)


def with_admin_access(world: InMemoryExtender) -> None:
    body = {"deviceClassName": "gpu", "count": 1, "adminAccess": True}
    spec = {"devices": {"requests": [{"name": "req", "exactly": body}]}}
    world.create(StoredKind.CLAIM, {"metadata": {"name": "theirs"}, "spec": spec})
    their_pod(world)


def with_own_device(world: InMemoryExtender) -> None:
    """The pod that won the device, and is not bound yet."""
    their_pod(world, "foreign")


def of_our_second_profile(world: InMemoryExtender) -> None:
    world.add_claim("theirs")
    their_pod(world, scheduler=OWN_SECOND)


def extended_resource_of_plugin(world: InMemoryExtender) -> None:
    container = {"name": "main", "image": "pause", "resources": {"limits": {"example.com/fpga": "1"}}}
    their_pod(world, resourceClaims=[], containers=[container])


async def bound_elsewhere(world: InMemoryExtender) -> None:
    """Filter and bind our pod once more, as kube-scheduler does."""
    assert world.devices("c1") == []
    assert (await world.filter("p1", "n1", "n2")).fitting == ("n2",)
    await asyncio.wait_for(world.bind("p1", "n2"), 60)
    assert world.pod("p1")["spec"]["nodeName"] == "n2"


@pytest.mark.parametrize(
    "harmless",
    [
        for_nic,
        for_other_model,
        on_other_node,
        on_no_node,
        gated,
        without_claim,
        without_class,
        with_admin_access,
        with_own_device,
        of_our_second_profile,
        extended_resource_of_plugin,
    ],
    ids=lambda harmless: harmless.__name__,
)
async def test_pod_that_cannot_get_the_device_delays_nothing(harmless: Callable[[InMemoryExtender], None]) -> None:
    world = two_nodes()
    async with at_work(world):
        harmless(world)
        bind = await waiting(world)
        foreign(world)
        before = world.clock.seconds
        with pytest.raises(RetryableError, match="another writer allocated device"):
            await asyncio.wait_for(bind, 60)
        assert world.clock.seconds == before
        await bound_elsewhere(world)
        await guarded(world)


def as_alternative(world: InMemoryExtender) -> None:
    world.device_class("nic", 'device.driver == "nic.example.com"')
    alternatives = [{"name": name, "deviceClassName": name, "count": 1} for name in ("nic", "gpu")]
    spec = {"devices": {"requests": [{"name": "req", "firstAvailable": alternatives}]}}
    world.create(StoredKind.CLAIM, {"metadata": {"name": "theirs"}, "spec": spec})
    their_pod(world)


def by_claim(world: InMemoryExtender) -> None:
    world.add_claim("theirs", selector=f'device.attributes["{DRIVER}"].model == "large"')
    their_pod(world)


def by_extended_resource(world: InMemoryExtender) -> None:
    container = {
        "name": "main",
        "image": "pause",
        "resources": {"limits": {"deviceclass.resource.kubernetes.io/gpu": "1"}},
    }
    their_pod(world, resourceClaims=[], containers=[container])


@pytest.mark.parametrize(
    "competing", [by_claim, as_alternative, by_extended_resource], ids=lambda competing: competing.__name__
)
async def test_competitor_that_is_never_decided_delays_for_one_backoff_of_kube_scheduler(
    competing: Callable[[InMemoryExtender], None],
) -> None:
    world = two_nodes()
    async with at_work(world):
        competing(world)
        bind = await waiting(world)
        foreign(world)
        await turns()
        assert not bind.done()
        assert world.devices("c1") == ["n1/gpu-0"]
        world.clock.seconds += MOST_WAIT_SECONDS
        with pytest.raises(RetryableError, match="pod default/theirs of scheduler theirs waits for such a device"):
            await asyncio.wait_for(bind, 60)
        await bound_elsewhere(world)
        await guarded(world)


async def test_competitor_that_gets_another_device_is_waited_for_no_longer() -> None:
    world = two_nodes()
    async with at_work(world):
        by_claim(world)
        bind = await waiting(world)
        foreign(world)
        await turns()
        assert not bind.done()
        stored = world.claim("theirs")
        taken = {"request": "req", "driver": DRIVER, "pool": "n2", "device": "gpu-0"}
        stored["status"] = {"allocation": {"devices": {"results": [taken]}}}
        world.cluster.store.update_status(StoredKind.CLAIM, stored)
        with pytest.raises(RetryableError, match=r"allocated device gpu\.example\.com/n1/gpu-0 first$"):
            await asyncio.wait_for(bind, 60)

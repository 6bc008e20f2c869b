"""The gauges of devices: what is counted, how often, and that other work runs meanwhile."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import pytest
from dra_extender.allocator.state.features import Features
from dra_extender.config.service_settings import MetricsSettings
from dra_extender.inspection.free_devices import judge_steps
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.device import PoolId
from dra_extender.runtime.clock import PAUSE_SECONDS, TURN_SECONDS
from dra_extender.scheduling.extender import Extender
from dra_extender.service.device_count import STATES, DeviceCountTask, DeviceStates
from dra_extender.telemetry.metrics import Metrics
from msgspec import json

from tests.controlplane.objects import device, request
from tests.support.clocks import SteppedClock
from tests.support.inspection.made_cluster import MadeCluster


def made() -> MadeCluster:
    """Two drivers; one of the five devices is allocated."""
    cluster = MadeCluster()
    cluster.nodes("n1")
    cluster.gpus("n1", *(device(f"gpu-{index}") for index in range(4)))
    cluster.gpus("n1", device("nic-0"), driver="nic.example.com")
    cluster.running("a", "n1", "gpu-0", request("r", "gpu"))
    return cluster


def counting(clock: SteppedClock, **settings: float) -> tuple[DeviceCountTask, Metrics]:
    metrics = Metrics()
    view = made().view()
    count = DeviceCountTask(
        DeviceStates(view.ledger, view.extender, view.features),
        metrics,
        MetricsSettings.model_validate(settings),
        sleep=clock.sleep,
        monotonic=clock.monotonic,
        now=lambda: 1234.5,
    )
    return count, metrics


def gauge(metrics: Metrics, driver: str, state: str) -> float | None:
    return metrics.registry.get_sample_value("dra_extender_devices", {"driver": driver, "state": state})


async def test_each_device_counts_in_one_state_and_a_state_without_devices_is_shown() -> None:
    count, metrics = counting(SteppedClock())
    await count.count()
    found = {state: gauge(metrics, "gpu.example.com", state) for state in STATES}
    assert found == {**dict.fromkeys(STATES, 0), "allocated": 1, "usable": 3}
    assert gauge(metrics, "nic.example.com", "usable") == 1
    assert metrics.registry.get_sample_value("dra_extender_devices_counted_timestamp_seconds") == 1234.5


async def test_count_pauses_after_each_turn_and_pauses_are_no_work() -> None:
    clock = SteppedClock(step=TURN_SECONDS)
    count, metrics = counting(clock)
    await count.count()
    assert len(clock.slept) >= 5
    assert set(clock.slept) == {PAUSE_SECONDS}
    work = metrics.registry.get_sample_value("dra_extender_device_count_seconds_total")
    assert work is not None
    assert work <= clock.time - sum(clock.slept)


def ended_after(clock: SteppedClock, sleeps: int) -> Callable[[], None]:
    """Cancels the task at its so many-th sleep."""

    def ended() -> None:
        if len(clock.slept) >= sleeps:
            raise asyncio.CancelledError

    return ended


async def test_devices_are_counted_after_each_interval() -> None:
    clock = SteppedClock()
    clock.on_sleep = ended_after(clock, 3)
    count, metrics = counting(clock, devices_interval_seconds=7)
    with suppress(asyncio.CancelledError):
        await count.keep_counting()
    assert clock.slept == [7, 7, 7]
    assert metrics.registry.get_sample_value("dra_extender_device_counts_total") == 2


async def test_nothing_is_counted_where_the_setting_is_off() -> None:
    count, metrics = counting(SteppedClock(), devices_enabled=False)
    await count.keep_counting()
    assert metrics.registry.get_sample_value("dra_extender_device_counts_total") == 0


async def test_a_pool_is_counted_again_once_something_has_changed_about_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = MadeCluster()
    cluster.nodes("n1", "n2", "n3")
    for name in ("n1", "n2", "n3"):
        cluster.gpus(name, device("gpu-0"), device("gpu-1"))
    view = cluster.view()
    ledger, states = view.ledger, DeviceStates(view.ledger, view.extender, view.features)
    counted: list[str] = []

    def noted(ledger: Ledger, extender: Extender, features: Features, pools: Iterable[PoolId], most: int | None) -> Any:
        counted.extend(pool for _, pool in pools)
        return judge_steps(ledger, extender, features, pools, most)

    def counted_again() -> list[str]:
        counted.clear()
        deque(states.count_steps(), maxlen=0)
        found = sorted(counted)
        fresh = DeviceStates(ledger, view.extender, view.features)
        deque(fresh.count_steps(), maxlen=0)
        assert states.by_driver() == fresh.by_driver()
        return found

    monkeypatch.setattr("dra_extender.service.device_count.judge_steps", noted)
    sinks = sinks_of(ledger)
    assert counted_again() == ["n1", "n2", "n3"]
    assert counted_again() == []
    cluster.running("a", "n2", "gpu-0", request("r", "gpu"))
    sinks["resourceclaims"].changed(json.encode(cluster.objects["resourceclaims"][-1]))
    assert counted_again() == ["n2"]
    closed = {**cluster.objects["nodes"][2], "spec": {"unschedulable": True}}
    sinks["nodes"].changed(json.encode(closed))
    assert counted_again() == ["n3"]
    (first, *_) = cluster.objects["resourceslices"]
    first["spec"]["devices"].pop()
    sinks["resourceslices"].changed(json.encode(first))
    assert counted_again() == ["n1"]
    sinks["resourceslices"].deleted("", first["metadata"]["name"], first["metadata"]["uid"])
    assert counted_again() == []

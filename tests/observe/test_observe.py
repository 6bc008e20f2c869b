"""The metrics of a real run as a real Prometheus sees them: every alert and every query of the dashboard is evaluated."""

from contextlib import suppress
from typing import Final

import pytest
from dra_extender.service.device_count import STATES

from tests.controlplane import objects
from tests.controlplane.waiting import wait_for
from tests.observe.prometheus import Prometheus
from tests.support.chart.values_schema import CHART
from tests.support.e2e.namespace_fixture import NamespaceFixture
from tests.support.observe.dashboard import filled, queries

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

SECONDS: Final = 60.0
QUIET: Final = frozenset(
    {
        "Background failures [{{task}}]",
        "Fields that the API server drops [{{field}}]",
        "Overlaps [{{kind}} {{outcome}} {{writer}}]",
        "Refused searches by namespace [{{pod_namespace}}]",
        "Changes of the leader [{{pod}} {{change}}]",
        "Waits for binding conditions, p99 [{{driver}} {{status}}]",
    }
)
"""Queries without data as long as nothing is wrong, no replica changes, and no device has binding conditions."""
EITHER: Final = frozenset(
    {
        "Failed watches [{{kind}} {{reason}}]",
        "Released by reason [{{reason}} {{outcome}}]",
        "Requeues by reason [{{reason}}]",
    }
)
"""Queries whose data depend on the moment.

An API server that starts may refuse the first list of a kind; a test counts those that fail later.  This service or
kube-controller-manager releases a device first.  kube-scheduler may retry a rejected pod before this service requeues it.
"""


async def busy(scene: NamespaceFixture) -> None:
    """Pods have a device that is published whole and in halves, and three plain ones; one pod waits.

    One more has ended, and its device went to a pod that waited; another pod has waited for a device that is published late.
    """
    counters = [objects.counter_set("gpu-0", memory="10")]
    parts = [
        objects.device(name, consumes=[objects.consumption("gpu-0", memory=amount)])
        for name, amount in {"whole": "10", "half-0": "5", "half-1": "5"}.items()
    ]
    await scene.node_with_counters("parts", counters, parts)
    await scene.node_with_devices("plain", *(objects.device(f"gpu-{index}") for index in range(3)))
    await scene.template("one")
    for index in range(4):
        await scene.pod(f"runs-{index}", template="one")
        await scene.wait_until_bound(f"runs-{index}")
    await scene.pod("waits", template="one")
    await scene.wait_until_unschedulable("waits")
    await scene.delete_pod("runs-3")
    await scene.wait_until_bound("waits")
    late = await scene.node("late")
    await scene.pod("waits-too", template="one")
    await scene.wait_until_unschedulable("waits-too")
    await scene.publish(scene.slice_of("late", node=late, devices=[objects.device("gpu-0")]))
    await scene.wait_until_bound("waits-too")
    await scene.pod("waits-on", template="one")
    await scene.wait_until_unschedulable("waits-on")


async def test_every_rule_and_every_query_is_evaluated_on_a_real_run(
    scene: NamespaceFixture, prometheus: Prometheus
) -> None:
    failed = await scene.world.metric("watch_failures_total")
    await busy(scene)
    assert await scene.world.metric("watch_failures_total") == failed

    empty = set[str]()

    async def only_quiet_ones_are_empty() -> bool:
        nonlocal empty
        found = {name: await prometheus.query(filled(each)) for name, each in queries().items()}
        empty = {name for name, samples in found.items() if not samples} - EITHER
        return empty == QUIET

    # A scrape that takes longer than a second is missing: until the next one, gauges have no data.
    with suppress(TimeoutError):
        await wait_for(only_quiet_ones_are_empty, SECONDS, "queries of the dashboard have data")
    assert empty == QUIET

    rules = await prometheus.rules()
    assert len(rules) == (CHART / "monitoring" / "alerts.yaml").read_text(encoding="utf-8").count("- name: ")
    assert {(each["name"], each["health"], each.get("lastError", "")) for each in rules} == {
        (each["name"], "ok", "") for each in rules
    }

    async def none_is_pending() -> bool:
        return not await pending(prometheus)

    # Without a scrape nobody leads.
    await wait_for(none_is_pending, SECONDS, "no alert is pending")


async def test_gauges_of_devices_agree_with_the_cluster(scene: NamespaceFixture, prometheus: Prometheus) -> None:
    await busy(scene)
    in_states = f'sum by (state) (dra_extender_devices{{driver="{scene.driver}"}})'

    async def agree() -> bool:
        states = {each["metric"]["state"]: float(each["value"][1]) for each in await prometheus.query(in_states)}
        expected = {"allocated": len(await scene.allocated()), "blocked by counters": 2}
        return states == {**dict.fromkeys(STATES, 0), **expected}

    await wait_for(agree, SECONDS, "the gauges are those of the cluster")


async def test_names_of_kubernetes_have_the_values_of_the_run(scene: NamespaceFixture, prometheus: Prometheus) -> None:
    await busy(scene)
    waiting = f'scheduler_unschedulable_pods{{plugin="DynamicResources",profile="{scene.scheduler}"}}'

    async def one_waits() -> bool:
        return await prometheus.value(waiting) == 1

    await wait_for(one_waits, SECONDS, "the pod that waits is counted")
    name = 'sum by (extension_point, status) (scheduler_plugin_execution_duration_seconds_count{plugin="DynamicResources"})'

    async def all_have_values() -> bool:
        found = {(each["metric"]["extension_point"], each["metric"]["status"]) for each in await prometheus.query(name)}
        return {("Filter", "Success"), ("Filter", "Unschedulable"), ("PreBind", "Success")} <= found

    await wait_for(all_have_values, SECONDS, "the durations of the plugin are counted")


async def test_an_extender_that_is_gone_is_noticed(scene: NamespaceFixture, prometheus: Prometheus) -> None:
    """Last: the world has no extender afterwards until this test starts it again."""
    extender = scene.world.extender
    await extender.terminate()

    async def noticed() -> bool:
        return await pending(prometheus) == {"DRAExtenderNoLeader"}

    try:
        await wait_for(noticed, SECONDS, "the alert about the leader is pending")
    finally:
        await extender.start()


async def pending(prometheus: Prometheus) -> frozenset[str]:
    """The alerts whose condition holds."""
    return frozenset(each["name"] for each in await prometheus.rules() if each["state"] != "inactive")

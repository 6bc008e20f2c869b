"""However much tenants and drivers write, a page has so much and says what it leaves out."""

import pytest
from dra_extender.page.devices_view import MOST_DEVICES, MOST_TILES
from dra_extender.page.health_view import MOST_FINDINGS, MOST_SCHEDULERS
from dra_extender.page.waiting_view import ROWS

from tests.controlplane.objects import device, device_class, request, resource_slice
from tests.page.conftest import Open
from tests.support.inspection.made_cluster import MadeCluster

FEW_BYTES = 800_000


@pytest.fixture
def flooded() -> MadeCluster:
    """A pool of many devices on one node; pods that wait for many reasons, of many schedulers; claims with many findings."""
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    slices = 12
    for number in range(slices):
        devices = [device(f"d-{number}-{each}", taints=[{"key": "k", "effect": "NoSchedule"}]) for each in range(128)]
        made.add(resource_slice(f"s-{number}", node="n1", slice_count=slices, devices=devices))
    for number in range(ROWS + 150):
        made.pod(f"late-{number}", request("gpu", "gpu"), schedulerName=f"scheduler-{number}")
        made.objects["pods"][-1]["spec"]["schedulingGates"] = [{"name": f"example.com/gate-{number}"}]
        made.running(f"run-{number}", "n1", f"d-0-{number}", request("gpu", "gpu"))
    return made


@pytest.mark.parametrize("view", ["pending", "map", "node?name=n1", "waiting", "health"])
async def test_view_of_a_flooded_cluster_is_bounded(open_page: Open, flooded: MadeCluster, view: str) -> None:
    response = await open_page(flooded).get(view)
    assert response.status_code == 200
    assert len(response.content) < FEW_BYTES


@pytest.mark.parametrize(
    ("view", "said"),
    [
        ("pending", f"1 to {ROWS} of {ROWS + 150}, page 1 of 3"),
        ("map", f"and {12 * 128 + 122 - MOST_TILES:,} more devices"),
        ("node?name=n1", f"{12 * 128 + 122 - MOST_DEVICES} more devices: the command prints all."),
        ("health", "more: the command prints all."),
    ],
)
async def test_view_says_what_it_leaves_out(open_page: Open, flooded: MadeCluster, view: str, said: str) -> None:
    assert said in (await open_page(flooded).get(view)).text


async def test_health_has_the_schedulers_with_most_pods_and_the_gravest_findings(
    open_page: Open, flooded: MadeCluster
) -> None:
    text = (await open_page(flooded).get("health")).text
    assert text.count("<bdi>scheduler-") == MOST_SCHEDULERS
    assert text.count('class="warning">error') <= MOST_FINDINGS

"""However much tenants and drivers write, a page has so much and says what it leaves out."""

import pytest
from dra_extender.page.devices_view import MOST_DEVICES
from dra_extender.page.health_view import MOST_FINDINGS, MOST_SCHEDULERS
from dra_extender.page.map_view import DEVICE_CELLS, MOST_SQUARES
from dra_extender.page.overview import MOST_KINDS
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


@pytest.mark.parametrize(
    "view", ["overview", "pending", "map", "map?class=gpu&group=driver", "node?name=n1", "waiting", "health"]
)
async def test_view_of_a_flooded_cluster_is_bounded(open_page: Open, flooded: MadeCluster, view: str) -> None:
    response = await open_page(flooded).get(view)
    assert response.status_code == 200
    assert len(response.content) < FEW_BYTES


@pytest.mark.parametrize(
    ("view", "said"),
    [
        ("pending", f"1 to {ROWS} of {ROWS + 150}, page 1 of 3"),
        ("overview", f"All causes, and what would help: {ROWS + 145} more"),
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


async def test_map_of_many_devices_has_so_many_squares_and_says_how_many_more_there_are(open_page: Open) -> None:
    made = MadeCluster()
    nodes = DEVICE_CELLS + 2
    made.nodes(*(f"n{number}" for number in range(nodes)))
    for number in range(nodes):
        made.gpus(f"n{number}", *(device(f"d-{each}") for each in range(20)))
    text = (await open_page(made).get("map?scale=devices")).text
    assert text.count('class="square usable"') <= MOST_SQUARES + 20
    assert "4 more devices" in text
    assert f"1 to {DEVICE_CELLS} of {nodes}, page 1 of 2" in text


async def test_overview_has_the_drivers_and_classes_with_most_devices(open_page: Open) -> None:
    made = MadeCluster()
    made.nodes("n1")
    for number in range(MOST_KINDS + 2):
        made.gpus("n1", *(device(f"d-{each}") for each in range(number + 1)), driver=f"d{number}.example.com")
        made.add(device_class(f"c-{number}", f"device.driver == 'd{number}.example.com'"))
    text = (await open_page(made).get("overview")).text
    assert ("d11.example.com" in text, "d1.example.com" in text, "c-11" in text) == (True, False, True)
    assert "4 more kinds" in text

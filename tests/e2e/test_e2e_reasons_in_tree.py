"""The same reasons on a cluster where only the in-tree scheduler runs, with its plugin DynamicResources: `why` says the same.

What that scheduler says is compared where it says something; what it cannot have is named with the reason.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, cast

import pytest
import pytest_asyncio

from tests.controlplane.apiclient import ApiClient
from tests.controlplane.cluster import ControlPlane
from tests.support.e2e.installed_extender import InstalledExtender
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture
from tests.support.e2e.reasons.asking import ask_why, check_report
from tests.support.e2e.reasons.case import WAITING, Reason
from tests.support.e2e.reasons.claims import release_kept_claims
from tests.support.e2e.reasons.every import REASONS

pytestmark = pytest.mark.e2e

IN_TREE: Final = "default-scheduler"
GATES: Final = {"DRADeviceCompatibilityGroups": True, "DRADeviceTaintRules": True}
KNOWN: Final = [each for each in REASONS if not each.only_here]


@dataclass(frozen=True, slots=True)
class InTreeControlPlane:
    """A control plane with the in-tree scheduler and without the service."""

    cluster: ControlPlane

    @property
    def api(self) -> ApiClient:
        """The administrator's client."""
        return self.cluster.api


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def in_tree(cluster: ControlPlane) -> AsyncIterator[InTreeControlPlane]:
    async with cluster.in_tree_scheduler(feature_gates=GATES):
        yield InTreeControlPlane(cluster)


@pytest_asyncio.fixture(loop_scope="module")
async def place(in_tree: InTreeControlPlane, request: pytest.FixtureRequest) -> AsyncIterator[NamespaceFixture]:
    number = [each.name for each in KNOWN].index(request.node.callspec.params["reason"].name)
    scene = NamespaceFixture(cast("InstalledExtender", in_tree), f"in-tree-{number}", IN_TREE)
    await scene.open()
    yield scene
    await release_kept_claims(scene)
    await scene.clear()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("reason", KNOWN, ids=lambda reason: reason.name.replace(" ", "-"))
async def test_why_says_the_same_where_the_in_tree_scheduler_decides(place: NamespaceFixture, reason: Reason) -> None:
    await reason.build(place)
    if reason.said_in_tree is not None:
        await place.wait_until_unschedulable(WAITING, reason.said_in_tree)
    else:
        assert await place.node_of(WAITING) == ""

    check_report(place, reason, await ask_why(place))

    await reason.end(place)
    await place.wait_until_bound(WAITING, SECONDS)


def test_what_the_in_tree_scheduler_cannot_have_is_named_with_the_reason() -> None:
    assert {each.name for each in REASONS if each.only_here} == {
        "device that has failed",
        "gang with devices held on two nodes",
        "gang with too few devices",
        "gang with too few members",
        "neighbour of another mode",
        "no PodGroup",
    }

"""Constructed reasons for which pods wait, on a real control plane with the service.

Each is asked about with `why` and compared with what the service says and with what a person expects; the next step is done, and
the pod is bound.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.e2e.installed_extender import Setup
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture
from tests.support.e2e.reasons.asking import ask_why, check_report, expected_text, message_of
from tests.support.e2e.reasons.case import WAITING, Reason
from tests.support.e2e.reasons.claims import release_kept_claims
from tests.support.e2e.reasons.every import REASONS
from tests.support.e2e.reasons.shares import POLICY
from tests.support.e2e.workloads import clear_groups

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The policy file of the service, which `why` reads as well."""
    file = tmp_path_factory.mktemp("policy") / "policy.yaml"
    file.write_text(POLICY)
    return file


@pytest.fixture(scope="module")
def setup(policy: Path) -> Setup:
    """A device that has failed is left alone for as long as it takes to ask about it."""
    return Setup(
        environment={
            # Longer than kube-scheduler backs off and `why` takes; the pod is bound when it is over.
            "DRA_EXTENDER_SCHEDULING__DEVICE_COOL_DOWN_SECONDS": "30",
            "DRA_EXTENDER_SCHEDULING__POLICY_FILE": str(policy),
        }
    )


@pytest_asyncio.fixture(loop_scope="module")
async def place(scene: NamespaceFixture) -> AsyncIterator[NamespaceFixture]:
    """The scene of one reason; reasons may have PodGroups."""
    yield scene
    await release_kept_claims(scene)
    await clear_groups(scene)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: reason.name.replace(" ", "-"))
async def test_why_says_what_the_service_says_and_what_ends_the_wait(
    place: NamespaceFixture, reason: Reason, policy: Path
) -> None:
    await reason.build(place)
    if reason.said != "":
        said = expected_text(place, reason.said or "nodes are available")
        await place.wait_until_unschedulable(WAITING, said, again=True)
    if reason.event:
        note = await place.wait_for_event(WAITING, *(expected_text(place, each) for each in reason.event))
        assert reason.said == "" or note.endswith(f". More: kubectl dra why {WAITING} -n {place.name}")

    report = await ask_why(place, "--policy", str(policy))

    check_report(place, reason, report)
    if reason.said is None:
        # The pod may have been tried before everything was known of which `why` tells.
        await place.wait_until_unschedulable(WAITING, message_of(report), again=True)
    await reason.end(place)
    await place.wait_until_bound(WAITING, SECONDS)


def test_reasons_are_forty_at_least_and_each_has_a_name() -> None:
    assert len({each.name for each in REASONS}) == len(REASONS) >= 40

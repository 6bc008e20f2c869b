"""Constructed reasons for which pods wait, all at once on a real control plane: with the service, and with the in-tree plugin.

Of each, `why` says what a person expects and what the scheduler says; the next step is done, and the pod is bound.  Beside the
service, the answer from a snapshot is compared, too.  What the in-tree scheduler cannot have is named with the reason in the table.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.controlplane.resources import NODES
from tests.controlplane.schedulers import IN_TREE
from tests.support.e2e.checker import expect_sound
from tests.support.e2e.command import run_here
from tests.support.e2e.installed_extender import InstalledExtender, Setup
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture
from tests.support.e2e.reasons import beside, claims, devices
from tests.support.e2e.reasons.case import WAITING, Json, Reason, ask_why, check_report, expected_text, texts_of
from tests.support.e2e.reasons.claims import release_kept_claims
from tests.support.e2e.workloads import clear_groups
from tests.support.side_by_side import Table

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

GATES: Final = {"DRADeviceCompatibilityGroups": True, "DRADeviceTaintRules": True}
RETRY_SECONDS: Final = 2.0
REASONS: Final = (*devices.REASONS, *claims.REASONS, *beside.REASONS)
COMPARED: Final = ("cause", "branches", "next")
"""What two answers have in common; not times, nor how often kube-scheduler has tried the pod."""


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The policy file of the service, which `why` reads as well."""
    file = tmp_path_factory.mktemp("policy") / "policy.yaml"
    file.write_text(devices.POLICY)
    return file


@pytest.fixture(scope="module")
def setup(policy: Path) -> Setup:
    """A device that has failed is left alone for as long as it takes to ask about it."""
    return Setup(
        environment={
            # Longer than kube-scheduler backs off and `why` takes; the pod is bound when it is over.
            "DRA_EXTENDER_SCHEDULING__DEVICE_BACKOFF_SECONDS": "20",
            "DRA_EXTENDER_SCHEDULING__POLICY_FILE": str(policy),
            # Rows are carried out side by side: pods of others may not be drawn to the node whose CPU a row has used up.
            "DRA_EXTENDER_SCHEDULING__PLACEMENT": "upstream",
        }
    )


@dataclass(slots=True)
class Row:
    """A reason, where it is made, and what `why` says of it."""

    reason: Reason
    scene: NamespaceFixture
    report: Json = field(default_factory=dict)

    async def build(self) -> None:
        await self.scene.open()
        await self.reason.build(self.scene)

    async def ask(self, *options: str) -> None:
        """Ask `why`; the answer is as a person expects it."""
        nodes = len(await self.scene.api.list(NODES))
        self.report = await ask_why(self.scene, *options)
        check_report(self.scene, self.reason, self.report, nodes)

    async def hear_service(self) -> None:
        """Wait for what the service lets kube-scheduler say, and for its Event."""
        reason, scene = self.reason, self.scene
        if reason.said != "":
            await scene.wait_until_unschedulable(WAITING, expected_text(scene, reason.said or "nodes are available"))
        if reason.event:
            note = await scene.wait_for_event(WAITING, *(expected_text(scene, text) for text in reason.event))
            assert reason.said == "" or note.endswith(f". More: kubectl dra why {WAITING} -n {scene.name}")

    async def hear_in_tree(self) -> None:
        """Wait for what the in-tree scheduler says, where it says something."""
        if self.reason.said_in_tree is not None:
            await self.scene.wait_until_unschedulable(WAITING, self.reason.said_in_tree)
        assert await self.scene.node_of(WAITING) == ""

    async def agree(self) -> None:
        """Wait until kube-scheduler has tried the pod when everything was known of which `why` tells."""
        if self.reason.said is None and self.scene.scheduler != IN_TREE:
            scene, texts = self.scene, texts_of(self.reason, self.report)

            async def said() -> bool:
                message = str((await scene.condition(WAITING)).get("message", ""))
                return all(text in message for text in texts)

            await scene.api.wait_for(said, SECONDS, f"kube-scheduler says {texts}: {self.report}")

    async def compare(self, *options: str) -> None:
        """The answer from a snapshot is the same."""
        kept = await ask_why(self.scene, *options)
        assert _compared(kept) == _compared(self.report)

    async def end(self) -> None:
        """Do what `why` names as the next step; the pod is bound."""
        await self.reason.end(self.scene)
        await self.scene.wait_until_bound(WAITING, SECONDS)

    async def clear(self) -> None:
        await release_kept_claims(self.scene)
        await clear_groups(self.scene)
        await self.scene.clear()


def _compared(report: Json) -> Json:
    """Return the parts of an answer that do not change with time: a pod that a step ends grows older."""
    steps = [
        {**step, "ends": [{**ended, "age": None} for ended in step.get("ends", ())]} for step in report.get("next", ())
    ]
    return {**{name: report.get(name) for name in COMPARED}, "next": steps}


@asynccontextmanager
async def retried(world: InstalledExtender) -> AsyncIterator[None]:
    """Inside, kube-scheduler tries rejected pods now and then: it may have seen a change before the service has."""

    async def retry() -> None:
        scene = NamespaceFixture(world, "")
        while True:
            await scene.retry()
            await asyncio.sleep(RETRY_SECONDS)

    task = asyncio.create_task(retry())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def carry_out(
    world: InstalledExtender,
    rows: Mapping[str, Row],
    hear: Callable[[Row], Awaitable[None]],
    *options: str,
    snapshot: Path | None = None,
) -> None:
    """Carry out all rows at once, except for the questions; compare the answers with those from `snapshot`, which is written."""

    async def build(row: Row) -> None:
        await row.build()
        if row.reason.passes:
            await hear(row)
            await row.ask(*options)

    async def ask(row: Row) -> None:
        if not row.reason.passes:
            await row.ask(*options)

    async def compare(row: Row) -> None:
        if not row.reason.passes:
            await row.compare(*options, "--snapshot", str(snapshot))

    try:
        async with Table(rows) as table:
            async with retried(world):
                await table.each(build)
                await table.each(hear)
                await table.one_by_one(ask)
                await table.each(Row.agree)
            if snapshot is not None:
                kubeconfig = str(world.cluster.admin_kubeconfig)
                status, _, err = await run_here("snapshot", "-o", str(snapshot), "--kubeconfig", kubeconfig)
                assert (status, err) == (0, "")
                await table.one_by_one(compare)
            await table.each(Row.end)
        await expect_sound(world.api, world.kubelets)
        assert world.complaints() == []
    finally:
        await asyncio.gather(*(row.clear() for row in rows.values()))


async def test_why_says_what_the_service_says_and_what_ends_the_wait(
    world: InstalledExtender, policy: Path, tmp_path: Path
) -> None:
    rows = {
        reason.name: Row(reason, NamespaceFixture(world, f"reason-{number:02}"))
        for number, reason in enumerate(REASONS)
    }
    assert len(rows) == len(REASONS)
    await carry_out(world, rows, Row.hear_service, "--policy", str(policy), snapshot=tmp_path / "cluster.tar.gz")


async def test_why_says_the_same_where_the_in_tree_scheduler_decides(world: InstalledExtender) -> None:
    rows = {
        reason.name: Row(reason, NamespaceFixture(world, f"in-tree-{number:02}", IN_TREE))
        for number, reason in enumerate(REASONS)
        if not reason.only_here
    }
    async with world.cluster.in_tree_scheduler(feature_gates=GATES):
        await carry_out(world, rows, Row.hear_in_tree)

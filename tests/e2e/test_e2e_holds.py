"""What the running extender holds, read through the API server and a kubelet's port-forward, and where that is not allowed."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from dra_extender.inspection.running_cluster import read_view
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.scheduling.recent_decisions import DecisionReport, Outcome

from tests.controlplane import objects
from tests.controlplane.cluster import VIEWER
from tests.controlplane.planes import SECOND_DEFAULTS
from tests.controlplane.resources import CLUSTER_ROLE_BINDINGS, NODES, PODS
from tests.support.e2e.command import run_here
from tests.support.e2e.forwarding_kubelet import ForwardingKubelet, node_status
from tests.support.e2e.installed_extender import InstalledExtender, Setup
from tests.support.e2e.namespace_fixture import PROMPT_SECONDS, NamespaceFixture

pytestmark = [pytest.mark.e2e, pytest.mark.plane(SECOND_DEFAULTS), pytest.mark.asyncio(loop_scope="module")]

SECONDS: Final = 60.0
NODE: Final = "node-of-the-extender"
NAMESPACE: Final = "default"
EXTENDER: Final = "dra-extender-0"


@pytest.fixture(scope="module")
def setup() -> Setup:
    # Holds outlast the slowest of the commands below.
    environment = {"DRA_EXTENDER_SCHEDULING__HOLD_SECONDS": "300"}
    return Setup(environment, relayed=True, applied=("viewer-role",))


@pytest_asyncio.fixture(loop_scope="module")
async def kubelet(scene: NamespaceFixture) -> AsyncIterator[ForwardingKubelet]:
    """A kubelet that reaches the extender, and the extender's pod as the API has it; a viewer without the right to forward."""
    world, api = scene.world, scene.api
    async with ForwardingKubelet.serving(world.cluster.layout.certificate.parent) as kubelet:
        await api.create(NODES, {**objects.node(NODE), "spec": {"unschedulable": True}})
        await api.patch(NODES, NODE, {"status": node_status(kubelet)}, subresource="status")
        labels = {"app.kubernetes.io/name": "dra-extender", "app.kubernetes.io/component": "extender"}
        pod = objects.pod(EXTENDER, NAMESPACE)
        pod["metadata"]["labels"] = labels
        pod["spec"]["nodeName"] = NODE
        pod["spec"]["containers"][0] |= {
            "name": "extender",
            "ports": [{"name": "http", "containerPort": world.extender.port}],
        }
        await api.create(PODS, pod)
        await phase(world, "Running")
        viewers = objects.role_binding(f"viewers-{scene.name}", "dra-viewer", objects.user(VIEWER))
        await api.create(CLUSTER_ROLE_BINDINGS, viewers)
        yield kubelet
        await api.delete(PODS, EXTENDER, NAMESPACE, grace_seconds=0)
        await api.delete(NODES, NODE)


async def phase(world: InstalledExtender, name: str) -> None:
    """Let the pod of the extender have this phase."""
    await world.api.patch(PODS, EXTENDER, {"status": {"phase": name}}, namespace=NAMESPACE, subresource="status")


async def asked(*arguments: str, form: str = "json") -> str:
    """What a command prints in this form."""
    status, out, err = await run_here(*arguments, "-o", form)
    assert (status, err) == (0, "")
    return out


async def told(world: InstalledExtender, *arguments: str, form: str = "json", holds: str = "from pod") -> str:
    """As `asked`, as soon as it says this of the holds: a command waits five seconds for the extender, and says so if in vain."""

    async def in_time() -> str:
        out = await asked(*arguments, form=form)
        origin = json.loads(out)["origin"]["holds"] if form == "json" else " ".join(out.split())
        return out if holds in origin else ""

    return await world.api.wait_for(in_time, 2 * SECONDS, f"{arguments} says {holds!r} of the holds")


async def test_device_that_is_held_for_one_pod_is_shown_as_held_to_another(
    scene: NamespaceFixture, kubelet: ForwardingKubelet
) -> None:
    relay = scene.world.relay
    assert relay is not None
    node = await scene.node_with_devices("a", objects.device("gpu-0"))
    await scene.template("one")
    admin, viewer = (str(scene.world.cluster.kubeconfig_for(user)) for user in ("admin", VIEWER))
    async with relay.holding("bind") as held:
        await scene.pod("first", template="one")
        await scene.world.api.wait_for(held.arrived, SECONDS, "the bind of the first pod has come")
        # The extender does not see a pod of another scheduler, for which it would revoke a hold whose bind is overdue.
        await scene.claim("two")
        await scene.pod("second", claim="two", scheduler="of-somebody-else")
        why = ("why", "second", "-n", scene.name)

        tree = await told(scene.world, *why, "--kubeconfig", admin, form="tree")
        report = json.loads(await told(scene.world, *why, "--kubeconfig", admin))

        assert report.get("fitting", 0) == 0
        assert f"1 claims, 0 plans of gangs, from pod {NAMESPACE}/{EXTENDER}" in report["origin"]["holds"]
        assert f"held by {scene.name}/first (held until " in " ".join(tree.split())
        assert kubelet.asked[-1] == f"/portForward/{NAMESPACE}/{EXTENDER}"
        tree = await told(scene.world, "devices", node, "--kubeconfig", admin, form="tree")
        (shown,) = (line for line in tree.splitlines() if line.strip().startswith("gpu-0 "))
        assert f"{scene.name}/first" in shown
        assert "(held until " in shown
        # The page shows what the extender has decided, read in the same way.
        pods = [json.dumps(await scene.world.api.get(PODS, EXTENDER, NAMESPACE)).encode()]

        async def decided() -> DecisionReport | None:
            return (await read_view(KubeSettings(kubeconfig=Path(admin)), pods, decisions=True)).decisions

        decisions = await scene.api.wait_for(decided, SECONDS, "the extender tells its decisions in time")
        assert decisions is not None
        assert decisions.leads
        first = [each for each in decisions.decisions if each.pod == f"{scene.name}/first"]
        assert ("filter", Outcome.FITS, node) in [(each.verb, each.outcome, each.node) for each in first]
        # The same by address, and by a role that may not forward ports: its answer lacks the hold, and says so.
        address = ("--extender-url", scene.world.extender.url)
        answer = await told(scene.world, *why, "--kubeconfig", viewer, *address, holds="from the extender at")
        report = json.loads(answer)
        assert report.get("fitting", 0) == 0
        forwarded = len(kubelet.asked)
        report = json.loads(await told(scene.world, *why, "--kubeconfig", viewer, holds="403"))
        assert report["fitting"] == 1
        assert "not read: port-forward pods" in report["origin"]["holds"]
        assert len(kubelet.asked) == forwarded
    assert await scene.wait_until_bound("first", PROMPT_SECONDS) == node
    # The pod of an extender that does not run is not asked.
    forwarded = len(kubelet.asked)
    await phase(scene.world, "Pending")
    report = json.loads(await asked("devices", "--kubeconfig", admin))
    assert "holds" not in report["origin"]
    assert len(kubelet.asked) == forwarded

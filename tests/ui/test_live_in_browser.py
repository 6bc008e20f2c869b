"""The page over a running cluster, in a browser: it follows what happens without being loaded again."""

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import pytest_runtest_makereport, scene, setup, world  # noqa: F401 - fixtures, and logs of failures
from tests.support.e2e.gpus import gpu, mig_or_vgpu
from tests.support.e2e.namespace_fixture import NamespaceFixture
from tests.ui.browser import Browser, browser, served_page

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def live_window() -> Iterator[Browser]:
    """A browser of its own: other tests change what the shared one prefers."""
    with browser() as opened:
        yield opened


async def test_views_change_when_a_pod_is_bound(scene: NamespaceFixture, live_window: Browser) -> None:  # noqa: F811 - the fixture
    for kind in ("mig", "vgpu"):
        await scene.template(kind, f'{scene.attribute("type")} == "{kind}"')
    node = await scene.node_with_counters("a", [gpu()], mig_or_vgpu())
    await scene.pod("vgpu", template="vgpu")
    await scene.wait_until_bound("vgpu")
    await scene.pod("mig", template="mig")
    await scene.wait_until_unschedulable("mig", "compatibility groups in conflict")
    pod, holder = f"{scene.name}/mig", f"{scene.name}/vgpu"

    with served_page("--kubeconfig", str(scene.world.cluster.admin_kubeconfig)) as page:
        window = live_window
        window.open(page.path(f"pending?pod={pod}"))
        window.wait_for("#pod pre", f"end {holder}")
        window.run("window.stays = true")
        window.driver.switch_to.new_window("tab")
        window.open(page.path(f"node?name={node}"))
        window.wait_for("main", holder)
        window.run("window.stays = true")

        await scene.delete_pod("vgpu")
        assert await scene.wait_until_bound("mig") == node

        window.wait_for("main", pod)
        assert holder not in window.text("main")
        assert window.run("return window.stays === true"), "the page was loaded again"
        assert window.complaints() == []
        window.driver.close()
        window.driver.switch_to.window(window.driver.window_handles[0])
        window.wait_for("#pod pre", "is bound to node")
        assert window.run("return window.stays === true"), "the page was loaded again"
        window.open(page.path("health"))
        window.wait_for("main", "resourceclaims")
        assert window.violations() == []

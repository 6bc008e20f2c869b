"""States of a cluster, one after the other, and the stream that tells a browser of them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from dra_extender.inspection.objects import UnreadKindsError
from dra_extender.inspection.running_cluster import FollowedCluster
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.page.server import PortError, serve
from dra_extender.page.states import FollowedState, States, fixed_state
from dra_extender.page.views import CommandLines, Views
from dra_extender.runtime.supervision import cancel
from dra_extender.simulator.apiserver.objects import StoredKind

from tests.simulation.api_server import ApiServer, Fault
from tests.simulation.faults import ALWAYS, Faults
from tests.support.api.serving import answer_to
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster, budget, one_gpu_held
from tests.support.inspection.served_cluster import PATHS, served
from tests.support.turns import turns


async def no_pause(_: float) -> None:
    """A pause that takes a turn of the event loop."""
    await asyncio.sleep(0)


@pytest.fixture
async def server(made: MadeCluster) -> AsyncIterator[ApiServer]:
    async with served(made) as started:
        yield started


@pytest.fixture
def followed(server: ApiServer, tmp_path: Path) -> FollowedState:
    settings = KubeSettings(kubeconfig=server.kubeconfig(tmp_path / "kubeconfig"))
    return FollowedState(FollowedCluster(settings), sleep=no_pause)


async def test_change_of_the_cluster_makes_a_further_generation(
    followed: FollowedState, made: MadeCluster, server: ApiServer
) -> None:
    await followed.start()
    running = asyncio.create_task(followed.follow_changes())
    pod = made.objects["pods"][-1]
    pod["spec"]["nodeName"] = "n1"
    generation = followed.latest().generation
    server.put(StoredKind.POD, pod)
    async with asyncio.timeout(60):
        while True:
            reports = await followed.later_than(generation)
            if (found := reports.view.pod("ml", "late")) is not None and found.node_name == "n1":
                break
            generation = reports.generation
    await cancel(running)
    await followed.stop()
    assert reports.live
    assert reports.history[-1].waiting == 0


async def test_step_that_ends_a_pod_names_the_budget_that_forbids_it(tmp_path: Path) -> None:
    made = one_gpu_held()
    made.objects["pods"][0]["metadata"]["labels"] = {"app": "old"}
    made.add(budget(1, {"matchLabels": {"app": "old"}}))
    async with served(made) as server:
        settings = KubeSettings(kubeconfig=server.kubeconfig(tmp_path / "kubeconfig"))
        state = FollowedState(FollowedCluster(settings), sleep=no_pause)
        await state.start()
        assert [ended.budget for ended in state.latest().why(NAMESPACE, "train").next[-1].ends] == [""]
        running = asyncio.create_task(state.follow_changes())
        made.objects["poddisruptionbudgets"][0]["status"]["disruptionsAllowed"] = 0
        server.put(StoredKind.BUDGET, made.objects["poddisruptionbudgets"][0])
        async with asyncio.timeout(60):
            reports = await state.later_than(1)
        await cancel(running)
        await state.stop()
    answer = Views("", CommandLines()).answer("pending", reports, {"pod": f"{NAMESPACE}/train"})
    assert "PodDisruptionBudget keep forbids its eviction now" in bytes(answer.body).decode()


async def test_snapshot_has_one_generation(made: MadeCluster) -> None:
    state = fixed_state(made.cluster())
    assert (await state.later_than(0)).generation == 1
    waiting = asyncio.create_task(state.later_than(1))
    await turns()
    assert not waiting.done()
    waiting.cancel()
    assert not state.latest().live


class Serving:
    """A page that is served on a port of its own, as the command serves it."""

    def __init__(self, state: States) -> None:
        self._addresses: asyncio.Queue[str] = asyncio.Queue()
        self.task = asyncio.create_task(serve(state, CommandLines(), 0, self._addresses.put_nowait))

    async def address(self) -> str:
        async with asyncio.timeout(60):
            return await self._addresses.get()

    async def end(self) -> None:
        await cancel(self.task)


async def test_stream_has_the_generation_of_each_new_state(
    followed: FollowedState, made: MadeCluster, server: ApiServer
) -> None:
    serving = Serving(followed)
    address = await serving.address()
    async with (
        asyncio.timeout(60),
        httpx.AsyncClient(timeout=60) as client,
        client.stream("GET", f"{address}events") as stream,
    ):
        assert stream.headers["content-type"].startswith("text/event-stream")
        data = (line.removeprefix("data: ") async for line in stream.aiter_lines() if line.startswith("data: "))
        first = int(await anext(data))
        server.put(StoredKind.POD, {**made.objects["pods"][-1], "spec": {"nodeName": "n1"}})
        assert int(await anext(data)) > first
    await serving.end()


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (400, ["Host: attacker.example"]),
        (400, ["Host: 127.0.0.1", "Host: 127.0.0.1"]),
        (400, []),
        (403, ["Host: 127.0.0.1", "Origin: http://attacker.example"]),
        (403, ["Host: 127.0.0.1", "Sec-Fetch-Site: same-site"]),
        (200, ["Host: 127.0.0.1"]),
    ],
)
async def test_page_refuses_what_another_page_makes_a_browser_send(
    made: MadeCluster, status: int, headers: list[str]
) -> None:
    serving = Serving(fixed_state(made.cluster()))
    host, _, path = (await serving.address()).removeprefix("http://").partition("/")
    port = int(host.partition(":")[2])
    assert (await answer_to(port, "GET", f"/{path}map", headers))[0] == status
    await serving.end()


class EndedCluster(FollowedCluster):
    """Notes that its watches and connections were ended."""

    ended = False

    async def stop(self) -> None:
        await super().stop()
        self.ended = True


async def test_cluster_of_which_nothing_may_be_read_ends_the_page_and_its_connections(
    server: ApiServer, tmp_path: Path
) -> None:
    faults = Faults(server)
    for kind in PATHS:
        faults.plan("list", kind, Fault(refuse=403), ALWAYS)
    cluster = EndedCluster(KubeSettings(kubeconfig=server.kubeconfig(tmp_path / "kubeconfig")))
    with pytest.raises(UnreadKindsError, match="may not list nodes"):
        await serve(FollowedState(cluster), CommandLines(), 0, lambda _: None)
    assert cluster.ended


async def test_address_that_is_announced_can_be_opened_and_has_a_token(made: MadeCluster) -> None:
    serving = Serving(fixed_state(made.cluster()))
    address = await serving.address()
    host, _, rest = address.removeprefix("http://").partition("/")
    async with httpx.AsyncClient(follow_redirects=True, timeout=60) as client:
        assert (await client.get(address)).status_code == 200
        assert (await client.get(f"http://{host}/")).status_code == 403
    assert len(rest) > 20
    await serving.end()


@pytest.mark.parametrize("port", [65536, -1])
async def test_port_that_does_not_exist_is_said(made: MadeCluster, port: int) -> None:
    with pytest.raises(PortError, match=rf"cannot listen on 127\.0\.0\.1, port {port}"):
        await serve(fixed_state(made.cluster()), CommandLines(), port, lambda _: None)


async def test_port_that_is_taken_is_said(made: MadeCluster) -> None:
    serving = Serving(fixed_state(made.cluster()))
    port = int((await serving.address()).split(":")[2].partition("/")[0])
    with pytest.raises(PortError, match="in use"):
        await serve(fixed_state(made.cluster()), CommandLines(), port, lambda _: None)
    await serving.end()

"""The service itself on the simulated API server, over loopback."""

import asyncio
from pathlib import Path

import httpx
from dra_extender.config.settings import load_settings
from dra_extender.kube.leader.election import LeaderElection, LeaseSettings
from dra_extender.kube.leader.endpoint_publisher import EndpointPublisher, ServiceEndpoint
from dra_extender.runtime.clock import SystemClock
from dra_extender.service.leader_lifecycle import KubeLeadership
from dra_extender.service.server import listen
from dra_extender.service.wiring import assemble, kube_cluster, kube_settings
from dra_extender.simulator.apiserver.objects import Key, StoredKind
from dra_extender.telemetry.metrics import Metrics

from tests.simulation.api_access import User
from tests.simulation.api_server import ApiServer, Write
from tests.support.simulator.things import DRIVER, claim, node, pod
from tests.support.turns import until, until_async


async def test_service_leads_and_binds_a_pod_with_a_claim(tmp_path: Path) -> None:
    server = ApiServer(SystemClock(), users={"secret": User("dra-extender")})
    await server.start()
    writes: list[Write] = []
    server.writes.append(writes.append)
    store = server.store
    store.create(StoredKind.NODE, node("node-1"))
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    store.create(StoredKind.CLASS, {"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}})
    pool = {"name": "node-1", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "gpu-0"}]
    spec = {"driver": DRIVER, "nodeName": "node-1", "pool": pool, "devices": devices}
    store.create(StoredKind.SLICE, {"metadata": {"name": "slice"}, "spec": spec})
    store.create(StoredKind.CLAIM, claim("claim"))
    waiting = store.create(StoredKind.POD, pod("pod", "claim"))
    writes.clear()

    kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
    settings = load_settings(None, {"server": {"host": "127.0.0.1", "port": 0}, "cluster": {"kubeconfig": kubeconfig}})
    metrics, connection = Metrics(), kube_settings(settings)
    lease = LeaseSettings("kube-system", "dra-extender", "host", "host_1")
    election = LeaderElection(lease, connection, observer=metrics, on_term=metrics.leads)
    cluster = kube_cluster(connection, metrics, election)
    endpoint = ServiceEndpoint("kube-system", "dra-extender", "127.0.0.1", {"verbs": 8080})
    publisher = EndpointPublisher(cluster.transport, connection, endpoint)
    service = assemble(settings, cluster, metrics, leadership=KubeLeadership(election, cluster, publisher))
    stop = asyncio.Event()
    with listen(settings.server) as listener:
        running = asyncio.create_task(service.run(stop, listener))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=30) as client:

            async def is_ready() -> bool:
                return (await client.get("/readyz")).status_code == 200

            await until_async(is_ready)
            await until(lambda: store.find(Key(StoredKind.ENDPOINT_SLICE, "kube-system", "dra-extender")))
            filtered = await client.post("/filter", json={"Pod": waiting, "NodeNames": ["node-1"]})
            assert filtered.json()["NodeNames"] == ["node-1"], filtered.text
            binding = {
                "PodName": "pod",
                "PodNamespace": "default",
                "PodUID": waiting["metadata"]["uid"],
                "Node": "node-1",
            }
            assert (await client.post("/bind", json=binding)).json() == {"Error": ""}
        stop.set()
        await running
    server.stop()

    assert store.get(Key(StoredKind.POD, "default", "pod"))["spec"]["nodeName"] == "node-1"
    stored = store.get(Key(StoredKind.CLAIM, "default", "claim"))
    assert [each["device"] for each in stored["status"]["allocation"]["devices"]["results"]] == ["gpu-0"]
    assert store.get(Key(StoredKind.LEASE, "kube-system", "dra-extender"))["spec"]["holderIdentity"] == ""
    found = [(each.change.key.kind, each.verb, each.subresource, each.user, each.agent) for each in writes]
    us = ("dra-extender", "dra-extender")
    assert [write for write in found if write[0] != "leases"] == [
        ("endpointslices", "patch", "", *us),
        ("resourceclaims", "patch", "", *us),
        ("resourceclaims", "update", "status", *us),
        ("pods", "create", "binding", *us),
    ]
    # How often the lease is renewed depends on how long the rest takes.
    assert {write for write in found if write[0] == "leases"} == {
        ("leases", "create", "", *us),
        ("leases", "update", "", *us),
    }

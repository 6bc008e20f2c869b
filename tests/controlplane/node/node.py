import json
import shutil
import signal
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Final, Self

import aiohttp

from tests.controlplane.cluster import ControlPlane
from tests.controlplane.node import configuration
from tests.controlplane.node.layout import NodeError, NodeLayout
from tests.controlplane.node.namespaces import Namespaces
from tests.controlplane.node.oci_image import write_image
from tests.controlplane.node.options import NodeOptions
from tests.controlplane.objects import DRA, Object
from tests.controlplane.resources import NODES, RESOURCE_SLICES

SECONDS: Final = 120.0
"""How long a node may take to be ready on a busy machine."""
CONTAINERD, KUBELET, DRIVER = "containerd", "kubelet", "driver"
DEVICES_OF_A_SLICE: Final = 64
"""What the API server takes where devices consume counters."""
CTR: Final = ("ctr", "--address", configuration.RUNTIME_SOCKET, "--namespace", "k8s.io")
DEFAULT_OPTIONS: Final = NodeOptions()


class Node:
    """A real kubelet with containerd and a DRA driver, in namespaces of their own.  Made by `Node.start`.

    `name` is the node's name and address.  Methods return when what they say is so, and raise NodeError or TimeoutError otherwise.
    """

    def __init__(self, cluster: ControlPlane, layout: NodeLayout, options: NodeOptions) -> None:
        self.name = layout.name
        self.layout = layout
        self.options = options
        self._cluster = cluster
        self._namespaces = Namespaces(layout)
        self._pool: Sequence[Object] = ()

    @classmethod
    @asynccontextmanager
    async def start(
        cls, cluster: ControlPlane, folder: Path, name: str, options: NodeOptions = DEFAULT_OPTIONS
    ) -> AsyncIterator[Self]:
        """A node that is Ready, with its devices published.  When the context is left only its logs are.

        Builds the programs unless they are in the cache.  Raises BuildError; NodeError if the node cannot start.
        """
        layout = NodeLayout.create(folder, name)
        node = cls(cluster, layout, options)
        try:
            layout.install()
            node._configure()
            await node.start_again()
            yield node
        finally:
            await node.crash()
            shutil.rmtree(layout.data)

    async def start_again(self) -> None:
        """Start everything, after `stop` or `crash`, as after a boot: what the kubelet and containerd keep on disk is there."""
        shutil.rmtree(self.layout.cdi)
        self.layout.cdi.mkdir()
        folders = {configuration.KUBELET_ROOT: self.layout.kubelet_root, configuration.CDI: self.layout.cdi}
        await self._namespaces.start(folders, configuration.TUNABLES)
        # What comes from pods leads into a network of its own, so that no interface and no setting of the machine changes.
        settings = f"--config={self.layout.containerd_configuration}"
        await self._namespaces.launch(CONTAINERD, ["unshare", "--net", "containerd", settings])
        await self._cluster.api.wait_for(self._containerd_answers, SECONDS, f"containerd of node {self.name} answers")
        if await self._namespaces.run("import", [*CTR, "images", "import", self.layout.image]) != 0:
            raise self._error("the image cannot be imported", "import")
        await self.start_driver()
        await self.start_kubelet()
        await self.wait_until_published()

    async def stop(self) -> None:
        """End kubelet and driver by SIGTERM, then everything."""
        await self.stop_kubelet()
        await self.stop_driver()
        await self.crash()

    async def crash(self) -> None:
        """SIGKILL to everything at once; nothing of the node runs afterwards, and its cgroups are gone."""
        await self._namespaces.kill()

    async def start_kubelet(self) -> None:
        """Start the kubelet and wait until it has reported the node as Ready."""
        since = datetime.now(UTC).replace(microsecond=0)
        if self.options.identity == "own":
            kubeconfig = self._cluster.kubeconfig_for(f"system:node:{self.name}")
        else:
            kubeconfig = self._cluster.admin_kubeconfig
        labels = ",".join(f"{key}={value}" for key, value in self.options.labels.items())
        root = configuration.KUBELET_ROOT
        await self._namespaces.launch(
            KUBELET,
            [
                "kubelet",
                f"--config={self.layout.kubelet_configuration}",
                f"--kubeconfig={kubeconfig}",
                f"--hostname-override={self.name}",
                f"--root-dir={root}",
                f"--cert-dir={root}/pki",
                *([f"--node-labels={labels}"] if labels else []),
                "--v=2",
            ],
        )

        async def ready() -> bool:
            if KUBELET not in await self._namespaces.programs():
                raise self._error("the kubelet has ended", KUBELET)
            node = await self._cluster.api.get(NODES, self.name)
            return await self._kubelet_answers() and any(
                each["type"] == "Ready"
                and each["status"] == "True"
                and datetime.fromisoformat(each["lastHeartbeatTime"]) >= since
                for each in node["status"].get("conditions", ())
            )

        await self._cluster.api.wait_for(ready, SECONDS, f"node {self.name} is Ready; see {self.layout.logs}")

    async def stop_kubelet(self, *, kill: bool = False) -> None:
        """End the kubelet by SIGTERM, or SIGKILL; containers run on."""
        await self._namespaces.end(KUBELET, kill=kill)

    async def restart_kubelet(self) -> None:
        """End the kubelet and start it again."""
        await self.stop_kubelet()
        await self.start_kubelet()

    async def start_driver(self) -> None:
        """Start the driver; it registers once there is a kubelet."""
        layout = self.layout
        await self._namespaces.launch(
            DRIVER,
            [
                "driver",
                f"-driver={self.options.driver}",
                f"-node={self.name}",
                f"-kubeconfig={self._cluster.admin_kubeconfig}",
                f"-pools={layout.pools}",
                f"-behaviour={layout.behaviour}",
                f"-kubelet={configuration.KUBELET_ROOT}",
                f"-cdi={configuration.CDI}",
            ],
        )

    async def stop_driver(self, *, kill: bool = False) -> None:
        """End the driver by SIGTERM, or SIGKILL; its slices stay."""
        await self._namespaces.end(DRIVER, kill=kill)

    async def publish(self, devices: Sequence[Object], counter_sets: Sequence[Object] = ()) -> None:
        """Let the driver publish its pool anew; returns once the API server has exactly this."""
        self._write_pool(devices, counter_sets)
        await self._namespaces.send(DRIVER, signal.SIGHUP)
        await self.wait_until_published()

    async def wait_until_published(self) -> None:
        """Wait until the API server has exactly what the driver is to publish, as slices of one generation."""
        api = self._cluster.api
        wanted = [
            (await api.create(RESOURCE_SLICES, self._slice(number, spec), dryRun="All"))["spec"]
            for number, spec in enumerate(self._pool)
        ]

        async def published() -> bool:
            if DRIVER not in await self._namespaces.programs():
                raise self._error("the driver has ended", DRIVER)
            found = [each["spec"] for each in await self.slices()]
            pools = {(each["pool"]["generation"], each["pool"]["resourceSliceCount"]) for each in found}
            return len(pools) <= 1 and _contents(found) == _contents(wanted)

        await api.wait_for(published, SECONDS, f"the devices of node {self.name} are published; see {self.log(DRIVER)}")

    async def slices(self) -> list[Object]:
        """The slices of the driver and this node that the API server has."""
        selector = f"spec.nodeName={self.name},spec.driver={self.options.driver}"
        return await self._cluster.api.list(RESOURCE_SLICES, fieldSelector=selector)

    def behave(
        self,
        *,
        prepare_error: str | None = None,
        unprepare_error: str | None = None,
        prepare_delay: float = 0.0,
        claim: str | None = None,
    ) -> None:
        """What the driver does from its next call on, with one claim or all; without arguments all is well.

        `claim`: NAME or NAMESPACE/NAME.  `prepare_delay`: seconds; calls wait for each other.
        """
        told = {
            "prepareError": prepare_error or "",
            "unprepareError": unprepare_error or "",
            "prepareDelaySeconds": prepare_delay,
            "claim": claim or "",
        }
        unfinished = self.layout.behaviour.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(told))
        unfinished.rename(self.layout.behaviour)

    def cdi(self) -> list[Object]:
        """The CDI specs of the node, of all drivers."""
        return [spec for _, spec in self._cdi_files()]

    def prepared(self) -> Mapping[str, frozenset[str]]:
        """What the driver has prepared and not unprepared: UIDs of claims, and their devices as POOL/DEVICE."""
        prefix = f"{self.options.driver}-"
        return {
            path.stem.removeprefix(prefix): frozenset(_device(each) for each in spec["devices"])
            for path, spec in self._cdi_files()
            if path.name.startswith(prefix)
        }

    def log(self, name: str) -> Path:
        """Log of containerd, kubelet, driver, init or import, or of a program that a test has launched."""
        return self.layout.log(name)

    def processes(self) -> frozenset[int]:
        """Every process of the node, its containers' included, by the machine's numbers; none while it does not run."""
        return self._namespaces.processes()

    async def launch(self, name: str, command: Sequence[str | Path]) -> None:
        """Start a further program in the node, such as another driver, under a name of its own; it ends with the node."""
        await self._namespaces.launch(name, command)

    async def end(self, name: str, *, kill: bool = False) -> int | None:
        """End such a program by SIGTERM, or SIGKILL; its exit code, None if it did not run."""
        return await self._namespaces.end(name, kill=kill)

    def _configure(self) -> None:
        layout = self.layout
        layout.kubelet_configuration.write_text(json.dumps(configuration.kubelet(layout, self.options.gates)))
        layout.containerd_configuration.write_text(configuration.containerd(layout))
        (layout.cni_folder / "10-pods.conflist").write_text(json.dumps(configuration.network(layout)))
        for name in ("plugins", "plugins_registry"):
            (layout.kubelet_root / name).mkdir(parents=True)
        write_image(layout.bin / "box", layout.image, configuration.IMAGE)
        self._write_pool(self.options.devices, self.options.counter_sets)

    def _write_pool(self, devices: Sequence[Object], counter_sets: Sequence[Object]) -> None:
        chunks = range(0, len(devices), DEVICES_OF_A_SLICE)
        self._pool = [
            *([{"sharedCounters": list(counter_sets)}] if counter_sets else []),
            *({"devices": list(devices[first : first + DEVICES_OF_A_SLICE])} for first in chunks),
        ]
        self.layout.pools.write_text(json.dumps({self.name: self._pool}))

    def _slice(self, number: int, spec: Object) -> Object:
        pool = {"name": self.name, "generation": 1, "resourceSliceCount": len(self._pool)}
        return {
            "apiVersion": DRA,
            "kind": "ResourceSlice",
            "metadata": {"name": f"{self.name}-dry-run-{number}"},
            "spec": {"driver": self.options.driver, "nodeName": self.name, "pool": pool, **spec},
        }

    def _cdi_files(self) -> Iterator[tuple[Path, Object]]:
        for path in sorted(self.layout.cdi.glob("*.json")):
            try:
                yield path, json.loads(path.read_text())
            except FileNotFoundError:
                continue

    async def _kubelet_answers(self) -> bool:
        """Whether this kubelet serves, whose predecessor may have reported the node as Ready a moment ago."""
        url = f"https://{self.name}:{self.layout.kubelet_port}/healthz"
        async with aiohttp.ClientSession() as session, session.get(url, ssl=False) as answer:
            return answer.status == HTTPStatus.OK

    async def _containerd_answers(self) -> bool:
        return await self._namespaces.run("containerd-probe", [*CTR, "version"], seconds=5.0) == 0

    def _error(self, what: str, log: str) -> NodeError:
        lines = self.log(log).read_text(errors="replace").splitlines()[-20:]
        return NodeError("\n".join([f"Node {self.name}: {what}. The end of {self.log(log)}:", *lines]))


def _contents(specs: Sequence[Object]) -> list[str]:
    """Devices and counters of slices in a comparable form, without the times at which taints were added."""
    found = []
    for spec in specs:
        devices = [
            {**each, "taints": [{**taint, "timeAdded": None} for taint in each.get("taints", ())]}
            for each in spec.get("devices", ())
        ]
        found.append(json.dumps([devices, spec.get("sharedCounters", [])], sort_keys=True))
    return sorted(found)


def _device(device: Object) -> str:
    """POOL/DEVICE of a device in a CDI spec, from the variable that it sets."""
    (variable,) = device["containerEdits"]["env"]
    return str(variable).partition("=")[2].partition("#")[0].partition("!")[0]

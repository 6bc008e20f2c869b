import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

import aiohttp
import msgspec
from dra_extender.runtime.supervision import running_task

from tests.bench import workload
from tests.bench.accounting import memory_megabytes
from tests.bench.contenders import Contender
from tests.bench.load import create_all, prepared
from tests.bench.processes import helper
from tests.bench.rows import BenchError
from tests.bench.scale import Scale, TenantLoad
from tests.controlplane import attacks, objects
from tests.controlplane.apiclient import ApiClient
from tests.controlplane.apierror import ApiError
from tests.controlplane.attacks import Attack
from tests.controlplane.extender import ExtenderProcess
from tests.controlplane.kubeconfig import read_kubeconfig
from tests.controlplane.resources import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.support.e2e.installed_extender import page, total

ATTACKER: Final = "attacker"
_ATTACKERS: Final = 20
_REPLACED_PER_SECOND: Final = 5.0
_PROBE_SECONDS: Final = 0.05
_PROBE_TIMEOUT: Final = 60.0
_HIGH: Final = 98
_PER_CENT: Final = 100


@dataclass(slots=True)
class Suffered:
    """What a victim saw: seconds from created to bound, pods bound per second of a burst, seconds of its filter calls.

    Pods that were not bound in time count with the time they waited.  `livez`: seconds that each probe took.  `bound` of `pods`.
    `accepted`: attacking pods that the API server let in, `refusal` its last answer to another.
    `attempts`: those of kube-scheduler at pods that no node suited.
    `megabytes`: growth of the extender's resident memory.
    """

    latencies: list[float] = field(default_factory=list)
    rate: float = 0.0
    filters: list[float] = field(default_factory=list)
    livez: list[float] = field(default_factory=list)
    bound: int = 0
    pods: int = 0
    accepted: int = 0
    refusal: str = ""
    attempts: float = 0.0
    megabytes: float = 0.0


def p99(figures: list[float]) -> float:
    """The 99th percentile, 0 for no figures."""
    if len(figures) < 2:
        return max(figures, default=0.0)
    return quantiles(figures, n=_PER_CENT, method="inclusive")[_HIGH]


async def suffer(contender: Contender, attack: Attack | None, scale: Scale, workdir: Path) -> Suffered:
    """Schedule a victim's pods, beside the attack if there is one.

    Raises BenchError if the API server admits nothing of the attack.
    """
    load = scale.tenants
    async with prepared(scale, workdir, ATTACKER) as cluster, AsyncExitStack() as stack:
        await _populate(cluster.api, load)
        extender = await stack.enter_async_context(contender.extender(cluster))
        found, url = Suffered(), ""
        if extender is not None:
            arguments = ["--target", extender.url, "--namespace", workload.NAMESPACE]
            relay = await stack.enter_async_context(
                helper("tenants_relay", arguments, workdir, ready="/figures", seconds=30.0)
            )
            url = f"http://127.0.0.1:{relay.port}"
        await asyncio.sleep(load.settle_seconds)
        before = _resident(extender)
        pages = await cluster.start_scheduler(contender.config(url))
        async with _probed(extender, found), _attacked(cluster.api, attack, load, found):
            await _victim(cluster.api, load, found)
        metrics = await page(f"{pages}/metrics", read_kubeconfig(cluster.admin_kubeconfig).token)
        found.attempts = total(metrics, "scheduler_schedule_attempts_total", {"result": "unschedulable"})
        found.megabytes = _resident(extender) - before
        if url:
            found.filters = await _figures(url)
        if attack is not None and not found.accepted:
            raise BenchError(f"{attack.name}: the API server admitted nothing of it: {found.refusal[:500]}")
        return found


async def _populate(api: ApiClient, load: TenantLoad) -> None:
    await api.create(DEVICE_CLASSES, workload.device_class())
    await create_all(api, NODES, (workload.node(index) for index in range(load.nodes)))
    await create_all(api, RESOURCE_SLICES, (_node_slice(index) for index in range(load.nodes)))
    pods = load.steady + load.burst
    await create_all(api, RESOURCE_CLAIMS, (workload.claim(index) for index in range(pods)))


def _node_slice(index: int) -> workload.Object:
    name = workload.node_name(index)
    return objects.resource_slice(name, node=name, devices=attacks.devices())


class _Bindings:
    """When each of the victim's pods was created, and when it was seen to be bound (monotonic)."""

    def __init__(self) -> None:
        self.created: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self._more = asyncio.Event()

    async def follow(self, events: AsyncIterator[dict[str, Any]]) -> None:
        """Note what a watch brings, for ever."""
        async for event in events:
            if event["object"]["spec"].get("nodeName"):
                self.bound.setdefault(event["object"]["metadata"]["name"], time.monotonic())
                self._more.set()

    async def all_bound(self, seconds: float) -> None:
        """Returns when every created pod is bound, at the latest after so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.created.keys() - self.bound.keys():
                    await self._more.wait()
                    self._more.clear()


async def _victim(api: ApiClient, load: TenantLoad, found: Suffered) -> None:
    bindings = _Bindings()
    async with api.watch(PODS, workload.NAMESPACE) as events:
        watcher = asyncio.create_task(bindings.follow(events))
        try:
            begin = time.monotonic()
            for index in range(load.steady):
                await asyncio.sleep(max(0.0, begin + index / load.per_second - time.monotonic()))
                await _create(api, index, bindings.created)
            await bindings.all_bound(load.seconds)
            steady = list(bindings.created)
            begin = time.monotonic()
            async with asyncio.TaskGroup() as group:
                for index in range(load.steady, load.steady + load.burst):
                    group.create_task(_create(api, index, bindings.created))
            await bindings.all_bound(load.seconds)
            end = time.monotonic()
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
    created, bound = bindings.created, bindings.bound
    late = created.keys() - set(steady)
    done = [bound[name] for name in late if name in bound]
    found.latencies = [bound.get(name, end) - created[name] for name in steady]
    found.rate = len(done) / ((max(done) if len(done) == len(late) else end) - begin)
    found.bound, found.pods = len(bound), len(created)


async def _create(api: ApiClient, index: int, created: dict[str, float]) -> None:
    created[workload.pod_name(index)] = time.monotonic()
    await api.create(PODS, workload.pod(index))


@asynccontextmanager
async def _attacked(api: ApiClient, attack: Attack | None, load: TenantLoad, found: Suffered) -> AsyncIterator[None]:
    """Inside, so many attacking pods exist at any time, each of them replaced by a new one after some seconds."""
    if attack is None:
        yield
        return
    async with running_task(_go_on_attacking(api, attack, found)):
        await asyncio.sleep(load.head_start_seconds)
        yield


async def _go_on_attacking(api: ApiClient, attack: Attack, found: Suffered) -> None:
    number = 0
    while True:
        if number >= _ATTACKERS:
            await asyncio.sleep(1 / _REPLACED_PER_SECOND)
            old = attacks.attacker(number - _ATTACKERS)
            with suppress(ApiError):
                await api.delete(PODS, old, ATTACKER, grace_seconds=0)
                await api.delete(RESOURCE_CLAIMS, old, ATTACKER)
        try:
            await api.create(RESOURCE_CLAIMS, attack.claim(number, ATTACKER, workload.CLASS, objects.DRIVER))
            await api.create(PODS, attacks.pod(number, ATTACKER))
            found.accepted += 1
        except ApiError as refused:
            found.refusal = str(refused)
        number += 1


@asynccontextmanager
async def _probed(extender: ExtenderProcess | None, found: Suffered) -> AsyncIterator[None]:
    """Inside, liveness is asked for again and again over a connection of its own each time, as a kubelet does."""
    if extender is None:
        yield
        return
    async with running_task(_probe(extender.url, found)):
        yield


async def _probe(url: str, found: Suffered) -> None:
    timeout = aiohttp.ClientTimeout(total=_PROBE_TIMEOUT)
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        while True:
            begin = time.monotonic()
            try:
                async with session.get(f"{url}/livez") as answer:
                    await answer.read()
            except (TimeoutError, aiohttp.ClientError):
                pass
            finally:
                found.livez.append(time.monotonic() - begin)
            await asyncio.sleep(_PROBE_SECONDS)


async def _figures(url: str) -> list[float]:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/figures") as answer:
        return msgspec.json.decode(await answer.read(), type=list[float])


def _resident(extender: ExtenderProcess | None) -> float:
    return 0.0 if extender is None or extender.pid is None else memory_megabytes(extender.pid)[0]


async def kept(contender: Contender, claims: int, scale: Scale, workdir: Path) -> float:
    """Growth of the extender's resident memory, in 2**20 bytes, by so many claims of 10 KiB of one namespace."""
    settle = scale.tenants.settle_seconds
    async with prepared(scale, workdir, ATTACKER) as cluster, contender.extender(cluster) as extender:
        await _populate(cluster.api, TenantLoad(nodes=1, steady=0, burst=0))
        await asyncio.sleep(settle)
        before = _resident(extender)
        large = (attacks.large_claim(index, ATTACKER, workload.CLASS) for index in range(claims))
        await create_all(cluster.api, RESOURCE_CLAIMS, large)
        await asyncio.sleep(settle)
        return _resident(extender) - before

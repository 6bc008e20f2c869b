import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
from dra_extender.model.node import node_from
from dra_extender.model.pod_group import read_pod_group
from dra_extender.model.resource_claim import claim_from
from dra_extender.model.resource_slice import SliceReader

from tests.bench import workload
from tests.bench.accounting import busy_seconds, processor_seconds
from tests.bench.contenders import Contender
from tests.bench.group_loads import wrong_reservations
from tests.bench.load import Load, prepared
from tests.bench.rows import BenchError
from tests.bench.scale import Scale
from tests.controlplane.apiclient import ApiClient
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.extender import ExtenderProcess
from tests.controlplane.resources import NODES, POD_GROUPS, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.support.audit.raw_objects import audit
from tests.support.model.reading import pod_from

_RUN_SECONDS: Final = 300.0
_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Run:
    """One queue of pods, scheduled: pods per second, and where the processor time went.

    `seconds`: from the scheduler's start to the last Binding; a group may be planned as a whole before its first Binding.
    `bound`: pods, fewer than all if the contender was stopped; the stop counts as the last Binding then.
    `milliseconds`: per pod and process, over the same time.  `cores`: used on average by all of them between the first and the
    last Binding; `foreign`: used meanwhile by everything else on the machine, which disturbs the rate.
    """

    rate: float
    seconds: float
    bound: int
    milliseconds: dict[str, float]
    cores: float
    foreign: float


@dataclass(frozen=True, slots=True)
class _Moment:
    """Monotonic seconds, processor seconds by process, and those of the whole machine."""

    time: float
    used: dict[str, float]
    busy: float

    @classmethod
    def now(cls, pids: dict[str, int]) -> "_Moment":
        return cls(time.monotonic(), {name: processor_seconds(pid) for name, pid in pids.items()}, busy_seconds())


@dataclass(slots=True)
class _Bindings:
    """The first and the last time that a pod was seen to be bound."""

    expected: int
    pids: Callable[[], dict[str, int]]
    bound: set[str] = field(default_factory=set)
    first: _Moment | None = None
    last: _Moment | None = None

    async def follow(self, events: AsyncIterator[dict[str, Any]], waiting: asyncio.Event) -> None:
        """Until all pods are bound; `waiting` is set when all were seen to exist and to have their claims."""
        seen: set[str] = set()
        async for event in events:
            name: str = event["object"]["metadata"]["name"]
            if _has_claims(event["object"]):
                seen.add(name)
            if len(seen) == self.expected:
                waiting.set()
            if name in self.bound or not event["object"]["spec"].get("nodeName"):
                continue
            self.bound.add(name)
            if len(self.bound) == 1:
                self.first = _Moment.now(self.pids())
            if len(self.bound) == self.expected:
                self.last = _Moment.now(self.pids())
                return


def _has_claims(pod: Mapping[str, Any]) -> bool:
    """Whether a claim is recorded for each template that the pod names."""
    recorded = {each["name"] for each in pod["status"].get("resourceClaimStatuses", ())}
    wanted = pod["spec"].get("resourceClaims", ())
    return all(each["name"] in recorded for each in wanted if each.get("resourceClaimTemplateName"))


async def run(contender: Contender, load: Load, scale: Scale, workdir: Path) -> Run:
    """Schedule pods that wait already.

    Raises BenchError if pods are left over or the allocations are wrong.
    """
    async with prepared(scale, workdir) as cluster:
        await load.populate(cluster.api)
        async with contender.extender(cluster) as extender:
            await asyncio.sleep(scale.settle_seconds)
            measured = await _scheduled(cluster, contender, extender, load.pods)
        if contender.audited and measured.bound == load.pods:
            await _audited(cluster.api, contender)
        return measured


async def _scheduled(cluster: ControlPlane, contender: Contender, extender: ExtenderProcess | None, pods: int) -> Run:
    def pids() -> dict[str, int]:
        return cluster.pids if extender is None else {"extender": extender.pid or 0, **cluster.pids}

    bindings = _Bindings(pods, pids)
    async with cluster.api.watch(PODS, workload.NAMESPACE) as events, _following(bindings, events) as following:
        before = _Moment.now(pids())
        configuration = contender.config(extender.url if extender is not None else "")
        await cluster.start_scheduler(configuration, feature_gates=contender.scheduler_gates)
        try:
            await asyncio.wait_for(following, contender.seconds or _RUN_SECONDS)
        except TimeoutError as late:
            if contender.seconds is not None:
                bindings.last = _Moment.now(pids())
                return _told(before, bindings)
            raise BenchError(
                f"{contender.name}: not all of {pods} pods were bound within {_RUN_SECONDS:.0f} s."
            ) from late
    return _told(before, bindings)


def _told(before: _Moment, bindings: _Bindings) -> Run:
    first, last, pods = bindings.first, bindings.last, len(bindings.bound)
    if first is None or last is None or last.time <= first.time:
        raise BenchError("A rate needs more than one Binding.")
    seconds = last.time - first.time
    used = sum(last.used.values()) - sum(first.used.values())
    return Run(
        rate=(pods - 1) / seconds,
        seconds=last.time - before.time,
        bound=pods,
        milliseconds={name: 1000 * (spent - before.used.get(name, 0.0)) / pods for name, spent in last.used.items()},
        cores=used / seconds,
        foreign=(last.busy - first.busy - used) / seconds,
    )


@asynccontextmanager
async def _following(bindings: _Bindings, events: AsyncIterator[dict[str, Any]]) -> AsyncIterator[asyncio.Task[None]]:
    waiting = asyncio.Event()
    task = asyncio.create_task(bindings.follow(events, waiting))
    try:
        async with asyncio.timeout(_RUN_SECONDS):
            await waiting.wait()
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _audited(api: ApiClient, contender: Contender) -> None:
    """What the API objects say, judged without the code that decided."""
    reader = SliceReader()
    pods = [pod_from(each) for each in await api.list(PODS)]
    claims = [claim_from(each) for each in await api.list(RESOURCE_CLAIMS)]
    groups = [read_pod_group(msgspec.json.encode(each)) for each in await api.list(POD_GROUPS)]
    slices = [reader.convert(each) for each in await api.list(RESOURCE_SLICES)]
    nodes = [node_from(each) for each in await api.list(NODES)]
    findings = [
        *map(str, audit(claims, slices, pods, nodes, groups, guard_namespace="dra-extender")),
        *wrong_reservations(claims, groups),
    ]
    unbound = [pod.key for pod in pods if not pod.node_name]
    if findings or unbound:
        told = "\n".join(findings[:_SHOWN])
        raise BenchError(
            f"{contender.name}: {len(unbound)} pods unbound, {len(findings)} findings of the audit:\n{told}"
        )

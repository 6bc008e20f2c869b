"""One run: pods come and go while requests, connections and processes fail; the invariants are looked at all the time."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from dra_extender.inspection.audit.findings import InvariantViolation
from dra_extender.runtime.supervision import running_task

from tests.chaos.cluster import furnish
from tests.chaos.faults import Faults, Rates
from tests.chaos.foreign import PREFIX, Foreign, bound_twice
from tests.chaos.load import Life, Load
from tests.chaos.patience import patiently, unless
from tests.chaos.troubles import LEASE_SECONDS, Troubles
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.resources import NODES, POD_GROUPS, PODS, RESOURCE_CLAIMS
from tests.controlplane.waiting import wait_for
from tests.support.e2e.api_relay import ApiRelay
from tests.support.e2e.checker import findings_at_rest, forbidden_findings
from tests.support.e2e.driver import driving
from tests.support.e2e.namespace_fixture import NamespaceFixture, devices_of
from tests.support.e2e.replicas import Pair

CALM_SECONDS: Final = 120.0
"""How long the next of the pods that wait may take when nothing goes wrong any more."""
_NOT_FOUND = 404
DRIVER_SECONDS: Final = 1.0
TWICE: Final = "device in two claims"
SETTINGS: Final = {
    "SCHEDULING__RECLAIM_GRACE_SECONDS": "5",
    "SCHEDULING__RECLAIM_INTERVAL_SECONDS": "1",
    "SCHEDULING__BINDING_TIMEOUT_SECONDS": "30",
    "SCHEDULING__DEVICE_BACKOFF_SECONDS": "5",
    "LEADER_ELECTION__DURATION_SECONDS": str(LEASE_SECONDS),
    "LEADER_ELECTION__RENEW_SECONDS": str(LEASE_SECONDS - 2),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """How much chaos: seconds of trouble, pods in all, nodes, and the seed of every decision that is left to chance."""

    seed: int
    seconds: float = 60.0
    pods: int = 200
    nodes: int = 12
    rates: Rates = field(default_factory=Rates)

    @property
    def pause(self) -> float:
        """Seconds between two troubles."""
        return 3.0 if self.seconds <= 120 else 6.0

    @property
    def life(self) -> float:
        """Seconds that a bound pod lives, on the average."""
        return min(30.0, max(5.0, self.seconds / 8))


@dataclass(slots=True)
class Result:
    """What happened; a run is good when there are neither violations nor stuck pods nor complaints."""

    plan: Plan
    lives: dict[str, Life] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    troubles: dict[str, int] = field(default_factory=dict)
    calls: int = 0
    looks: int = 0
    terms: int = 0
    foreign: int = 0
    yielded: int = 0
    reclaims: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.violations or self.stuck or self.left or self.complaints)


async def run_alone(plan: Plan, workdir: Path) -> Result:
    """A run on a control plane of its own."""
    async with ControlPlane.start(workdir) as cluster:
        return await run(plan, workdir, cluster)


async def run(plan: Plan, workdir: Path, cluster: ControlPlane) -> Result:
    """A run on this control plane; logs of the service stay in `workdir`."""
    async with ApiRelay(cluster.api.access) as relay:
        environment = {f"DRA_EXTENDER_{name}": value for name, value in SETTINGS.items()}
        async with Pair.start_pair(cluster, workdir, server=relay.url, environment=environment) as pair:
            return await _Run(plan, pair, relay).run()


class _Run:
    def __init__(self, plan: Plan, pair: Pair, relay: ApiRelay) -> None:
        self._plan = plan
        self._pair = pair
        self._relay = relay
        self._result = Result(plan)
        self._random = Random(plan.seed)
        self._faults = Faults(self._stream(), plan.rates)
        self._troubles = Troubles(pair, relay, self._stream(), plan.pause)
        self._scene = NamespaceFixture(pair, "chaos")
        self._foreign = Foreign(self._scene, self._stream(), plan.life)
        self._load = Load(self._scene, self._stream(), plan.pods, plan.seconds * 0.6, plan.life)

    async def run(self) -> Result:
        """See `run` of the module."""
        plan, result = self._plan, self._result
        await furnish(self._scene, plan.nodes)
        chance = self._stream()
        async with driving(self._scene, delay=DRIVER_SECONDS, fails=lambda: chance.random() < 0.1):
            async with running_task(self._look_now_and_then()), running_task(self._load.tend()):
                self._relay.handler = self._faults
                work = (self._load.make(), self._troubles.run(plan.seconds), self._foreign.run(plan.seconds))
                for outcome in await asyncio.gather(*work, return_exceptions=True):
                    if isinstance(outcome, BaseException):
                        result.violations.append(f"{type(outcome).__name__}: {outcome}")
                self._faults.on = False
                await self._pair.both()
                await self._calm()
            await self._rest()
            await self._end()
        result.lives = self._load.lives
        result.faults, result.troubles = dict(self._faults.counts), dict(self._troubles.counts)
        result.calls = self._faults.calls
        result.terms = int((await self._pair.lease())["leaseTransitions"])
        result.reclaims = self._reclaims()
        result.foreign, result.yielded = self._foreign.bound, self._yielded()
        result.complaints = self._complaints()
        return result

    async def _calm(self) -> None:
        """Everything works again: each pod that was ever made is bound now or was, unless it was deleted before."""

        while before := len(self._load.waiting):
            try:
                await wait_for(lambda before=before: self._fewer(before), CALM_SECONDS, "one more pod is bound")  # type: ignore[misc]
            except TimeoutError:
                for name in self._load.waiting:
                    if await self._shares_with_a_closed_node(name):
                        continue
                    state = await unless(_NOT_FOUND, lambda name=name: self._scene.state(name))  # type: ignore[misc]
                    self._result.stuck.append(f"{name}: {state}")
                return

    async def _shares_with_a_closed_node(self, name: str) -> bool:
        """Whether a claim of this pod is in use by a pod that is bound to a node that takes no pods any more."""
        scene = self._scene
        pods = await patiently(lambda: scene.api.list(PODS, scene.name))
        closed = {
            each["metadata"]["name"]
            for each in await patiently(lambda: scene.api.list(NODES))
            if each["spec"].get("unschedulable")
        }
        there = {each["metadata"]["uid"] for each in pods if each["spec"].get("nodeName") in closed}
        wanted = {
            claim.get("resourceClaimName")
            for each in pods
            if each["metadata"]["name"] == name
            for claim in each["spec"].get("resourceClaims", ())
        }
        claims = await patiently(lambda: scene.api.list(RESOURCE_CLAIMS, scene.name))
        return any(
            consumer["uid"] in there
            for claim in claims
            if claim["metadata"]["name"] in wanted
            for consumer in claim.get("status", {}).get("reservedFor", ())
        )

    async def _fewer(self, than: int) -> bool:
        return len(self._load.waiting) < than

    async def _rest(self) -> None:
        """No pod comes or goes any more: nothing is wrong, and nothing is left that nobody uses."""
        last: tuple[InvariantViolation, ...] = ()

        async def nothing() -> bool:
            nonlocal last
            last = await patiently(lambda: findings_at_rest(self._scene.api))
            return not last

        try:
            await wait_for(nothing, CALM_SECONDS, "the audit has no finding")
        except TimeoutError:
            self._result.left = [str(each) for each in last]

    async def _end(self) -> None:
        """When pods and PodGroups have gone, nothing is allocated any more, and nothing keeps a claim."""
        scene = self._scene
        try:
            # Pods also because a deletion may have ended with `tend` when its pod was marked and not gone.
            for resource in (PODS, POD_GROUPS):
                await patiently(lambda kind=resource: scene.api.delete_collection(kind, scene.name, grace_seconds=0))  # type: ignore[misc]
            await scene.wait_until_free()
            await scene.clear()
        except TimeoutError as problem:
            claims = await scene.api.list(RESOURCE_CLAIMS, scene.name)
            kept = [f"{each['metadata']['name']} is kept: {each['status']}" for each in claims if devices_of(each)]
            self._result.left += [str(problem), *kept]

    async def _look_now_and_then(self) -> None:
        """The rules that hold at every moment, at random moments."""
        chance = self._stream()
        while True:
            await asyncio.sleep(chance.uniform(0.5, 4.0))
            found = [str(each) for each in await patiently(lambda: forbidden_findings(self._scene.api))]
            self._result.looks += 1
            # Another scheduler may store what a pod of ours has that is not bound yet; of bound pods none may have it.
            self._result.violations += [each for each in found if not (each.startswith(TWICE) and PREFIX in each)]
            self._result.violations += await bound_twice(self._scene)

    def _reclaims(self) -> dict[str, int]:
        """How often something was given back, by reason, as the logs of both replicas have it."""
        lines = [line for replica in self._pair.replicas for line in replica.log()]
        return dict(Counter(line["reason"] for line in lines if str(line.get("msg")).startswith("reclaimed")))

    def _yielded(self) -> int:
        """How often the extender gave way to the other scheduler, as the logs of both replicas have it."""
        lines = [line for replica in self._pair.replicas for line in replica.log()]
        return sum(str(line.get("msg")).startswith("an allocation overlaps") for line in lines)

    def _complaints(self) -> list[str]:
        """Errors in the logs.  A refusal for lack of rights is none: an API server that starts does not know its rules yet."""
        return [line for line in self._pair.complaints() if "forbidden" not in line.lower()]

    def _stream(self) -> Random:
        return Random(self._random.getrandbits(64))

"""Two replicas of the extender on one control plane, and what stands between them and kube-scheduler in a cluster."""

import base64
import dataclasses
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import aiohttp

from tests.controlplane import objects
from tests.controlplane.apiclient import ApiClient
from tests.controlplane.apierror import ApiError
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.extender import ExtenderProcess
from tests.controlplane.kubeconfig import read_kubeconfig, write_kubeconfig
from tests.controlplane.objects import Object
from tests.controlplane.process import whole_lines
from tests.controlplane.resources import ENDPOINT_SLICES, LEASES, ROLE_BINDINGS, ROLES
from tests.support.e2e.installed_extender import ACCOUNT, APPLIED, DEPLOY, NAMESPACE, PAGE_SECONDS, InstalledExtender
from tests.support.e2e.relay import Relay

LEASE: Final = "dra-extender"
SERVICE: Final = "dra-extender"
DURATION: Final = 3
_UNAVAILABLE: Final = 503
_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 5.0
"""A replica that is frozen does not answer, and the other one is looked at next."""
TIMES: Final = {"DURATION_SECONDS": str(DURATION), "RENEW_SECONDS": "2", "RETRY_SECONDS": "0.25"}
_WRITES: Final = frozenset({"create", "update", "patch", "delete"})


@dataclass(slots=True)
class Replica:
    """One extender process with a credential and an address of its own."""

    name: str
    address: str
    process: ExtenderProcess
    credential: str

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.process.url

    async def page(self, path: str, seconds: float = PAGE_SECONDS) -> tuple[int, str]:
        """Status and text of a page."""
        timeout = aiohttp.ClientTimeout(total=seconds)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(f"{self.url}{path}") as answer:
            return answer.status, await answer.text()

    async def ready(self, seconds: float = PAGE_SECONDS) -> bool:
        """Whether it answers the verbs now."""
        return (await self.page("/readyz", seconds))[0] == 200

    def send(self, number: signal.Signals) -> None:
        """A signal to the process group."""
        assert self.process.pid is not None
        os.killpg(self.process.pid, number)

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in whole_lines(self.process.log) if line.startswith("{")]


class Routed(Relay):
    """What a Service without selector does: calls go to the one endpoint that its EndpointSlice names."""

    def __init__(self, api: ApiClient, replicas: list[Replica]) -> None:
        super().__init__("")
        self._api = api
        self._replicas = replicas

    async def where(self) -> str:
        """The URL of the replica that has pointed the Service at itself."""
        found = await self._api.get(ENDPOINT_SLICES, SERVICE, NAMESPACE)
        address = found["endpoints"][0]["addresses"][0]
        return next(each.url for each in self._replicas if each.address == address)


@dataclass(slots=True)
class Pair(InstalledExtender):
    """A world with two replicas; `extender` is the first of them."""

    replicas: list[Replica] = field(default_factory=list)

    @classmethod
    @asynccontextmanager
    async def start_pair(
        cls,
        cluster: ControlPlane,
        workdir: Path,
        *,
        server: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Self]:
        """Both replicas started at once, behind what routes to the leader, and a kube-scheduler that calls there.

        `server`: what stands before the API server for the replicas; `environment`: settings of both.
        """
        cluster.kubectl("apply", *(f"--filename={DEPLOY / name}.yaml" for name in APPLIED))
        await _let_route(cluster.api)
        async with AsyncExitStack() as stack:
            replicas = [_routed(cluster, workdir, number, server, environment or {}) for number in (1, 2)]
            for each in replicas:
                await each.process.start(ready=None)
                stack.push_async_callback(each.process.terminate)
            relay = await stack.enter_async_context(Routed(cluster.api, replicas))
            kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, ACCOUNT)
            pair = cls(cluster, replicas[0].process, kubeconfig, relay, replicas=replicas)
            await pair.leader()
            await pair.start_scheduler()
            stack.push_async_callback(cluster.stop_scheduler)
            yield pair

    async def leader(self, seconds: float = _SECONDS) -> Replica:
        """Waits until one replica is ready and calls go there; returns it."""

        async def found() -> Replica | None:
            for each in self.replicas:
                if each.process.pid is not None and await _quietly_ready(each) and await self._routed_to(each):
                    return each
            return None

        leader = await self.api.wait_for(found, seconds, "a replica leads and is called")
        assert leader is not None
        return leader

    def other(self, replica: Replica) -> Replica:
        return next(each for each in self.replicas if each is not replica)

    async def both(self) -> Replica:
        """Waits until both run, one of them as a warm standby; returns the leader."""
        for each in self.replicas:
            if each.process.pid is None:
                await each.process.start(ready="/readyz?exclude=leader")
            await each.process.wait_ready("/readyz?exclude=leader")
        leader = await self.leader()
        await self.wait_until_standby(self.other(leader), leader)
        return leader

    async def wait_until_standby(self, standby: Replica, leader: Replica) -> None:
        """Wait until a replica is not ready because it knows that the other one leads; it reads the Lease now and then."""

        async def knows() -> bool:
            status, text = await standby.page("/readyz")
            return status == _UNAVAILABLE and f"[-]leader failed: this replica stands by, {leader.name}_" in text

        await self.api.wait_for(knows, _SECONDS, f"{standby.name} stands by")

    async def lease(self) -> Object:
        spec: Object = (await self.api.get(LEASES, LEASE, NAMESPACE))["spec"]
        return spec

    def writes(self, replica: Replica) -> list[Object]:
        """What the API server has heard of writes of this replica, leases left out, oldest first."""
        return [
            each
            for each in self._audited()
            if replica.credential in str(each["user"].get("extra")) and each["objectRef"]["resource"] != "leases"
        ]

    def complaints(self) -> list[str]:
        """As of one extender, of both."""
        return [
            line
            for each in self.replicas
            for line in InstalledExtender(
                self.cluster, each.process, self.kubeconfig, tolerated=self.tolerated
            ).complaints()
        ]

    def tails(self) -> str:
        """The ends of all logs."""
        return "\n".join([InstalledExtender.tails(self), *(each.process.report("says") for each in self.replicas[1:])])

    def _audited(self) -> Iterator[Object]:
        events = map(json.loads, whole_lines(self.cluster.audit_log))
        return (each for each in events if each["verb"] in _WRITES)

    async def _routed_to(self, replica: Replica) -> bool:
        assert isinstance(self.relay, Routed)
        try:
            return await self.relay.where() == replica.url
        except ApiError:
            return False


async def _quietly_ready(replica: Replica) -> bool:
    try:
        return await replica.ready(_LOOK_SECONDS)
    except (aiohttp.ClientError, TimeoutError):
        return False


def replica(cluster: ControlPlane, workdir: Path, name: str, address: str = "", **settings: str) -> Replica:
    """A replica that is not started yet, with a token of its own; `settings` are further ones of leader election."""
    return _replica(cluster, workdir, name, address, settings)


def _replica(
    cluster: ControlPlane,
    workdir: Path,
    name: str,
    address: str,
    settings: Mapping[str, str],
    server: str = "",
    others: Mapping[str, str] | None = None,
) -> Replica:
    """`server`: what it is told is the API server; `others`: more of its environment."""
    shared = read_kubeconfig(cluster.service_account_kubeconfig(NAMESPACE, ACCOUNT))
    own = write_kubeconfig(workdir / f"{name}.json", dataclasses.replace(shared, server=server or shared.server))
    given = {"ENABLED": "true", "NAMESPACE": NAMESPACE, "HOST": name, **TIMES, **settings}
    environment = {f"DRA_EXTENDER_LEADER_ELECTION__{key}": value for key, value in given.items()} | dict(others or {})
    process = ExtenderProcess(workdir, own, environment=environment, name=name)
    return Replica(name, address, process, _credential(own))


def _routed(cluster: ControlPlane, workdir: Path, number: int, server: str, environment: Mapping[str, str]) -> Replica:
    address = f"192.0.2.{10 + number}"
    settings = {"SERVICE": SERVICE, "ADDRESS": address}
    return _replica(cluster, workdir, f"replica-{number}", address, settings, server, environment)


def _credential(kubeconfig: Path) -> str:
    """The id by which the API server's audit log tells this token from others of the same account."""
    payload = read_kubeconfig(kubeconfig).token.split(".")[1]
    return str(json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["jti"])


async def _let_route(api: ApiClient) -> None:
    """The right that the chart adds where kube-scheduler calls a Service."""
    rule = {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["create", "patch"]}
    await grant(api, "dra-extender-route", rule, {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE})


async def grant(api: ApiClient, name: str, rule: Object, *subjects: Object) -> None:
    """Gives somebody a right in the extender's namespace."""
    await api.create(ROLES, objects.role(name, rule, namespace=NAMESPACE))
    await api.create(ROLE_BINDINGS, objects.role_binding(name, name, *subjects, namespace=NAMESPACE, of="Role"))

"""The product as deploy/ installs it, on a real control plane: shipped rights, shipped scheduler configuration, real processes."""

import copy
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
import yaml
from dra_extender.ledger.pod_groups import GroupEntryPolicy

from tests.controlplane.apiclient import ApiClient
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.extender import REPOSITORY, SERVE, ExtenderProcess
from tests.controlplane.kubeconfig import read_kubeconfig, write_kubeconfig
from tests.controlplane.process import whole_lines
from tests.support.e2e.api_relay import ApiRelay
from tests.support.e2e.relay import Relay

DEPLOY: Final = REPOSITORY / "deploy" / "base"
# What an administrator applies before the service runs; the Deployment itself is what these tests stand in for.
APPLIED: Final = ("namespace", "service-account", "rbac", "wake-up-class", "admission-policy")
NAMESPACE: Final = "dra-extender"
ACCOUNT: Final = "dra-extender"
SCHEDULER: Final = "kube-scheduler"
TAIL_LINES: Final = 40
PAGE_SECONDS: Final = 60.0


CLOSED_WHILE_CLOSING: Final = "Fatal error on SSL protocol"


@dataclass(frozen=True, slots=True)
class Setup:
    """How a module wants its world beside the control plane: environment of the extender, and whether a relay is between.

    `applied`: manifests below deploy/base beside those that everybody needs.
    `command`: given a kubeconfig, what starts the extender for it, in place of `serve --kubeconfig`.
    `scheduler`: fields of kube-scheduler's configuration in the place of those that are shipped.
    `scheduler_gates`: feature gates of kube-scheduler.
    `scheduler_tls`: the tlsConfig with which kube-scheduler calls; empty for plain HTTP.
    `relayed`: between kube-scheduler and the extender.  `api_relayed`: between the extender and the API server.  The kubelets, if
    there were any, are what the extender is told of them.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    command: Callable[[Path], Sequence[str]] | None = None
    relayed: bool = False
    api_relayed: bool = False
    applied: tuple[str, ...] = ()
    scheduler: Mapping[str, Any] = field(default_factory=dict)
    scheduler_gates: Mapping[str, bool] = field(default_factory=dict)
    scheduler_tls: Mapping[str, str] = field(default_factory=dict)

    @property
    def kubelets(self) -> GroupEntryPolicy:
        """Which kubelets accept claims of PodGroups."""
        told = self.environment.get("DRA_EXTENDER_SCHEDULING__RESERVE_FOR_POD_GROUPS", GroupEntryPolicy.AUTO)
        return GroupEntryPolicy(told)


@dataclass(slots=True)
class InstalledExtender:
    """A control plane, the extender under its shipped rights, and a kube-scheduler with the shipped configuration."""

    cluster: ControlPlane
    extender: ExtenderProcess
    kubeconfig: Path
    relay: Relay | None = None
    api_relay: ApiRelay | None = None
    scheduler_pages: str = ""
    tolerated: list[str] = field(default_factory=list)
    kubelets: GroupEntryPolicy = GroupEntryPolicy.AUTO
    scheduler: Mapping[str, Any] = field(default_factory=dict)
    scheduler_gates: Mapping[str, bool] = field(default_factory=dict)
    scheduler_tls: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    @asynccontextmanager
    async def start(cls, cluster: ControlPlane, workdir: Path, setup: Setup) -> AsyncIterator[Self]:
        """A running world on this control plane; extender and scheduler have ended when the context is left."""
        cluster.kubectl("apply", *(f"--filename={DEPLOY / name}.yaml" for name in (*APPLIED, *setup.applied)))
        kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, ACCOUNT)
        async with AsyncExitStack() as stack:
            api_relay, server = None, kubeconfig
            if setup.api_relayed:
                access = read_kubeconfig(kubeconfig)
                api_relay = await stack.enter_async_context(ApiRelay(access))
                server = write_kubeconfig(workdir / "relayed.kubeconfig", replace(access, server=api_relay.url))
            given, command = (server, SERVE) if setup.command is None else (None, setup.command(server))
            extender = ExtenderProcess(workdir, given, environment=setup.environment, command=command)
            await stack.enter_async_context(extender)
            relay = await stack.enter_async_context(Relay(extender.url)) if setup.relayed else None
            world = cls(
                cluster,
                extender,
                kubeconfig,
                relay,
                api_relay,
                kubelets=setup.kubelets,
                scheduler=setup.scheduler,
                scheduler_gates=setup.scheduler_gates,
                scheduler_tls=setup.scheduler_tls,
            )
            await world.start_scheduler()
            stack.push_async_callback(cluster.stop_scheduler)
            yield world

    @property
    def api(self) -> ApiClient:
        """The administrator's client."""
        return self.cluster.api

    async def start_scheduler(self) -> None:
        """Starts kube-scheduler with the shipped configuration."""
        url = self.relay.url if self.relay else self.extender.url
        configuration = {**shipped_configuration(url), **self.scheduler}
        if self.scheduler_tls:
            for stanza in configuration["extenders"]:
                stanza["urlPrefix"] = f"https://localhost:{self.extender.port}"
                stanza |= {"enableHTTPS": True, "tlsConfig": dict(self.scheduler_tls)}
        self.scheduler_pages = await self.cluster.start_scheduler(
            configuration, SCHEDULER, feature_gates=self.scheduler_gates
        )

    async def page(self, path: str) -> str:
        return await page(f"{self.extender.pages}{path}")

    async def metric(self, name: str, **labels: str) -> float:
        """A metric of the extender (without its prefix), summed over all series with these labels; 0 if there is none.

        Raises:
            LookupError: the extender has no metric of this name.
        """
        exposition, full = await self.page("/metrics"), f"dra_extender_{name}"
        if not any(f"# TYPE {each} " in exposition for each in (full, full.removesuffix("_count"))):
            raise LookupError(f"the extender has no metric {full}")
        return total(exposition, full, labels)

    async def wait_for_metric(self, name: str, least: float, *, seconds: float = PAGE_SECONDS, **labels: str) -> None:
        """Waits until a metric, summed as `metric` does, has reached this value."""

        async def reached() -> bool:
            return await self.metric(name, **labels) >= least

        await self.api.wait_for(reached, seconds, f"{name} with {labels} is at least {least:g}")

    async def scheduler_metrics(self) -> str:
        """All metrics of kube-scheduler, as Prometheus scrapes them."""
        return await page(f"{self.scheduler_pages}/metrics", read_kubeconfig(self.cluster.admin_kubeconfig).token)

    def log_lines(self) -> list[dict[str, Any]]:
        """What the extender has logged; a line that is no JSON object comes as {"level": "raw", "msg": line}."""
        return [_line(text) for text in whole_lines(self.extender.log) if text.strip()]

    def complaints(self) -> list[str]:
        """Lines of the extender's log that must not be there: errors, tracebacks, and rights that it lacks.

        Left out are lines that contain one of the texts in `tolerated`, where a test brought them about, and what the event loop
        says when the other side of a TLS connection went away while it was being closed: whoever waited for an answer hears of it.
        """
        bad = ("forbidden", "traceback")
        return [
            str(line)
            for line in self.log_lines()
            if (line.get("level") in ("error", "critical", "raw") or any(word in str(line).lower() for word in bad))
            and not any(text in str(line) for text in (*self.tolerated, CLOSED_WHILE_CLOSING))
        ]

    def tails(self) -> str:
        """The ends of the logs of extender and scheduler."""
        scheduler = self.cluster.logs(SCHEDULER)
        lines = scheduler.read_text(errors="replace").splitlines() if scheduler.exists() else []
        return "\n".join([self.extender.report("says"), "", f"The end of {scheduler}:", *lines[-TAIL_LINES:]])


def shipped_configuration(url: str, scheduler_name: str | None = None) -> dict[str, Any]:
    """The kube-scheduler configuration of deploy/ with the extender's URL, and without leader election among schedulers.

    `scheduler_name`: for a scheduler beside the shipped one.
    """
    shipped = yaml.safe_load((DEPLOY / "scheduler-config" / "kube-scheduler.yaml").read_text())
    changed: dict[str, Any] = copy.deepcopy(shipped)
    changed["leaderElection"] = {"leaderElect": False}
    for stanza in changed["extenders"]:
        stanza["urlPrefix"] = url
    if scheduler_name is not None:
        changed["profiles"][0]["schedulerName"] = scheduler_name
    return changed


async def page(url: str, token: str | None = None) -> str:
    """The text behind a URL on this machine."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    timeout = aiohttp.ClientTimeout(total=PAGE_SECONDS)
    async with (
        aiohttp.ClientSession(headers=headers, timeout=timeout) as session,
        session.get(url, ssl=False) as answer,
    ):
        answer.raise_for_status()
        return await answer.text()


def total(exposition: str, name: str, labels: Mapping[str, str]) -> float:
    """Sum of the samples of one metric that carry these labels."""
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    found = 0.0
    for line in exposition.splitlines():
        series, _, value = line.rpartition(" ")
        metric, _, rest = series.partition("{")
        if metric == name and all(each in rest for each in wanted):
            found += float(value)
    return found


def _line(text: str) -> dict[str, Any]:
    try:
        decoded = json.loads(text)
    except ValueError:
        decoded = None
    return decoded if isinstance(decoded, dict) else {"level": "raw", "msg": text}

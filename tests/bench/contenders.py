import copy
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from tests.controlplane.cluster import EXTENDER_USER, ControlPlane
from tests.controlplane.extender import REPOSITORY, SERVE, ExtenderProcess
from tests.controlplane.objects import SCHEDULER_NAME
from tests.controlplane.schedulers import in_tree_config

Config = dict[str, Any]
NOOP: Final = (sys.executable, "-m", "tests.bench.noop_extender")
_SHIPPED: Final = REPOSITORY / "deploy" / "base" / "scheduler-config" / "kube-scheduler.yaml"


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to schedule pods with claims: a configuration for kube-scheduler, given the extender's URL, and that extender.

    `command` None: there is no extender.  `audited`: its allocations are real and must be right.
    `scheduler_gates`: feature gates of its kube-scheduler beside the defaults.
    `seconds`: after so long it is stopped and judged by the pods that it bound until then; None: it must bind them all.
    """

    name: str
    config: Callable[[str], Config]
    command: tuple[str, ...] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    audited: bool = True
    scheduler_gates: Mapping[str, bool] = field(default_factory=dict)
    seconds: float | None = None

    @asynccontextmanager
    async def extender(self, cluster: ControlPlane) -> AsyncIterator[ExtenderProcess | None]:
        """The extender, which runs inside."""
        if self.command is None:
            yield None
            return
        logs, kubeconfig = cluster.logs("x").parent, cluster.kubeconfig_for(EXTENDER_USER)
        async with ExtenderProcess(logs, kubeconfig, command=self.command, environment=self.environment) as process:
            yield process


def with_extender(url: str) -> Config:
    """The configuration that deploy/ ships, with this extender."""
    config: Config = yaml.safe_load(_SHIPPED.read_text(encoding="utf-8"))
    config["leaderElection"] = {"leaderElect": False}
    for extender in config["extenders"]:
        extender["urlPrefix"] = url
    return config


def _in_tree_all_nodes(_: str) -> Config:
    return {**copy.deepcopy(in_tree_config(SCHEDULER_NAME)), "percentageOfNodesToScore": 100}


def _in_tree(_: str) -> Config:
    return in_tree_config(SCHEDULER_NAME)


def ours(offered_nodes: int | None = None) -> Contender:
    """The product, by default with its default settings."""
    if offered_nodes is None:
        return Contender("ours", with_extender, SERVE)
    environment = {"DRA_EXTENDER_SCHEDULING__OFFERED_NODES": str(offered_nodes)}
    return Contender(f"ours, {offered_nodes} nodes offered", with_extender, SERVE, environment)


IN_TREE_ALL_NODES: Final = Contender("in-tree plugin, all nodes", _in_tree_all_nodes)
IN_TREE: Final = Contender("in-tree plugin, default percentage", _in_tree)
UPSTREAM_PLACEMENT: Final = Contender(
    "ours with scheduling.placement: upstream", with_extender, SERVE, {"DRA_EXTENDER_SCHEDULING__PLACEMENT": "upstream"}
)
NO_OP: Final = Contender("no-op extender, same writes", with_extender, NOOP, audited=False)


def refusing(namespace: str) -> Contender:
    """The extender that decides nothing, but that pods of this namespace fit nowhere."""
    return Contender("no-op extender", with_extender, (*NOOP, "--refuse", namespace), audited=False)

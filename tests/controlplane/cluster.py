import json
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from tests.controlplane import build, commands
from tests.controlplane.apiclient import ApiClient
from tests.controlplane.audit import Asked, asked_in, write_audit_policy
from tests.controlplane.credentials import write_signing_key, write_tokens
from tests.controlplane.kubeconfig import Access, write_kubeconfig
from tests.controlplane.options import ControlPlaneOptions
from tests.controlplane.ports import free_ports
from tests.controlplane.process import Component
from tests.controlplane.schedulers import IN_TREE, completed_config, in_tree_config

ADMIN = "admin"
SCHEDULER_USER = "system:kube-scheduler"
EXTENDER_USER = "dra-extender"
VIEWER = "viewer"
TENANT = "tenant"
# The scheduler's name brings its built-in roles; the others have no rights until a test binds a role to them.
USERS: Mapping[str, tuple[str, ...]] = {
    ADMIN: ("system:masters",),
    **dict.fromkeys((SCHEDULER_USER, EXTENDER_USER, VIEWER, TENANT), ()),
}
KUBECTL_SECONDS = 60.0
BASIC = ("etcd", "kube-apiserver", "kube-controller-manager")
DEFAULT_OPTIONS = ControlPlaneOptions()
STARTED: Counter[str] = Counter()
"""The control planes that this process has started, by the names of their options."""


class KubectlError(Exception):
    """kubectl ended with an error, or did not end; the message holds the call and what it printed."""


class ControlPlane:
    """etcd, kube-apiserver and kube-controller-manager as real processes on loopback ports, with fresh data.

    Made by `ControlPlane.start`. `server` is the API server's URL, `api` a client for the administrator.
    """

    api: ApiClient

    def __init__(self, layout: commands.Layout, options: ControlPlaneOptions) -> None:
        self.layout = layout
        self.options = options
        self.server = layout.server
        self._components: dict[str, Component] = {}
        self._schedulers: dict[str, commands.Scheduler] = {}
        self._audit_begin = 0
        self._api_server_starts: list[range] = []
        self._tokens: dict[str, str] = {}
        self._teardown = AsyncExitStack()

    @classmethod
    @asynccontextmanager
    async def start(cls, workdir: Path, options: ControlPlaneOptions = DEFAULT_OPTIONS) -> AsyncIterator[Self]:
        """A running control plane in a new folder below `workdir`; logs and kubeconfigs stay there afterwards, data does not.

        Builds the programs unless they are in the cache. Raises BuildError, or ComponentError naming the component that did not
        start. Every process has ended when the context is left, by an error or a cancellation too.
        """
        cluster = await cls.open(workdir, options)
        try:
            yield cluster
        finally:
            await cluster.close()

    @classmethod
    async def open(cls, workdir: Path, options: ControlPlaneOptions = DEFAULT_OPTIONS) -> Self:
        """As `start`, until `close`."""
        STARTED[options.name] += 1
        tools = build.ensure(build.CONTROL_PLANE)
        programs = build.ensure(build.programs_of(options.built))
        home = Path(tempfile.mkdtemp(prefix="control-plane-", dir=workdir))
        cluster = cls(commands.Layout(programs, tools, home, *free_ports(4)), options)
        try:
            await cluster._start_all()
        except BaseException:
            await cluster.close()
            raise
        return cluster

    async def close(self) -> None:
        """Ends every process and removes the data; from any event loop."""
        await self._teardown.aclose()

    def connect(self) -> None:
        """Makes the administrator's client for this event loop; what others have asked before is not `asked`."""
        self._audit_begin = self._audited_bytes
        self.api = ApiClient(self._access(self._tokens[ADMIN]))

    async def disconnect(self) -> None:
        """Leaves this event loop: stops the schedulers and closes the client; `connect` in another loop goes on."""
        for name, component in self._components.items():
            if name not in BASIC:
                await component.stop()
        await self.api.close()

    @property
    def whole(self) -> bool:
        """Whether everything runs that was started at first."""
        return set(BASIC) <= self.pids.keys()

    @property
    def admin_kubeconfig(self) -> Path:
        return self.kubeconfig_for(ADMIN)

    def kubeconfig_for(self, user: str) -> Path:
        """Kubeconfig of a user that was given a token at the start; KeyError naming those for any other."""
        path = self.layout.kubeconfig(user)
        if not path.exists():
            if user not in self._tokens:
                raise KeyError(
                    f"No token was made for the user {user!r}, only for {sorted(self._tokens)}: see options.users."
                )
            write_kubeconfig(path, self._access(self._tokens[user]))
        return path

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """Kubeconfig with an hour's token of an existing service account, as the API's TokenRequest gives it out."""
        token = self.kubectl("create", "token", name, f"--namespace={namespace}", "--duration=1h").strip()
        path = self.layout.kubeconfig(f"system:serviceaccount:{namespace}:{name}")
        return write_kubeconfig(path, self._access(token))

    def kubectl(self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
        """Standard output of a kubectl call, as the administrator unless told otherwise; KubectlError if it fails.

        Blocks for the time of the call, at most a minute.
        """
        command = commands.kubectl(self.layout, kubeconfig or self.admin_kubeconfig, arguments)
        call = f"kubectl {' '.join(arguments)}"
        # kubectl would read preferences of whoever runs the tests.
        environment = {**os.environ, "KUBERC": "off", "HOME": str(self.layout.data)}
        try:
            done = subprocess.run(
                command,
                input=stdin,
                env=environment,
                capture_output=True,
                text=True,
                timeout=KUBECTL_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise KubectlError(f"{call} did not end within {KUBECTL_SECONDS:.0f} s.") from error
        if done.returncode != 0:
            raise KubectlError(
                f"{call} failed (exit code {done.returncode}): {done.stderr.strip() or done.stdout.strip()}"
            )
        return done.stdout

    async def start_scheduler(
        self,
        config: Path | Mapping[str, Any],
        name: str = "kube-scheduler",
        *,
        kubeconfig: Path | None = None,
        feature_gates: Mapping[str, bool] | None = None,
        programs: Path | None = None,
    ) -> str:
        """Starts a scheduler with a configuration (see schedulers.completed_config), and waits until it is ready.

        `kubeconfig`: who it is; by default the user that Kubernetes keeps for it.  `feature_gates`: set beside the defaults.
        `programs`: the folder of the program, for a scheduler of another release.  Returns the URL of its own pages.  Several may
        run beside each other under different names.
        """
        kubeconfig = kubeconfig or self.kubeconfig_for(SCHEDULER_USER)
        path = self.layout.home / f"{name}-config.json"
        path.write_text(json.dumps(completed_config(config, kubeconfig), indent=2))
        self._schedulers[name] = commands.Scheduler(programs or self.layout.programs, path, feature_gates or {})
        return await self._start_scheduler(name)

    async def stop_scheduler(self, name: str = "kube-scheduler") -> None:
        await self._components[name].stop()

    @asynccontextmanager
    async def in_tree_scheduler(
        self, name: str = IN_TREE, *, feature_gates: Mapping[str, bool] | None = None, programs: Path | None = None
    ) -> AsyncIterator[None]:
        """Inside, a scheduler with all its plugins runs, by default the one that clusters have anyway, for the pods that name none.

        `feature_gates`, `programs`: as for `start_scheduler`.
        """
        await self.start_scheduler(in_tree_config(name), name, feature_gates=feature_gates, programs=programs)
        try:
            yield
        finally:
            await self.stop_scheduler(name)

    async def restart_scheduler(self, name: str = "kube-scheduler") -> str:
        """Stops a scheduler and starts it with the same configuration; returns the URL of its own pages."""
        await self.stop_scheduler(name)
        return await self._start_scheduler(name)

    async def stop_apiserver(self) -> None:
        """Stops the API server alone: an outage for everybody else."""
        await self._components["kube-apiserver"].stop()

    async def start_apiserver(self) -> None:
        """Starts the API server again, on its port and with its data."""
        begin = self._audited_bytes
        await self._run("kube-apiserver", commands.apiserver(self.layout, self.options), f"{self.server}/readyz", ADMIN)
        self._api_server_starts.append(range(begin, self._audited_bytes))

    async def restart_apiserver(self, feature_gates: Mapping[str, bool] | None = None) -> None:
        """Stops the API server and starts it on the same port with the same data, with other gates if given."""
        if feature_gates is not None:
            self.options = replace(self.options, feature_gates=feature_gates)
        await self.stop_apiserver()
        await self.start_apiserver()

    async def change(self, options: ControlPlaneOptions) -> None:
        """Restart what has other gates or API versions in these options. The controller-manager follows the API server at once."""
        before, self.options = self.options, options
        served_anew = before.gates != options.gates or before.apis != options.apis
        if served_anew:
            await self.restart_apiserver()
        if served_anew or before.controller_manager_gates != options.controller_manager_gates:
            await self.restart_controller_manager()

    async def restart_controller_manager(self, feature_gates: Mapping[str, bool] | None = None) -> None:
        """Stops the controller-manager and starts it again, with other gates if given: an administrator switches one."""
        if feature_gates is not None:
            self.options = replace(self.options, controller_manager_feature_gates=feature_gates)
        await self._components["kube-controller-manager"].stop()
        await self._start_controller_manager()

    @property
    def audit_log(self) -> Path:
        """What the account of the service has asked the API server; it goes when the control plane stops."""
        return self.layout.audit_log

    @property
    def asked(self) -> frozenset[Asked]:
        """What the account of the service has asked, without what an API server denied before it was ready."""
        return asked_in(self.audit_log, self._audit_begin, self._api_server_starts)

    @property
    def _audited_bytes(self) -> int:
        return self.audit_log.stat().st_size if self.audit_log.exists() else 0

    def logs(self, name: str) -> Path:
        """Log of a component: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, or a scheduler's own name."""
        return self.layout.log(name)

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of the components that run."""
        return {name: pid for name, component in self._components.items() if (pid := component.pid) is not None}

    async def _start_all(self) -> None:
        layout = self.layout
        for folder in (layout.data, layout.log("x").parent, layout.kubeconfig("x").parent):
            folder.mkdir()
        self._teardown.callback(shutil.rmtree, layout.data, ignore_errors=True)
        write_signing_key(layout.signing_key)
        write_audit_policy(layout.audit_policy)
        self._tokens = write_tokens(layout.tokens, {**USERS, **self.options.users})
        await self._run("etcd", commands.etcd(layout), f"{layout.etcd_url}/health")
        await self.start_apiserver()
        self.connect()
        self._teardown.push_async_callback(self.disconnect)
        await self._start_controller_manager()

    async def _start_controller_manager(self) -> None:
        controllers = commands.controller_manager(self.layout, self.options, self.admin_kubeconfig)
        await self._run("kube-controller-manager", controllers, f"{self.layout.controller_manager_url}/healthz")

    async def _start_scheduler(self, name: str) -> str:
        (port,) = free_ports(1)
        kubeconfig = self.kubeconfig_for(SCHEDULER_USER)
        url = f"https://127.0.0.1:{port}"
        command = commands.scheduler(self._schedulers[name], self.options, kubeconfig, port)
        await self._run(name, command, f"{url}/readyz")
        return url

    async def _run(self, name: str, command: list[str], ready: str, user: str | None = None) -> None:
        """Starts a component, or starts it again, and waits for it; what was started last at first is stopped first."""
        if (component := self._components.get(name)) is None:
            component = self._components[name] = Component(name, command, self.layout.log(name))
            self._teardown.push_async_callback(component.stop)
        component.command = command
        component.start()
        await component.serving(
            ready, headers=None if user is None else {"Authorization": f"Bearer {self._tokens[user]}"}
        )

    def _access(self, token: str) -> Access:
        return Access(self.server, self.layout.certificate.read_text(), token)

"""Command lines of the components. Paths lie in the folder of one start; ports are loopback ports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.controlplane.options import ControlPlaneOptions

# Nobody connects to it. A loopback address is refused as an endpoint, and without one the API server looks for a default route,
# which a sandbox may not have. (RFC 5737: reserved for documentation.)
ADVERTISED_ADDRESS = "192.0.2.1"
# ServiceAccount would want a service account made before each pod; TaintNodesByCondition taints nodes that no kubelet untaints.
WITHOUT_ADMISSION = "ServiceAccount,TaintNodesByCondition"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where one control plane keeps its things, and its ports.

    `programs` are those of its release of Kubernetes, `tools` etcd and kubectl.
    """

    programs: Path
    tools: Path
    home: Path
    etcd_port: int
    etcd_peer_port: int
    apiserver_port: int
    controller_manager_port: int

    @property
    def data(self) -> Path:
        """Everything that is worthless once the control plane has stopped."""
        return self.home / "data"

    @property
    def certificate(self) -> Path:
        """Certificate (PEM, with its authority) that the API server makes at its first start."""
        return self.data / "certs" / "apiserver.crt"

    @property
    def signing_key(self) -> Path:
        """Key of service account tokens."""
        return self.data / "service-accounts.key"

    @property
    def tokens(self) -> Path:
        """Token file of the API server."""
        return self.data / "tokens.csv"

    @property
    def audit_policy(self) -> Path:
        """What the API server writes into its audit log."""
        return self.data / "audit-policy.json"

    @property
    def audit_log(self) -> Path:
        """The audit log: requests of the service's account."""
        return self.data / "audit.log"

    @property
    def etcd_url(self) -> str:
        return f"http://127.0.0.1:{self.etcd_port}"

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://127.0.0.1:{self.apiserver_port}"

    @property
    def controller_manager_url(self) -> str:
        """URL of the controller-manager's own pages."""
        return f"https://127.0.0.1:{self.controller_manager_port}"

    def kubeconfig(self, user: str) -> Path:
        return self.home / "kubeconfigs" / f"{user.replace(':', '-')}.json"

    def log(self, name: str) -> Path:
        """Path of a component's log."""
        return self.home / "logs" / f"{name}.log"


@dataclass(frozen=True, slots=True)
class Scheduler:
    """The folder of a kube-scheduler's program, its configuration file and its feature gates."""

    programs: Path
    config: Path
    feature_gates: Mapping[str, bool]


def etcd(layout: Layout) -> list[str]:
    """One etcd member that does not wait for the disk; the peer URLs keep the fixed default ports out of its member list."""
    peer = f"http://127.0.0.1:{layout.etcd_peer_port}"
    return [
        str(layout.tools / "etcd"),
        f"--data-dir={layout.data / 'etcd'}",
        f"--listen-client-urls={layout.etcd_url}",
        f"--advertise-client-urls={layout.etcd_url}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
    ]


def apiserver(layout: Layout, options: ControlPlaneOptions) -> list[str]:
    """The API server: RBAC, static tokens for users, signed tokens for service accounts."""
    return [
        str(layout.programs / "kube-apiserver"),
        f"--etcd-servers={layout.etcd_url}",
        f"--cert-dir={layout.certificate.parent}",
        f"--secure-port={layout.apiserver_port}",
        "--bind-address=127.0.0.1",
        f"--advertise-address={ADVERTISED_ADDRESS}",
        f"--service-account-key-file={layout.signing_key}",
        f"--service-account-signing-key-file={layout.signing_key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--token-auth-file={layout.tokens}",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.0.0.0/24",
        f"--disable-admission-plugins={WITHOUT_ADMISSION}",
        # Without it, a stop waits a minute for the watches of those that are still connected.
        "--shutdown-watch-termination-grace-period=1s",
        f"--audit-policy-file={layout.audit_policy}",
        f"--audit-log-path={layout.audit_log}",
        *_switches("--runtime-config", options.apis),
        *_switches("--feature-gates", options.gates),
        *_emulation(options),
        *options.apiserver_flags,
    ]


def controller_manager(layout: Layout, options: ControlPlaneOptions, kubeconfig: Path) -> list[str]:
    """The controllers that make claims from templates, release them, and clean up."""
    return [
        str(layout.programs / "kube-controller-manager"),
        f"--kubeconfig={kubeconfig}",
        f"--service-account-private-key-file={layout.signing_key}",
        f"--controllers={','.join(['*', *(f'-{each}' for each in options.without_controllers)])}",
        "--leader-elect=false",
        "--kube-api-qps=2000",
        "--kube-api-burst=4000",
        f"--secure-port={layout.controller_manager_port}",
        "--bind-address=127.0.0.1",
        # The default lies in a system folder, which the program would create.
        f"--flex-volume-plugin-dir={layout.data / 'flex-volumes'}",
        *_switches("--feature-gates", options.controller_manager_gates),
        *_emulation(options),
        *options.controller_manager_flags,
    ]


def scheduler(scheduler: Scheduler, options: ControlPlaneOptions, kubeconfig: Path, port: int) -> list[str]:
    """A kube-scheduler with a configuration file; what else it is told there (clients, limits) flags cannot change."""
    return [
        str(scheduler.programs / "kube-scheduler"),
        f"--config={scheduler.config}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--authentication-skip-lookup",
        *_switches("--feature-gates", scheduler.feature_gates),
        *_emulation(options),
    ]


def kubectl(layout: Layout, kubeconfig: Path, arguments: Sequence[str]) -> list[str]:
    """A kubectl call that reads no settings of whoever runs the tests."""
    folder = layout.data / "kubectl-cache"
    return [str(layout.tools / "kubectl"), f"--kubeconfig={kubeconfig}", f"--cache-dir={folder}", *arguments]


def _switches(flag: str, values: Mapping[str, bool]) -> list[str]:
    return [f"{flag}=" + ",".join(f"{name}={str(on).lower()}" for name, on in values.items())] if values else []


def _emulation(options: ControlPlaneOptions) -> list[str]:
    return [] if options.emulation is None else [f"--emulated-version={options.emulation}"]

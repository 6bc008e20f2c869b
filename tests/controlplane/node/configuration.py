"""What kubelet, containerd and the pods' network are told.  Why each line is there, docs/contributing/real-nodes.md says."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.controlplane.node.layout import NodeLayout
from tests.controlplane.objects import Object

IMAGE: Final = "node.test/box:1"
RUNTIME_SOCKET: Final = "/run/containerd/containerd.sock"
KUBELET_ROOT: Final = "/run/kubelet"
CDI: Final = "/run/cdi"
TUNABLES: Final[Mapping[str, str]] = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What a kubelet sets below /proc/sys for the whole machine; it finds these values in files of the node instead."""
MOUNTS: Final = Path("/proc/self/mountinfo")
_NEVER: Final = ("nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree")


def kubelet(layout: NodeLayout, gates: Mapping[str, bool]) -> Object:
    """KubeletConfiguration: nothing is evicted, reserved or set for the machine; anybody may ask on the loopback address."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": layout.name,
        "port": layout.kubelet_port,
        "healthzPort": 0,
        "readOnlyPort": 0,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{RUNTIME_SOCKET}",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.cgroup}",
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "protectKernelDefaults": True,
        "makeIPTablesUtilChains": False,
        "localStorageCapacityIsolation": False,
        "evictionHard": {"memory.available": "1Mi", **dict.fromkeys(_NEVER, "0%")},
        "imageGCHighThresholdPercent": 100,
        "podLogsDir": str(layout.pod_logs),
        "volumePluginDir": f"{KUBELET_ROOT}/volume-plugins",
        "resolvConf": "",
        "nodeStatusUpdateFrequency": "2s",
        "syncFrequency": "5s",
        "shutdownGracePeriod": "0s",
        "featureGates": dict(gates),
    }


def containerd(layout: NodeLayout) -> str:
    """containerd's configuration (TOML)."""
    return f"""\
version = 4
root = "{layout.containerd_root}"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
[plugins."io.containerd.internal.v1.opt"]
  path = "/run/containerd/opt"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "{snapshotter(layout.containerd_root)}"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{IMAGE}"
[plugins."io.containerd.cri.v1.runtime"]
  cdi_spec_dirs = ["{CDI}"]
  restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{layout.bin / "cni"}"]
  conf_dir = "{layout.cni_folder}"
  use_internal_loopback = true
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
    BinaryName = "{layout.bin / "runc"}"
    SystemdCgroup = false
"""


def snapshotter(folder: Path) -> str:
    """How containerd keeps layers in a folder: an overlay, unless the folder lies in one already, as it does in a container."""
    found = [(Path(line.split()[4]), line.partition(" - ")[2].split()[0]) for line in MOUNTS.read_text().splitlines()]
    _, kind = max((len(point.parts), kind) for point, kind in found if folder.is_relative_to(point))
    return "native" if kind == "overlay" else "overlayfs"


def network(layout: NodeLayout) -> Object:
    """A CNI configuration: each pod has an address and a link to the namespace of containerd, which leads nowhere."""
    subnet = [{"subnet": f"10.88.{layout.number}.0/24"}]
    addresses = {"type": "host-local", "dataDir": "/run/cni-addresses", "ranges": [subnet]}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp", "ipMasq": False, "ipam": addresses}]}

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

QPS = 2000
BURST = 4000


IN_TREE: Final = "default-scheduler"


def in_tree_config(scheduler_name: str = IN_TREE) -> dict[str, Any]:
    """Configuration of an unmodified scheduler with all its plugins, DynamicResources included."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": scheduler_name}],
    }


def completed_config(config: Path | Mapping[str, Any], kubeconfig: Path) -> dict[str, Any]:
    """A scheduler configuration (rendered, or a YAML file) made fit for this control plane, the given one untouched.

    It gets our kubeconfig. Leader election, and client limits that tests do not notice, are filled in where nothing is said.
    """
    given = yaml.safe_load(config.read_text()) if isinstance(config, Path) else config
    complete: dict[str, Any] = copy.deepcopy(dict(given))
    limits = {"qps": QPS, "burst": BURST}
    complete["clientConnection"] = {**limits, **complete.get("clientConnection", {}), "kubeconfig": str(kubeconfig)}
    complete.setdefault("leaderElection", {"leaderElect": False})
    return complete

"""Raw API objects and random event sequences for the ledger."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from dra_extender.ledger.slices import SliceIndex
from dra_extender.ledger.usage import UsageTable
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.device import PoolId
from dra_extender.model.resource_slice import ResourceSlice


def shared_slices(slices: SliceIndex) -> Sequence[ResourceSlice]:
    """Slices without `nodeName`, in order of names."""
    return [item for _, item in sorted(slices.by_name.items()) if item.node_name is None]


def encode(raw: dict[str, Any]) -> bytes:
    return msgspec.json.encode(raw)


def raw_node(name: str, version: int, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"node-{name}", "resourceVersion": str(version), "labels": labels}}


def raw_slice(name: str, version: int, *, pool: str, node: str | None, devices: int) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "driver": "gpu.example.com",
        "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"{name}-{index}"} for index in range(devices)],
    }
    spec |= {"nodeName": node} if node else {"allNodes": True}
    return {"metadata": {"name": name, "uid": f"slice-{name}", "resourceVersion": str(version)}, "spec": spec}


def raw_claim(
    name: str,
    version: int,
    *,
    uid: str = "",
    devices: tuple[tuple[str, str], ...] | None = None,
    consumers: tuple[str, ...] = (),
) -> dict[str, Any]:
    status: dict[str, Any] = {}
    if devices is not None:
        results = [
            {"request": "r", "driver": "gpu.example.com", "pool": pool, "device": device} for pool, device in devices
        ]
        status["allocation"] = {"devices": {"results": results}}
        status["reservedFor"] = [{"resource": "pods", "name": each, "uid": each} for each in consumers]
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or f"claim-{name}",
            "resourceVersion": str(version),
        },
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
        "status": status,
    }


def raw_pod(name: str, version: int, *, node: str = "", nominated: str = "", phase: str = "Pending") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"pod-{name}", "resourceVersion": str(version)},
        "spec": {"nodeName": node, "resourceClaims": [{"name": "gpu", "resourceClaimName": name}]},
        "status": {"phase": phase, "nominatedNodeName": nominated},
    }


def holdings_by_device(usage: UsageTable) -> Mapping[PoolId, Mapping[str, Counter[DeviceHolding]]]:
    """The holdings by pool and device; their order does not matter."""
    return {pool: {device: Counter(holdings) for device, holdings in usage.pool(pool).items()} for pool in usage.pools}

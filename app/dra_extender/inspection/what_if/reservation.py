"""Devices that nobody else gets: a pod of the copy alone asks for them, and is placed before all others."""

import re
from collections.abc import Iterator
from typing import Any, Final

from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.program import compile_expression
from dra_extender.inspection.what_if.changes import ChangeError, PodKey, UnreadableChangeError
from dra_extender.inspection.what_if.copied_cluster import CopiedCluster
from dra_extender.manifests.api_defaults import fill_in
from dra_extender.model.device import DeviceId, device_id_of
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind

_NAMESPACE: Final = "what-if"
_FIRST: Final = 2**31 - 1
"""A priority above that of all pods."""
_NAME: Final = re.compile(r"[a-z0-9.-]+")
_CLAIM: Final = re.compile(r"[a-z0-9.-]+/[a-z0-9.-]+")
_DEVICE: Final = re.compile(r"[a-z0-9.-]+(/[a-z0-9.-]+){2,}")
_DOMAIN: Final = "dra-extender.io"
_MARK: Final = "reserved"


def names_claim(asked: str) -> bool:
    return bool(_CLAIM.fullmatch(asked))


def device_text(asked: str) -> str:
    """Say what is asked for: a device by name, one of a class, one that an expression selects, or what a claim asks for."""
    if names_claim(asked):
        return f"what claim {asked} asks for"
    if _DEVICE.fullmatch(asked):
        return f"device {asked}"
    return f"a device of class {asked}" if _NAME.fullmatch(asked) else f"a device with {asked}"


def reserve(copy: CopiedCluster, asked: str) -> PodKey:
    """Add a pod that asks for one device, or uses a claim; return its key.

    Args:
        copy: The cluster.
        asked: `DRIVER/POOL/DEVICE`, the name of a DeviceClass, a CEL expression as in a selector, or `NAMESPACE/NAME` of a claim.
            A device by name is taken as a whole and whatever taints it and its nodes have.

    Raises:
        ChangeError: there is no such device, class or claim, or the expression does not compile.
    """
    namespace, claim = asked.split("/") if names_claim(asked) else (_NAMESPACE, "")
    number = 1
    while copy.store.find(Key(StoredKind.POD, namespace, f"{_MARK}-{number}")) is not None:
        number += 1
    name = f"{_MARK}-{number}"
    if not claim:
        _add_claim(copy, name, _request(copy, asked, name))
    elif copy.store.find(Key(StoredKind.CLAIM, namespace, claim)) is None:
        raise ChangeError(f"claim {asked} does not exist in {copy.origin.source}")
    spec = {
        "containers": [{"name": "main"}],
        "priority": _FIRST,
        "resourceClaims": [{"name": "device", "resourceClaimName": claim or name}],
        "tolerations": [{"operator": "Exists"}] if _DEVICE.fullmatch(asked) else [],
    }
    metadata = {"name": name, "namespace": namespace, "uid": f"{name}-pod", "creationTimestamp": copy.created}
    copy.put(StoredKind.POD, {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})
    return namespace, name


def _request(copy: CopiedCluster, asked: str, name: str) -> Json:
    """Return a request for one device, with a class of its own if none is named."""
    if _NAME.fullmatch(asked):
        if copy.store.find(Key(StoredKind.CLASS, "", asked)) is None:
            raise ChangeError(f"DeviceClass {asked} does not exist in {copy.origin.source}")
        return {"deviceClassName": asked}
    own = f"{_NAMESPACE}-{name}"
    copy.put(StoredKind.CLASS, {"metadata": {"name": own}, "spec": {}})
    if _DEVICE.fullmatch(asked):
        _mark(copy, device_id_of(asked), own.replace("-", "_"))
        expression = f'has(device.attributes["{_DOMAIN}"].{own.replace("-", "_")})'
        return {
            "deviceClassName": own,
            "selectors": [{"cel": {"expression": expression}}],
            "tolerations": [{"operator": "Exists"}],
        }
    try:
        compile_expression(asked)
    except CelCompileError as problem:
        wanted = "expected a DeviceClass, DRIVER/POOL/DEVICE or a CEL expression"
        raise UnreadableChangeError(f"{wanted}, got {asked!r}: {problem.reason}") from problem
    return {"deviceClassName": own, "selectors": [{"cel": {"expression": asked}}]}


def _add_claim(copy: CopiedCluster, name: str, body: Json) -> None:
    metadata = {"name": name, "namespace": _NAMESPACE, "creationTimestamp": copy.created}
    claim = {"metadata": metadata, "spec": {"devices": {"requests": [{"name": "device", "exactly": body}]}}}
    fill_in(StoredKind.CLAIM, claim)
    copy.put(StoredKind.CLAIM, claim)


def _mark(copy: CopiedCluster, device_id: DeviceId, mark: str) -> None:
    """Give the device an attribute that no other has, and take its leave to be shared away: it is asked for as a whole."""
    found = list(_slices(copy, device_id))
    if not found:
        raise ChangeError(f"device {'/'.join(device_id)} does not exist in {copy.origin.source}")
    for item, devices in found:
        changed: list[Json] = []
        for device in devices:
            if device.get("name") == device_id[2]:
                attributes = {**(device.get("attributes") or {}), f"{_DOMAIN}/{mark}": {"bool": True}}
                kept = {field: value for field, value in device.items() if field != "allowMultipleAllocations"}
                changed.append({**kept, "attributes": attributes})
            else:
                changed.append(device)
        copy.put(StoredKind.SLICE, {**item, "spec": {**item["spec"], "devices": changed}})


def _slices(copy: CopiedCluster, device_id: DeviceId) -> Iterator[tuple[Json, list[Any]]]:
    driver, pool, name = device_id
    for item in copy.all(StoredKind.SLICE):
        spec = item["spec"]
        if spec.get("driver") == driver and (spec.get("pool") or {}).get("name") == pool:
            devices = spec.get("devices") or []
            if any(device.get("name") == name for device in devices):
                yield item, devices

"""What the API server refuses: a wrong status of a ResourceClaim, and changes of fields that are immutable.

It checks fields and names, not devices or free amounts.
"""

import uuid
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from dra_extender.model.api_json import MAX_PARAMETERS, ModelError
from dra_extender.model.names import is_label, is_pool_name, is_subdomain
from dra_extender.model.node_selector import NodeSelector
from dra_extender.model.resource_claim import MAX_RESERVATIONS
from dra_extender.scheduling.ports.cluster import RequestRejectedError
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind, part


class InvalidError(RequestRejectedError):
    """An object is invalid; each problem begins with the path of a field and a colon."""

    def __init__(self, subject: str, *problems: str) -> None:
        super().__init__(f"{subject} is invalid: {'; '.join(problems)}")
        self.problems = problems


MAX_RESULTS: Final = 32
MAX_CONFIGURATIONS: Final = 64
MAX_CONDITIONS: Final = 4
_MUTABLE_POD_FIELDS: Final = (
    "activeDeadlineSeconds",
    "tolerations",
    "schedulingGates",
    "terminationGracePeriodSeconds",
)
_FIXED_POD_GROUP_FIELDS: Final = (
    "workloadRef",
    "schedulingConstraints",
    "resourceClaims",
    "disruptionMode",
    "priorityClassName",
    "priority",
    "preemptionPolicy",
)
"""Fields of a PodGroup's spec that no update may change (declarative validation of scheduling.k8s.io/v1beta1)."""


def check_claim_status(key: Key, old: Json, new: Json) -> None:
    """Refuse a status that the API server would refuse.

    Raises:
        InvalidError: names each error as the server does: field path, kind of error, why.
    """
    offences = list(_offences(old, new))
    if offences:
        raise InvalidError(f'{key.kind.singular}.resource.k8s.io "{key.name}"', *offences)


def prune_device_statuses(before: Json, after: Json) -> None:
    """Drop driver statuses of devices that this update deallocates, in place."""
    gone = _devices_of(before) - _devices_of(after)
    if after.get("devices"):
        after["devices"] = [device_status for device_status in after["devices"] if _identity(device_status) not in gone]
        if not after["devices"]:
            del after["devices"]


def _offences(old: Json, new: Json) -> Iterator[str]:
    before, after = part(old, "status"), part(new, "status")
    was, now = before.get("allocation"), after.get("allocation")
    if was is not None and now is not None and was != now:
        yield "status.allocation: Invalid value: field is immutable"
    elif now is not None and was is None:
        yield from _allocation_offences(new, now)
    yield from _reservation_offences(old, before.get("reservedFor") or [], after.get("reservedFor") or [], now)
    allocated = _devices_of(after)
    for index, device_status in enumerate(after.get("devices") or []):
        if _identity(device_status) not in allocated:
            yield f"status.devices[{index}]: Invalid value: must be an allocated device in the claim"


def _reservation_offences(old: Json, before: list[Json], after: list[Json], allocation: Any) -> Iterator[str]:
    where = "status.reservedFor"
    if after and allocation is None:
        yield f"{where}: Forbidden: may not be specified when `allocation` is not set"
    if len(after) > MAX_RESERVATIONS:
        yield f"{where}: Too many: {len(after)}: must have at most {MAX_RESERVATIONS} items"
    uids = [consumer.get("uid") for consumer in after]
    if len(set(uids)) != len(uids):
        yield f"{where}: Duplicate value: every uid may be listed once"
    for index, consumer in enumerate(after):
        for field in ("resource", "name", "uid"):
            if not consumer.get(field):
                yield f"{where}[{index}].{field}: Required value"
    if "deletionTimestamp" in old["metadata"] and set(uids) - {consumer.get("uid") for consumer in before}:
        yield f"{where}: Forbidden: new entries may not be added while `deletionTimestamp` is set"


def _allocation_offences(claim: Json, allocation: Json) -> Iterator[str]:
    devices, where = part(allocation, "devices"), "status.allocation.devices"
    results, configurations = devices.get("results") or [], devices.get("config") or []
    names = set()
    for request in part(claim, "spec", "devices").get("requests") or []:
        names.add(request["name"])
        names.update(f"{request['name']}/{alternative['name']}" for alternative in request.get("firstAvailable") or [])
    if len(results) > MAX_RESULTS:
        yield f"{where}.results: Too many: {len(results)}: must have at most {MAX_RESULTS} items"
    for index, result in enumerate(results):
        yield from _result_offences(result, names, f"{where}.results[{index}]")
    if len(configurations) > MAX_CONFIGURATIONS:
        yield f"{where}.config: Too many: {len(configurations)}: must have at most {MAX_CONFIGURATIONS} items"
    for index, configuration in enumerate(configurations):
        yield from _configuration_offences(configuration, names, f"{where}.config[{index}]")
    yield from _selector_offences(allocation.get("nodeSelector"))


def _result_offences(result: Json, names: set[str], where: str) -> Iterator[str]:
    if result.get("request") not in names:
        yield f"{where}.request: Invalid value: {result.get('request')!r}: must be the name of a request in the claim"
    if not is_subdomain(result.get("driver"), 63):
        yield f"{where}.driver: Invalid value: {result.get('driver')!r}: must be a DNS subdomain of at most 63 characters"
    if not is_pool_name(result.get("pool")):
        yield f"{where}.pool: Invalid value: {result.get('pool')!r}: must be DNS subdomains separated by slashes"
    if not is_label(result.get("device")):
        yield f"{where}.device: Invalid value: {result.get('device')!r}: must be a DNS label"
    if "shareID" in result and not _is_uuid(result["shareID"]):
        yield f"{where}.shareID: Invalid value: {result['shareID']!r}: must be a UUID"
    needed, failed = result.get("bindingConditions") or [], result.get("bindingFailureConditions") or []
    for field, conditions in (("bindingConditions", needed), ("bindingFailureConditions", failed)):
        if len(conditions) > MAX_CONDITIONS or len(set(conditions)) != len(conditions):
            yield f"{where}.{field}: Invalid value: expected at most {MAX_CONDITIONS} different conditions"
    if set(needed) & set(failed):
        yield f"{where}.bindingFailureConditions: Invalid value: must not overlap with bindingConditions"
    if bool(needed) != bool(failed):
        yield f"{where}: Invalid value: bindingConditions and bindingFailureConditions must be set together"


def _configuration_offences(configuration: Json, names: set[str], where: str) -> Iterator[str]:
    if configuration.get("source") not in ("FromClass", "FromClaim"):
        yield f"{where}.source: Unsupported value: {configuration.get('source')!r}: supported values: FromClass, FromClaim"
    requests = configuration.get("requests") or []
    if len(requests) > MAX_RESULTS or len(set(requests)) != len(requests):
        yield f"{where}.requests: Invalid value: expected at most {MAX_RESULTS} different names"
    for name in requests:
        if name not in names:
            yield f"{where}.requests: Invalid value: {name!r}: must be the name of a request in the claim"
    if len(msgspec.json.encode(part(configuration, "opaque").get("parameters"))) > MAX_PARAMETERS:
        yield f"{where}.opaque.parameters: Too long: must have at most {MAX_PARAMETERS} bytes"


def _selector_offences(selector: Any) -> Iterator[str]:
    if selector is None:
        return
    try:
        msgspec.convert(selector, NodeSelector).matches("", {})
    except (msgspec.ValidationError, ModelError) as problem:
        yield f"status.allocation.nodeSelector: Invalid value: {problem}"


def _is_uuid(text: Any) -> bool:
    try:
        uuid.UUID(text)
    except (ValueError, TypeError, AttributeError):
        return False
    return True


def _devices_of(status: Json) -> set[tuple[Any, ...]]:
    return {_identity(result) for result in part(status, "allocation", "devices").get("results") or []}


def _identity(device: Json) -> tuple[Any, ...]:
    return tuple(device.get(field) for field in ("driver", "pool", "device", "shareID"))


def check_unchanged(key: Key, old: Json, new: Json) -> None:
    """Refuse an ordinary update that changes what the API server never lets change.

    Raises:
        InvalidError: the spec of a claim, template or pod (except images, tolerations and gates), a slice's driver, pool
            or node, or what is fixed of a PodGroup, such as its claims.
    """
    before, after = part(old, "spec"), part(new, "spec")
    match key.kind:
        case StoredKind.CLAIM | StoredKind.TEMPLATE:
            _same(key, "spec", before, after)
        case StoredKind.POD:
            _same(key, "spec", _fixed(before), _fixed(after))
        case StoredKind.SLICE:
            _same(key, "spec.driver", before.get("driver"), after.get("driver"))
            _same(key, "spec.pool.name", part(before, "pool").get("name"), part(after, "pool").get("name"))
            _same(key, "spec.nodeName", before.get("nodeName"), after.get("nodeName"))
        case StoredKind.POD_GROUP:
            for field in _FIXED_POD_GROUP_FIELDS:
                _same(key, f"spec.{field}", before.get(field) or None, after.get(field) or None)
        case _:
            pass


def _same(key: Key, field: str, before: Any, after: Any) -> None:
    if before != after:
        raise InvalidError(f'{key.kind.singular} "{key.name}"', f"{field}: Invalid value: field is immutable")


def _fixed(spec: Json) -> Json:
    fixed = {name: value for name, value in spec.items() if name not in _MUTABLE_POD_FIELDS}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [
                {name: container[name] for name in container if name != "image"} for container in fixed[field]
            ]
    return fixed

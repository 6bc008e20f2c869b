"""Defaults that the API server fills in where people leave fields out, as far as decisions read them."""

from collections.abc import Iterator
from typing import Any, Final

Json = dict[str, Any]

DEFAULT_SCHEDULER: Final = "default-scheduler"


def fill_in(kind: str, item: Json) -> None:
    """Add the defaults to an object of this plural kind, in place.

    Raises:
        AttributeError, TypeError, KeyError: a field is of another type than the API has it.
    """
    match kind:
        case "resourceclaims":
            _fill_claim(_part(item, "spec"))
            for reported in _part(item, "status").get("devices") or []:
                reported.setdefault("conditions", None)
        case "resourceclaimtemplates":
            _fill_claim(_part(item, "spec", "spec"))
        case "pods":
            _fill_pod(item)
        case "resourceslices":
            _fill_slice(_part(item, "spec"))
        case "nodes":
            for field in ("allocatable", "capacity"):
                _spell_amounts(_part(item, "status", field))
        case _:
            pass


def bodies(claim_spec: Json) -> Iterator[Json]:
    """Yield every `exactly` and every alternative of a claim's requests."""
    for request in _part(claim_spec, "devices").get("requests") or []:
        if request.get("exactly"):
            yield request["exactly"]
        yield from request.get("firstAvailable") or []


def _fill_claim(spec: Json) -> None:
    for body in bodies(spec):
        mode = body.setdefault("allocationMode", "ExactCount")
        if mode == "ExactCount" and not body.get("count"):
            body["count"] = 1
        for toleration in body.get("tolerations") or []:
            toleration.setdefault("operator", "Equal")
        _spell_amounts(_part(body, "capacity", "requests"))


def _spell_amounts(amounts: Json) -> None:
    """Turn quantities that are written as numbers into text, as the API server hands them out."""
    amounts.update({name: str(amount) for name, amount in amounts.items()})


def _fill_slice(spec: Json) -> None:
    devices = spec.get("devices") or []
    consuming = [counter for device in devices for counter in device.get("consumesCounters") or []]
    counters = [_part(counter_set, "counters") for counter_set in (*(spec.get("sharedCounters") or []), *consuming)]
    capacities = [_part(device, "capacity") for device in devices]
    for amounts in (*counters, *capacities):
        for amount in amounts.values():
            amount["value"] = str(amount["value"])
    for capacity in (capacity for named in capacities for capacity in named.values()):
        span = _part(capacity, "requestPolicy", "validRange")
        if "step" in span and "min" not in span:
            span["min"] = "0"


def _fill_pod(pod: Json) -> None:
    spec = pod.setdefault("spec", {})
    spec.setdefault("schedulerName", DEFAULT_SCHEDULER)
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("priority", 0)
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        resources = container.get("resources") or {}
        for field in ("requests", "limits"):
            _spell_amounts(_part(resources, field))
        limits = resources.get("limits")
        if limits:
            requests = resources.setdefault("requests", {})
            for name, amount in limits.items():
                requests.setdefault(name, amount)
    status = pod.setdefault("status", {})
    status.setdefault("phase", "Pending")


def _part(item: Json, *path: str) -> Json:
    """Return the object below `item` at this path; empty where it is absent or null."""
    for step in path:
        item = item.get(step) or {}
    return item

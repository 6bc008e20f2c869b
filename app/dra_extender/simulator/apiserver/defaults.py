"""What the API server fills in on every write before it stores the object."""

from collections.abc import Iterator

from dra_extender.simulator.apiserver.objects import Json, StoredKind, key_of, part


def fill_in(kind: StoredKind, thing: Json) -> None:
    """Add kind, apiVersion, namespace and the defaults that decisions read, in place."""
    thing["kind"], thing["apiVersion"] = kind.singular, kind.api_version
    metadata = thing.setdefault("metadata", {})
    if kind.namespaced:
        metadata["namespace"] = key_of(kind, thing).namespace
    match kind:
        case StoredKind.CLAIM:
            _fill_claim(part(thing, "spec"))
        case StoredKind.TEMPLATE:
            _fill_claim(part(thing, "spec", "spec"))
        case StoredKind.POD:
            _fill_pod(thing)
        case StoredKind.SLICE:
            _fill_slice(part(thing, "spec"))
        case StoredKind.NODE:
            for field in ("allocatable", "capacity"):
                _spell_amounts(part(thing, "status", field))
        case _:
            pass


def bodies(claim_spec: Json) -> Iterator[Json]:
    """Every `exactly` and every alternative of a claim's requests."""
    for request in part(claim_spec, "devices").get("requests") or []:
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
        _spell_amounts(part(body, "capacity", "requests"))


def _spell_amounts(amounts: Json) -> None:
    """Quantities may be written as numbers; the API server hands them out as text."""
    amounts.update({name: str(amount) for name, amount in amounts.items()})


def _fill_slice(spec: Json) -> None:
    devices = spec.get("devices") or []
    consuming = [each for device in devices for each in device.get("consumesCounters") or []]
    counters = [part(each, "counters") for each in (*(spec.get("sharedCounters") or []), *consuming)]
    capacities = [part(device, "capacity") for device in devices]
    for amounts in (*counters, *capacities):
        for amount in amounts.values():
            amount["value"] = str(amount["value"])
    for capacity in (each for named in capacities for each in named.values()):
        span = part(capacity, "requestPolicy", "validRange")
        if "step" in span and "min" not in span:
            span["min"] = "0"


def _fill_pod(pod: Json) -> None:
    spec = pod.setdefault("spec", {})
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("priority", 0)
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        resources = container.get("resources") or {}
        for field in ("requests", "limits"):
            _spell_amounts(part(resources, field))
        limits = resources.get("limits")
        if limits:
            requests = resources.setdefault("requests", {})
            for name, amount in limits.items():
                requests.setdefault(name, amount)
    status = pod.setdefault("status", {})
    status.setdefault("phase", "Pending")

"""What a write of a replica may not do to a claim, whatever else is stored."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from dra_extender.simulator.apiserver.objects import Json, part
from dra_extender.simulator.apiserver.store import Change, WatchEventType


def broken_by(change: Change, runs: Callable[[str], bool]) -> Iterator[str]:
    """The rules that this write of a claim breaks; `runs`: whether the pod with this UID is bound and has not ended."""
    before: Json = msgspec.json.decode(change.before) if change.before else {}
    after: Json = {} if change.verb is WatchEventType.DELETED else msgspec.json.decode(change.data)
    had, has = _devices(before), _devices(after)
    if has and not had and not part(after, "status").get("reservedFor"):
        yield f"allocated without a reservation: {change.key}"
    if has and not had and "deletionTimestamp" in part(before, "metadata"):
        yield f"allocated while it is being deleted: {change.key}"
    if had and has and had != has:
        yield f"an allocation replaces another: {change.key}"
    if had and had == has and _reports(before) and _reports(before) != _reports(after):
        yield f"a driver's report is lost: {change.key}"
    for uid in _users(before) - _users(after):
        if runs(uid):
            yield f"a running pod loses its reservation: {change.key}"


def _devices(claim: Json) -> list[Any]:
    results = part(claim, "status", "allocation", "devices").get("results") or ()
    return [[each.get(name) for name in ("request", "driver", "pool", "device", "shareID")] for each in results]


def _reports(claim: Json) -> Any:
    return part(claim, "status").get("devices")


def _users(claim: Json) -> set[str]:
    return {each["uid"] for each in part(claim, "status").get("reservedFor") or ()}

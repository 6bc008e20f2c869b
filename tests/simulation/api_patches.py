"""The patches of the API: merge (RFC 7396), strategic merge, and server-side apply as far as the parts of a cluster use it."""

import copy
from typing import Any, Final

from dra_extender.simulator.apiserver.objects import Json

_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "conditions": ("type",),
    "containers": ("name",),
    "extendedResources": ("name",),
    "ownerReferences": ("uid",),
    "reservedFor": ("uid",),
    "resourceClaimStatuses": ("name",),
    "resourceClaims": ("name",),
    "schedulingGates": ("name",),
}
"""Lists that are merged by these keys of their items; all others are replaced."""
_APPLIED_KEYS: Final = {**_KEYS, "devices": ("driver", "pool", "device", "shareID")}
_SETS: Final = frozenset({"finalizers"})


def merge(target: Any, patch: Any) -> Any:
    """JSON merge patch: null removes, lists are replaced."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def strategic_merge(target: Any, patch: Any, keys: dict[str, tuple[str, ...]] = _KEYS) -> Any:
    """As `merge`, but lists with keys and sets are merged; `$patch: delete` removes an item."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if name.startswith("$deleteFromPrimitiveList/"):
            field = name.partition("/")[2]
            merged[field] = [each for each in merged.get(field) or [] if each not in value]
        elif name.startswith("$"):
            continue
        elif value is None:
            merged.pop(name, None)
        elif isinstance(value, list) and name in keys:
            merged[name] = _merged_list(merged.get(name) or [], value, keys[name], keys)
        elif isinstance(value, list) and name in _SETS:
            merged[name] = list(dict.fromkeys([*(merged.get(name) or []), *value]))
        else:
            merged[name] = strategic_merge(merged.get(name), value, keys)
    return merged


def _merged_list(
    target: list[Json], patch: list[Json], by: tuple[str, ...], keys: dict[str, tuple[str, ...]]
) -> list[Json]:
    merged = {_identity(each, by): each for each in target}
    for each in patch:
        identity = _identity(each, by)
        if each.get("$patch") == "delete":
            merged.pop(identity, None)
        else:
            merged[identity] = strategic_merge(merged.get(identity), each, keys)
    return list(merged.values())


def _identity(item: Json, by: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(item.get(name) for name in by)


def apply(target: Json, wanted: Json, before: Json) -> Json:
    """Server-side apply of `wanted` by a manager that applied `before` earlier: what it no longer lists goes.

    Owners of fields are not kept: nothing that others own is protected, as with `force`.
    """
    kept = _without(copy.deepcopy(target), before, wanted)
    applied: Json = strategic_merge(kept, wanted, _APPLIED_KEYS)
    return applied


def _without(target: Json, before: Json, wanted: Json) -> Json:
    """`target` without what is in `before` and not in `wanted`."""
    for name, value in before.items():
        if name not in target:
            continue
        now = wanted.get(name)
        if isinstance(value, list) and name in _APPLIED_KEYS:
            by = _APPLIED_KEYS[name]
            gone = {_identity(each, by) for each in value} - {_identity(each, by) for each in now or []}
            target[name] = [each for each in target[name] if _identity(each, by) not in gone]
            if not target[name]:
                del target[name]
        elif isinstance(value, dict) and isinstance(target[name], dict):
            _without(target[name], value, now if isinstance(now, dict) else {})
        elif now is None:
            del target[name]
    return target
